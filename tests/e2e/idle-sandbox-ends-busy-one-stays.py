# The idle deadline counts from the last activity: a running process, an open stream and traffic count as activity.
from t import *

ids = {}
try:
    def make(what):
        ids[what] = api("POST", "/v1/sandboxes", {"idle_timeout": 5, "timeout": 90}, status=201).json["id"]
    make("process")
    api("POST", f"/v1/sandboxes/{ids['process']}/exec?detach=1", {"shell": "sleep 60"}, status=201)
    make("stream")
    s = Stream("GET", f"/v1/sandboxes/{ids['stream']}/watch?path=/tmp")
    make("idle")
    make("traffic")
    end = time.monotonic() + 10
    while time.monotonic() < end:
        get(ids["traffic"], "/etc/hostname")
        time.sleep(0.5)
    j = show(ids["idle"])
    equal((j["state"], j["reason"]), ("stopped", "idle"))
    for what in ("process", "stream", "traffic"):
        equal(show(ids[what])["state"], "running", what)
    s.close()
    # Once the stream is gone, time runs.
    equal(wait_state(ids["stream"], "stopped", 15)["reason"], "idle")
finally:
    for i in ids.values():
        api("DELETE", f"/v1/sandboxes/{i}")
