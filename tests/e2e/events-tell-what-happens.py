# Each thing that happens to a sandbox's state, and to a tenant's checkpoints, is an event of its own type with the ids that it is about.
# serial
# limit: 200
from t import *

file = os.path.join(DIR, "events.space")
kept = []


def checkpoint(id, what="checkpoints", **body):
    k = api("POST", f"/v1/sandboxes/{id}/{what}", body, status=201, timeout=120).json
    kept.append(k["id"])
    return k


def since(seq, *types, sandbox=None):
    """Events after SEQ of these types, of all or of one sandbox."""
    path = f"/v1/sandboxes/{sandbox}/events" if sandbox else "/v1/events"
    l = api("GET", f"{path}?after={seq}&limit=1000", headers={"Accept": "application/json"}).json["events"]
    return [e for e in l if e["type"] in types]


def one(seq, type, **kw):
    l = since(seq, type, **kw)
    equal(len(l), 1, f"events of type {type}: {l}")
    return l[0]


def gone(seq, node):
    l = [e for e in since(seq, "checkpoint_removed") if e["checkpoint"]["id"] == node]
    return l[0] if l else None


try:
    with sandbox(timeout=190) as id:
        start = events_of(id)[0]["seq"]
        k = checkpoint(id, label="kept")
        e = one(start, "checkpoint", sandbox=id)
        equal((e["checkpoint"]["id"], e["checkpoint"]["label"], e["sandbox"]), (k["id"], "kept", id), "checkpoint")
        snap = checkpoint(id, "snapshots")
        equal(one(start, "snapshot", sandbox=id)["checkpoint"]["id"], snap["id"], "snapshot")

        b = api("POST", f"/v1/sandboxes/{id}/branch", {"count": 2}, status=201, timeout=120).json
        siblings = [s["id"] for s in b["sandboxes"]]
        e = one(start, "branch", sandbox=id)
        equal((e["checkpoint"]["id"], e["checkpoint"]["kind"], sorted(e["sandboxes"]), e["failed"]), (b["checkpoint"]["id"], "branch", sorted(siblings), 0), "branch")
        for s in siblings:
            api("DELETE", f"/v1/sandboxes/{s}")

        api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)
        api("POST", f"/v1/sandboxes/{id}/wake", timeout=120)
        api("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "kept"}, timeout=120)
        api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 150})
        order = [e["type"] for e in since(start, "suspending", "suspended", "waking", "running", "rolled_back", "timeout", sandbox=id)]
        equal(order[order.index("suspending"):][:4], ["suspending", "suspended", "waking", "running"], "suspended and woken")
        check("rolled_back" in order[4:] and order[-1] == "timeout", f"{order}")

        with open(file, "wb") as f:
            subprocess.run([SPACE, "export", k["id"]], stdin=subprocess.DEVNULL, stdout=f, check=True, env=cli_env(), timeout=120)
        e = one(start, "exported", sandbox=id)
        equal((e["checkpoint"]["id"], e["sandbox"]), (k["id"], id), "exported")
        with open(file, "rb") as f:
            new = subprocess.run([SPACE, "import"], stdin=f, stdout=subprocess.PIPE, check=True, env=cli_env(), timeout=120).stdout.decode().strip()
        kept.append(new)
        e = [e for e in since(start, "imported") if e["checkpoint"]["id"] == new]
        check(len(e) == 1 and e[0]["sandbox"] is None and e[0]["checkpoint"]["kind"] == "checkpoint", f"imported: {e}")

        cli("node", "rm", snap["id"])
        e = gone(start, snap["id"])
        equal((e["reason"], e["sandbox"], e["checkpoint"]["kind"]), ("removed", id, "snapshot"), "node rm")
        equal(gone(start, k["id"]), None, "the one that is kept")
    api("DELETE", f"/v1/checkpoints/{new}", status=204)
    equal((gone(start, new)["reason"], gone(start, new)["sandbox"]), ("removed", None), "an imported one")
    wait_for(lambda: gone(start, b["checkpoint"]["id"]), 20, "what a branch was taken from goes, and says so")
    equal(gone(start, b["checkpoint"]["id"])["reason"], "unneeded", "the branch's")
    j = api("POST", "/v1/prune", {"older_than": 0}).json
    check(k["id"] in j["removed"], f"{j}")
    equal(gone(start, k["id"])["reason"], "pruned", "prune")
    equal([e for e in since(start, "checkpoint_removed") if e["checkpoint"]["kind"] == "suspend"], [], "a suspension's is told by its wake")
    # The stream names the types, too.
    with Stream("GET", f"/v1/sandboxes/{id}/events", timeout=15) as s:
        for e in s:
            equal(e.event, e.data["type"])
            if e.event == "branch":
                break
finally:
    for n in kept:
        api("DELETE", f"/v1/checkpoints/{n}", status=(204, 404))
    if os.path.exists(file):
        os.unlink(file)
