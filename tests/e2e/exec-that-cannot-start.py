# A program that does not exist ends with 127 as under a shell; a user or directory that does not exist is an error, not a command that ran.
from t import *

with sandbox() as id:
    p = f"/v1/sandboxes/{id}/exec?wait=1"
    a = api("POST", p, {"cmd": ["/no/such/program"]}).json
    equal(a["exit"], {"code": 127, "signal": None, "reason": "exited"})
    check("/no/such/program" in a["stderr"], a["stderr"])
    for body in ({"cmd": ["true"], "user": "nobody-here"}, {"cmd": ["true"], "cwd": "/no/such"}):
        j = error("POST", p, body, status=(400, 404))
        check(j["code"] in ("file_not_found", "bad_request", "bad_path"), f"{body}: {j}")
    r = cli("exec", id, "--", "/no/such/program", code=127)
    check("no/such/program" in r.err, r.err)
    equal(sh(id, "exit 42", code=42)["exit"]["reason"], "exited")
