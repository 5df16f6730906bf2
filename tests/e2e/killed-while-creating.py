# spaced is killed in the middle of twelve creates: each is afterwards there and running, or ended with a reason, and no process is left over.
# serial
from t import *

d = Daemon.main()
got = []


def make():
    try:
        got.append(api("POST", "/v1/sandboxes", {"timeout": 90}, status=201, timeout=20).json["id"])
    except Exception:
        pass


for delay in (0.15, 0.6):
    threads = [threading.Thread(target=make) for _ in range(6)]
    for x in threads:
        x.start()
    time.sleep(delay)
    d.stop(signal.SIGKILL)
    for x in threads:
        x.join()
    d.start()
listed = api("GET", "/v1/sandboxes?all=1&limit=1000").json["sandboxes"]
states = {s["id"]: s for s in listed}
for id in got:
    check(id in states, f"{id} was acknowledged and is gone")
    equal(states[id]["state"], "running", f"{id}, which was acknowledged")
for s in listed:
    check(s["state"] in ("running", "stopped", "failed"), f"{s['id']} is {s['state']}")
    check(s["state"] == "running" or s["reason"], f"{s['id']} ended without a reason")
for s in listed:
    if s["state"] == "running":
        equal(out(s["id"], "echo ok"), "ok")
        api("DELETE", f"/v1/sandboxes/{s['id']}")
