# Output reaches the client while the command runs, in order, with offsets, stdout and stderr apart, binary as base64.
from t import *

with sandbox() as id:
    with Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "for i in 1 2 3 4; do echo $i; sleep 0.5; done; echo end >&2"}) as s:
        ev = list(s)
    equal(ev[0].event, "start")
    check(ev[0].data["pid"] > 1, "a pid")
    outs = [e for e in ev if e.event == "stdout"]
    equal(b"".join(e.bytes for e in outs), b"1\n2\n3\n4\n")
    check(outs[-1].at - outs[0].at > 1.0, f"first and last came {outs[-1].at - outs[0].at:.2f} s apart")
    at = 0
    for e in outs:
        equal(e.data["offset"], at, "offset")
        at += len(e.bytes)
        equal(e.id.split("-")[0], str(at), "id counts what was delivered")
    equal(b"".join(e.bytes for e in ev if e.event == "stderr"), b"end\n")
    equal(ev[-1].event, "exit")
    equal(ev[-1].data, {"code": 0, "signal": None, "reason": "exited"})

    ev = list(Stream("POST", f"/v1/sandboxes/{id}/exec", {"cmd": ["printf", r"\377\000\376\n"]}))
    chunk = [e for e in ev if e.event == "stdout"][0]
    check("base64" in chunk.data, "bytes that are no UTF-8 come as base64")
    equal(chunk.bytes, b"\xff\x00\xfe\n")

    ev = list(Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "kill -KILL $$"}))
    equal(ev[-1].data, {"code": 137, "signal": "SIGKILL", "reason": "signaled"})
    a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "echo $A-$B; pwd; id -un", "env": {"A": "x", "B": "y z"}, "cwd": "/tmp", "user": "root"})
    equal(a["stdout"], "x-y z\n/tmp\nroot\n")
    equal(out(id, "id -un; pwd"), "user\n/home/user", "the default user and directory")
