# A guest whose network is down cannot be asked to stand still: its checkpoint is taken all the same, in bounded time, and it runs on.
from t import *

with sandbox(timeout=300) as id:
    sh(id, "echo before > /tmp/mark; sync")
    sh(id, "setsid sh -c 'sleep 1; ip link set eth0 down; sleep 20; ip link set eth0 up; sleep 1000' > /dev/null 2>&1 < /dev/null &", user="root")
    wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=(200, 502)).status == 502, 20, "eth0 is down")
    t0 = time.monotonic()
    k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "no-network"}, status=201, timeout=60).json
    took = time.monotonic() - t0
    try:
        check(took < 15, f"it took {took:.1f} s")
        equal(show(id)["state"], "running", "its state")
        wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "cat /tmp/mark"}, status=range(200, 600)).status == 200, 60,
                 "it is back when its network is")
        equal(out(id, "cat /tmp/mark"), "before", "what it had")
    finally:
        api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
