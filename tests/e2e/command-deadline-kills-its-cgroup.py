# A command's own timeout kills it with every process it started, and the sandbox goes on.
from t import *

with sandbox() as id:
    start = time.monotonic()
    ev = list(Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "setsid sleep 1234 & sleep 4321", "timeout": 1.5}))
    check(1 < time.monotonic() - start < 6, "at its timeout")
    equal(ev[-1].data["reason"], "deadline")
    equal(out(id, "pgrep -c -f 'sleep (1234|4321)'", code=1), "0", "processes left")
    # The group signal reaches what left the session, too.
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "setsid sleep 1235 & echo up; wait"}, status=201).json
    wait_for(lambda: sh(id, "pgrep -f 'sleep 123[5]'", code=None)["exit"]["code"] == 0, 5, "it runs")
    api("POST", f"/v1/sandboxes/{id}/processes/{a['pid']}/signal", {"signal": "KILL", "group": True}, status=204)
    wait_for(lambda: sh(id, "pgrep -f 'sleep 123[5]'", code=None)["exit"]["code"] == 1, 5, "all of it is gone")
