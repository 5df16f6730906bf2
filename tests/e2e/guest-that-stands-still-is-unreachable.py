# A guest that never answers (its monitor is stopped) gives agent_unreachable in time, and can be killed.
from t import *

with sandbox() as id:
    pid = monitor_pid(id)
    check(pid, "its monitor is found")
    os.kill(pid, signal.SIGSTOP)
    try:
        start = time.monotonic()
        error("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=502, code="agent_unreachable", timeout=30)
        check(time.monotonic() - start < 12, f"after {time.monotonic() - start:.1f} s")
        equal(api("GET", "/v1/sandboxes", timeout=5).status, 200, "others are served")
    finally:
        start = time.monotonic()
        api("DELETE", f"/v1/sandboxes/{id}")
        check(time.monotonic() - start < 15, "kill")
    check(not alive(pid), "the monitor is gone")
