# exec?wait=1 answers at most 1 MiB a stream, says that it was cut, and where to read on.
from t import *

with sandbox() as id:
    a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "head -c 1500000 /dev/zero | tr '\\0' y; echo small >&2"}).json
    equal(a["exit"]["code"], 0)
    check(len(a["stdout"]) <= 1 << 20, f"{len(a['stdout'])} bytes")
    equal((a["truncated"]["stdout"], a["truncated"]["stderr"]), (True, False))
    equal(a["next"]["stdout"], len(a["stdout"]))
    equal(a["stderr"], "small\n")
    rest, _, end = collect(Stream("GET", f"/v1/sandboxes/{id}/processes/{a['pid']}/output?stdout={a['next']['stdout']}&stderr={a['next']['stderr']}"))
    equal(len(a["stdout"]) + len(rest), 1500000, "what was answered and the rest")
    a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"cmd": ["cat"], "input": "typed\n"}).json
    equal(a["stdout"], "typed\n")
    a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"cmd": ["printf", r"\377"]}).json
    equal(base64.b64decode(a["stdout_base64"]), b"\xff")
