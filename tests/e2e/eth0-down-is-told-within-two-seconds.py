# When root inside takes eth0 down, exec answers agent_unreachable within two seconds, and kill works.
from t import *

with sandbox() as id:
    equal(out(id, "echo ok"), "ok")
    s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "echo before; sleep 0.3; ip link set eth0 down; sleep 100", "user": "root"})
    for e in s:
        if e.event == "stdout":
            break
    # On a busy host the guest takes a while to get there.
    wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=(200, 502)).status == 502, 20, "eth0 is down")
    for _ in range(2):
        start = time.monotonic()
        error("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "echo never"}, status=502, code="agent_unreachable", timeout=20)
        check(time.monotonic() - start < 2.0, f"it took {time.monotonic() - start:.2f} s")
    start = time.monotonic()
    error("GET", f"/v1/sandboxes/{id}/files/etc/hostname", status=502, code="agent_unreachable")
    check(time.monotonic() - start < 2.0, f"files as well: {time.monotonic() - start:.2f} s")
    equal(show(id)["state"], "running")
    start = time.monotonic()
    api("DELETE", f"/v1/sandboxes/{id}")
    check(time.monotonic() - start < 10, "kill is quick")
    equal(show(id)["state"], "stopped")
    s.close()
