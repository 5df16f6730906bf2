# A client that goes away does not end its command: not with a stream, not with ?wait=1.
from t import *

with sandbox() as id:
    s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "echo begun; sleep 1.5; echo done > /tmp/stream"})
    for e in s:
        if e.event == "stdout":
            break
    s.close()
    c = Connection(timeout=1)
    c.request("POST", f"/v1/sandboxes/{id}/exec?wait=1", json.dumps({"shell": "sleep 1.5; echo done > /tmp/wait"}))
    time.sleep(0.5)
    c.close()
    wait_for(lambda: sh(id, "cat /tmp/stream /tmp/wait", code=None)["stdout"] == "done\ndone\n", 10, "both commands ended by themselves")
