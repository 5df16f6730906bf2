# Checkpoints, snapshots, branches and rollbacks through HTTP: answers, lists and their filters, labels, repeated calls, and every error there is.
# limit: 300
from t import *


def made(id, what="checkpoints", body=None, **kw):
    return api("POST", f"/v1/sandboxes/{id}/{what}", body, status=201, timeout=120, **kw).json


def pages(path, noun, limit):
    got, cursor = [], ""
    while cursor is not None:
        j = api("GET", f"{path}{'&' if '?' in path else '?'}limit={limit}{cursor and '&cursor=' + cursor}").json
        check(len(j[noun]) <= limit, f"{path}: {len(j[noun])} of {limit}")
        got += j[noun]
        cursor = j["next_cursor"]
    equal(len({k["id"] for k in got}), len(got), f"{path}: each once")
    return got


@contextlib.contextmanager
def nothing_kept():
    """Whatever nodes the test has made go with it."""
    try:
        yield
    finally:
        for k in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]:
            if k["label"] in ("before", "disk", "fork here") or k["sandbox"] == id:
                api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)


id = None
with nothing_kept(), sandbox(timeout=280, name="tree", metadata={"team": "a"}) as id:
    sh(id, "echo one > /tmp/f; (while :; do sleep 1; done) >/dev/null 2>&1 & echo $! > /tmp/pid")
    first = made(id, body={"label": "before"})
    equal((first["kind"], first["label"], first["sandbox"], first["template"]), ("checkpoint", "before", id, "base"))
    check(first["parent"] and first["memory"] == show(id)["memory"] and first["paused_ms"] > 0 and first["created_at"], f"{first}")
    equal(set(first["digests"]), {"image", "kernel"})
    equal(show(id)["checkpoint"], first["id"])
    equal(show(id)["state"], "running")

    # The same key, the same node; another key, another one, whose parent is the first.
    second = made(id, headers={"Idempotency-Key": "k1"})
    equal(made(id, headers={"Idempotency-Key": "k1"})["id"], second["id"], "the same key")
    equal(second["parent"], first["id"])
    snap = made(id, "snapshots", {"label": "disk"})
    equal((snap["kind"], snap["memory"]), ("snapshot", 0))
    check(out(id, "kill -0 $(cat /tmp/pid) && echo alive") == "alive", "user processes go on")
    op = wait_op(op_of(api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=202, headers={"Prefer": "respond-async"})))
    equal((op["state"], op["kind"], op["target"]), ("done", "checkpoint", id))
    third = op["result"]["checkpoint"]

    # Lists: newest first, both kinds, filters, pages.
    mine = [third["id"], snap["id"], second["id"], first["id"]]
    for limit in (1, 3, 100):
        equal([k["id"] for k in pages(f"/v1/sandboxes/{id}/checkpoints", "checkpoints", limit)], mine)
    equal([k["id"] for k in pages(f"/v1/checkpoints?sandbox={id}", "checkpoints", 2)], mine)
    equal([k["id"] for k in pages(f"/v1/checkpoints?sandbox=tree&kind=checkpoint", "checkpoints", 2)], [mine[0], mine[2], mine[3]])
    equal([k["id"] for k in pages(f"/v1/snapshots?sandbox={id}", "checkpoints", 2)], [snap["id"]])
    equal([k["kind"] for k in pages("/v1/checkpoints?kind=template", "checkpoints", 2) if k["sandbox"]], [])
    error("GET", "/v1/checkpoints?kind=nothing", status=400, code="bad_request")
    error("GET", "/v1/checkpoints?sandbox=nobody-of-this-name", status=404, code="sandbox_not_found")
    equal(api("GET", "/v1/checkpoints?sandbox=i00000000000000000000").json["checkpoints"], [])
    error("GET", "/v1/checkpoints?cursor=nonsense", status=400, code="bad_cursor")
    error("GET", "/v1/snapshots?kind=checkpoint", status=400, code="bad_request")
    nodes = pages("/v1/tree", "nodes", 2)
    seen = set()
    for n in nodes:
        check(n["parent"] is None or n["parent"] in seen or n["parent"] not in {m["id"] for m in nodes}, f"{n['id']} comes before its parent")
        seen.add(n["id"])
    equal([(s["id"], s["name"], s["state"]) for n in nodes if n["id"] == third["id"] for s in n["sandboxes"]], [(id, "tree", "running")])

    # One: by id, by label.
    equal(api("GET", f"/v1/checkpoints/{first['id']}").json["label"], "before")
    equal(api("GET", "/v1/checkpoints/before").json["id"], first["id"])
    error("GET", "/v1/checkpoints/n00000000000000000000", status=404, code="checkpoint_not_found")
    error("DELETE", "/v1/checkpoints/nobody", status=404, code="checkpoint_not_found")
    for body, code in (({"label": ""}, "bad_request"), ({"label": "a\nb"}, "bad_request"), ({"label": first["id"]}, "bad_request"),
                       ({"label": "x" * 128}, "bad_request"), ({"name": "x"}, "bad_request"), ("[1]", "bad_json"), ("{", "bad_json")):
        error("POST", f"/v1/sandboxes/{id}/checkpoints", body, status=400, code=code)
    error("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=400, code="bad_request", headers={"Idempotency-Key": "x" * 129})
    error("POST", "/v1/sandboxes/i00000000000000000000/checkpoints", {}, status=404, code="sandbox_not_found")
    error("PUT", f"/v1/sandboxes/{id}/checkpoints", {}, status=405, code="method_not_allowed")

    # Back: the same id, the earlier state, the process from before.
    sh(id, "echo two > /tmp/f; kill $(cat /tmp/pid)")
    error("POST", f"/v1/sandboxes/{id}/rollback", {}, status=400, code="bad_request")
    error("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "nobody"}, status=404, code="checkpoint_not_found")
    j = api("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "before"}, timeout=120).json
    equal((j["id"], j["state"], j["checkpoint"]), (id, "running", first["id"]))
    equal(out(id, "cat /tmp/f; kill -0 $(cat /tmp/pid) && echo alive"), "one\nalive")

    # Branch, and by its other name: siblings with what they are given, the parent untouched.
    b = made(id, "branch", {"count": 2, "label": "fork here", "metadata": {"n": "1"}, "timeout": 200})
    siblings = [s["id"] for s in b["sandboxes"]]
    try:
        equal((len(siblings), b["failed"], b["checkpoint"]["kind"], b["checkpoint"]["label"]), (2, [], "checkpoint", "fork here"), "one with a label is a checkpoint")
        for s in b["sandboxes"]:
            equal((s["state"], s["metadata"], s["timeout"], s["node"]), ("running", {"team": "a", "n": "1"}, 200, b["checkpoint"]["id"]))
            equal(out(s["id"], "cat /tmp/f; kill -0 $(cat /tmp/pid) && echo alive"), "one\nalive")
        again = made(id, "fork")
        siblings += [s["id"] for s in again["sandboxes"]]
        equal(len(again["sandboxes"]), 1)
        error("POST", f"/v1/sandboxes/{id}/branch", {"count": 65}, status=400, code="bad_request")
        error("POST", f"/v1/sandboxes/{id}/branch", {"count": 1, "env": {}}, status=400, code="bad_request")
        equal(again["checkpoint"]["kind"], "branch")
        equal([k["id"] for k in pages("/v1/checkpoints?kind=branch&sandbox=" + id, "checkpoints", 10)], [again["checkpoint"]["id"]])
    finally:
        for s in siblings:
            api("DELETE", f"/v1/sandboxes/{s}")

    # Creates from a node.
    with sandbox(checkpoint="before", timeout=100) as other:
        check(other != id, "another id")
        equal(out(other, "cat /tmp/f; kill -0 $(cat /tmp/pid) && echo alive"), "one\nalive")
    with sandbox(snapshot=snap["id"], timeout=100) as booted:
        equal(out(booted, "cat /tmp/f; kill -0 $(cat /tmp/pid) 2>/dev/null || echo booted"), "one\nbooted")
    error("POST", "/v1/sandboxes", {"checkpoint": "nobody"}, status=404, code="checkpoint_not_found")
    error("POST", "/v1/sandboxes", {"checkpoint": "before", "snapshot": "disk"}, status=400, code="bad_request")
    error("POST", "/v1/sandboxes", {"checkpoint": "before", "template": "base"}, status=400, code="bad_request")

    # What is taken away is gone; the others are whole.
    api("DELETE", f"/v1/checkpoints/{second['id']}", status=204)
    error("GET", f"/v1/checkpoints/{second['id']}", status=404, code="checkpoint_not_found")
    error("DELETE", f"/v1/checkpoints/{second['id']}", status=404, code="checkpoint_not_found")
    with sandbox(checkpoint=third["id"], timeout=100) as other:
        equal(out(other, "cat /tmp/f"), "one")

wait_for(lambda: api("GET", "/v1/checkpoints?kind=branch&sandbox=" + id).json["checkpoints"] == [], 20, "what a branch was taken from goes with who needs it")
error("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=410, code="sandbox_gone")
error("POST", f"/v1/sandboxes/{id}/branch", {}, status=410, code="sandbox_gone")
error("POST", f"/v1/sandboxes/{id}/suspend", status=410, code="sandbox_gone")
error("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "before"}, status=(404, 410), code=("sandbox_gone", "checkpoint_not_found"))
