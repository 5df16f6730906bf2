# At its deadline, or when it is idle, a sandbox with on_timeout "suspend" goes onto the disk, gives its memory back, and goes on when it is woken.
# limit: 180
from t import *


def nodes(id):
    return [k for k in api("GET", "/v1/checkpoints?kind=suspend").json["checkpoints"] if k["sandbox"] == id]


with sandbox(timeout=12, on_timeout="suspend") as id:
    sh(id, "echo kept > /dev/shm/in-memory; setsid sh -c 'i=0; while :; do echo $((i+=1)) > /tmp/count; sleep 0.1; done' > /dev/null 2>&1 < /dev/null &")
    check(show(id)["deadline_at"], "it has a deadline")
    s = wait_state(id, "suspended", 60)
    check(s["deadline_at"] is None, f"no deadline while it is suspended: {s}")
    k = nodes(id)
    equal(len(k), 1, "the node that it lies in")
    check(not os.path.exists(os.path.join(RUN["run"], "sandboxes", id)), "its machine is gone")
    check(not os.path.exists(os.path.join(RUN["state"], "pool/sandboxes", id)), "its disk is the node's")
    error("DELETE", f"/v1/checkpoints/{k[0]['id']}", status=409, code="busy")
    equal(api("POST", f"/v1/sandboxes/{id}/suspend", status=200).json["state"], "suspended", "again")
    api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 100}, status=200)
    s = api("POST", f"/v1/sandboxes/{id}/wake", status=200, timeout=60).json
    equal(s["state"], "running", "woken")
    check(s["deadline_at"], "a new deadline")
    equal(out(id, "cat /dev/shm/in-memory"), "kept", "its memory")
    n = int(out(id, "cat /tmp/count"))
    check(n > 0, "it counted")
    wait_for(lambda: int(out(id, "cat /tmp/count") or 0) > n, 10, "it counts on")
    wait_for(lambda: not nodes(id), 10, "the node is gone")
    types = [e["type"] for e in events_of(id)]
    at = types.index("suspending")
    equal(types[at:at + 5], ["suspending", "suspended", "timeout", "waking", "running"], "events")

with sandbox(timeout=300, idle_timeout=2, on_timeout="suspend") as id:
    wait_state(id, "suspended", 60)
    api("DELETE", f"/v1/sandboxes/{id}", status=200)
    wait_for(lambda: not nodes(id), 10, "the node went with it")
