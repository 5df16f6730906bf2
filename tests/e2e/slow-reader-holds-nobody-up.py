# A client that reads nothing slows its own command only; others are served, spaced's memory stays, and the command's end is not lost.
from t import *

with sandbox() as id:
    d = Daemon.main()
    s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "head -c 30000000 /dev/zero | tr '\\0' z; echo done >&2"})
    time.sleep(2)
    before = rss(d.pid)
    start = time.monotonic()
    equal(out(id, "echo quick"), "quick")
    check(time.monotonic() - start < 8, "another command of the same sandbox")
    time.sleep(1)
    check(rss(d.pid) - before < 3 << 20, f"spaced grew by {rss(d.pid) - before}")
    o, e, end = collect(s)
    equal((len(o), e, end.data["code"]), (30000000, b"done\n", 0))
    s.close()
