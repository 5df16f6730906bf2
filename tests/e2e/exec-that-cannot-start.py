# A program, user or directory that does not exist is an error with a code, not a command that ran.
from t import *

with sandbox() as id:
    p = f"/v1/sandboxes/{id}/exec?wait=1"
    j = error("POST", p, {"cmd": ["/no/such/program"]}, status=404, code="file_not_found")
    check("/no/such/program" in j["message"], j["message"])
    for body in ({"cmd": ["true"], "user": "nobody-here"}, {"cmd": ["true"], "cwd": "/no/such"}):
        j = error("POST", p, body, status=(400, 404))
        check(j["code"] in ("file_not_found", "bad_request", "bad_path"), f"{body}: {j}")
    r = cli("exec", id, "--", "/no/such/program", code=None)
    check(r.code in (1, 126, 127), f"{r.code}")
    check("no/such/program" in r.err, r.err)
    equal(sh(id, "exit 42", code=42)["exit"]["reason"], "exited")
