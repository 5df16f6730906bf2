# A sandbox ends at its hard deadline whatever runs in it, and says so.
from t import *

start = time.monotonic()
with sandbox(timeout=3) as id:
    s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "while :; do sleep 0.2; echo x; done"})
    ev = list(s)
    took = time.monotonic() - start
    check(2 < took < 9, f"it ended after {took:.1f} s")
    check(ev[-1].event in ("exit", "error"), f"the stream's last word: {ev[-1]}")
    if ev[-1].event == "error":
        check(ev[-1].data["code"] == "sandbox_gone" and ev[-1].data["remedy"], f"{ev[-1]}")
    j = wait_state(id, "stopped")
    equal(j["reason"], "deadline")
    check(j["ended_at"], "ended_at")
    error("POST", f"/v1/sandboxes/{id}/exec", {"shell": "true"}, status=410, code="sandbox_gone")

with sandbox(timeout=3) as id:
    api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 60})
    time.sleep(3.5)
    equal(show(id)["state"], "running", "after its deadline was moved")
    api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 1})
    equal(wait_state(id, "stopped")["reason"], "deadline")
