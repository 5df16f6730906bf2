# spaced is killed in the middle of suspensions, wakes, checkpoints, branches and rollbacks, and its monitor with it now and then: what was acknowledged is there, and the sandbox runs, is paused, is suspended, or has failed with a reason.
# serial
# limit: 300
from t import *

d = Daemon.main()


def attempt(method, path, body=None):
    """A call that may be cut; True if it was acknowledged."""
    try:
        a = api(method, path, body, status=range(200, 600), timeout=60)
        return a if a.status < 300 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None


def during(delay, *call, and_monitor=None):
    got = []
    t = threading.Thread(target=lambda: got.append(attempt(*call)))
    t.start()
    time.sleep(delay)
    d.stop(signal.SIGKILL)
    if and_monitor:
        try:
            os.kill(and_monitor, signal.SIGKILL)
        except OSError:
            pass
    t.join()
    d.start()
    return got[0] if got else None


def awake(id):
    s = show(id)
    check(s["state"] in ("running", "paused", "suspended", "failed"), f"{id} is {s['state']}")
    if s["state"] == "failed":
        check(s["reason"], f"{id} failed without a reason")
        return False
    if s["state"] != "running":
        api("POST", f"/v1/sandboxes/{id}/wake", timeout=60)
    equal(out(id, "pgrep -c -f '[s]leep 4567'"), "1", f"its process, after {s['state']} {s['reason']}")
    return True


def fresh():
    id = api("POST", "/v1/sandboxes", {"timeout": "10m"}, status=201, timeout=60).json["id"]
    sh(id, "nohup sleep 4567 >/dev/null 2>&1 & echo kept > /home/user/f; sync")
    return id


def pid_of(id):
    try:
        return json.load(open(os.path.join(RUN["run"], "sandboxes", id, "monitor.json")))["qemu"]
    except (OSError, KeyError, ValueError, TypeError):
        return None


id = fresh()
nodes, made = [], []
try:
    for delay in (0.02, 0.1, 0.25, 0.6):
        for what in ("suspend", "wake", "checkpoints", "branch", "rollback"):
            body = None
            if what == "wake":
                api("POST", f"/v1/sandboxes/{id}/suspend", timeout=60)
            if what == "rollback":
                k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=60).json["id"]
                nodes.append(k)
                body = {"checkpoint": k}
            a = during(delay, "POST", f"/v1/sandboxes/{id}/{what}", body or {})
            s = show(id)
            if a and what == "suspend":
                equal(s["state"], "suspended", "an acknowledged suspension")
            if a and what in ("wake", "rollback"):
                equal(s["state"], "running", f"an acknowledged {what}")
            if a and what == "checkpoints":
                nodes.append(a.json["id"])
                equal(api("GET", f"/v1/checkpoints/{nodes[-1]}").json["id"], nodes[-1])
            if a and what == "branch":
                for b in a.json["sandboxes"]:
                    equal(show(b["id"])["state"], "running", "an acknowledged branch")
            check(awake(id), f"{what} after {delay} s: it failed: {show(id)['reason']}")
            equal(out(id, "cat /home/user/f"), "kept", f"{what} after {delay} s")
            # Siblings that were half made have failed with a reason; whole ones run.
            for b in api("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]:
                if b["state"] == "running" and b["id"] not in (id, *made):
                    made.append(b["id"])
                    equal(out(b["id"], "cat /home/user/f"), "kept", "a sibling")
    # Both at once: what was suspended is not touched; one that ran has failed and says why.
    during(0.15, "POST", f"/v1/sandboxes/{id}/suspend", {}, and_monitor=pid_of(id))
    s = show(id)
    check(s["state"] in ("suspended", "failed", "running"), f"{s['state']}")
    check(s["state"] != "failed" or s["reason"], "no reason")
finally:
    for i in [id, *made]:
        api("DELETE", f"/v1/sandboxes/{i}", status=(200, 404), timeout=60)
    for n in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]:
        if n["kind"] in ("checkpoint", "branch"):
            api("DELETE", f"/v1/checkpoints/{n['id']}", status=(204, 404, 409))
