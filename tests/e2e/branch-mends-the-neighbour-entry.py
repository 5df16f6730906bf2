# What root inside made of the entry of the host's hardware address is undone in a branch; where it kept everything from coming out, the branch is refused, in bounded time, and the parent stays.
from t import *

ENTRY = "ip neigh show 100.64.0.1 dev eth0"
with sandbox(timeout=300) as id:
    want = out(id, ENTRY, user="root")
    check("02:00:00:00:00:01" in want and "PERMANENT" in want, want)
    # One that the kernel would ask about again, and of which a host that is asked too early says nothing.
    sh(id, "ip neigh replace 100.64.0.1 lladdr 02:00:00:00:00:01 nud stale dev eth0", user="root")
    check("PERMANENT" not in out(id, ENTRY, user="root"), "it is as it was")
    b = api("POST", f"/v1/sandboxes/{id}/branch", {}, status=201, timeout=60).json
    made = b["sandboxes"][0]["id"]
    try:
        equal(out(made, ENTRY, user="root"), want, "the host's entry in the branch")
    finally:
        api("DELETE", f"/v1/sandboxes/{made}")
    if os.environ.get("SPACE_TEST_LONG"):
        sh(id, "setsid sh -c 'sleep 1; ip neigh replace 100.64.0.1 lladdr 02:00:00:00:00:99 nud permanent dev eth0; sleep 1000' >/dev/null 2>&1 </dev/null &", user="root")
        wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=(200, 502)).status == 502, 20, "its answers go astray")
        t0 = time.monotonic()
        error("POST", f"/v1/sandboxes/{id}/branch", {}, status=502, code="agent_unreachable", timeout=120)
        check(time.monotonic() - t0 < 60, f"it took {time.monotonic() - t0:.0f} s")
        equal(show(id)["state"], "running", "the parent")
