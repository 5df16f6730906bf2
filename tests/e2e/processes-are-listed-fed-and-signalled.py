# Processes of a sandbox are listed with what they are, take stdin in pieces, and are ended by name or number of a signal.
from t import *

with sandbox() as id:
    P = f"/v1/sandboxes/{id}/processes"
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"cmd": ["cat"], "stdin": True, "tag": "my-cat", "cwd": "/tmp"}, status=201).json
    p = [x for x in api("GET", P).json["processes"] if x["pid"] == a["pid"]][0]
    equal((p["cmd"], p["tag"], p["cwd"], p["running"], p["exit"], p["user"]), ("cat", "my-cat", "/tmp", True, None, "user"))
    for part in (b"one ", b"two\n", os.urandom(200000)):
        api("POST", f"{P}/{a['pid']}/stdin", part, status=204)
    api("POST", f"{P}/{a['pid']}/stdin?close=1", b"", status=204)
    o, _, end = collect(Stream("GET", f"{P}/{a['pid']}/output"))
    equal((o[:8], len(o), end.data["code"]), (b"one two\n", 200008, 0))
    j = error("POST", f"{P}/{a['pid']}/stdin", b"late", status=(404, 409))
    p = [x for x in api("GET", P).json["processes"] if x["pid"] == a["pid"]][0]
    equal((p["running"], p["exit"]["code"], p["stdout"]["end"]), (False, 0, 200008), "listed after its end")
    for sig, name, code in (("TERM", "SIGTERM", 143), (9, "SIGKILL", 137), ("SIGHUP", "SIGHUP", 129), (2, "SIGINT", 130)):
        a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"cmd": ["sleep", "100"]}, status=201).json
        api("POST", f"{P}/{a['pid']}/signal", {"signal": sig}, status=204)
        _, _, end = collect(Stream("GET", f"{P}/{a['pid']}/output"))
        equal((end.data["reason"], end.data["signal"], end.data["code"]), ("signaled", name, code))
    for bad in ({"signal": 0}, {"signal": 65}, {"signal": "NOPE"}, {}):
        error("POST", f"{P}/{a['pid']}/signal", bad, status=400, code="bad_request")
    # A tag that is taken names its process in the commands, too.
    r = cli("ps", id)
    check("PID" in r.out.upper(), r.out)
    # A command started without stdin sees its end at once.
    equal(api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "cat; echo end"}).json["stdout"], "end\n")
