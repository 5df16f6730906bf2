# A client that is cut off again and again and comes back with Last-Event-ID sees every byte once.
from t import *

N = 600
with sandbox() as id:
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1",
            {"shell": f"for i in $(seq {N}); do echo out $i; echo err $i >&2; [ $((i % 20)) = 0 ] && sleep 0.05; done; true"}, status=201).json
    path = f"/v1/sandboxes/{id}/processes/{a['pid']}/output"
    o = e = b""
    last, cuts, end = None, 0, None
    while end is None:
        s = Stream("GET", path, last_id=last)
        seen = 0
        for ev in s:
            if ev.event == "stdout":
                equal(ev.data["offset"], len(o), "offset of stdout")
                o += ev.bytes
            elif ev.event == "stderr":
                equal(ev.data["offset"], len(e), "offset of stderr")
                e += ev.bytes
            elif ev.event == "exit":
                end = ev
                break
            check(ev.event != "gap", f"a gap: {ev}")
            last = ev.id or last
            seen += 1
            if seen > 12:
                break
        s.close()
        cuts += 1
        check(cuts < 2000, "it never ends")
    equal(o, b"".join(b"out %d\n" % i for i in range(1, N + 1)), "stdout")
    equal(e, b"".join(b"err %d\n" % i for i in range(1, N + 1)), "stderr")
    check(cuts > 3, f"only {cuts} connections")
    equal(end.data["code"], 0)
    # From an offset, and the end again for whoever comes late.
    o2, _, end = collect(Stream("GET", path + f"?stdout={len(o) - 8}&stderr={len(e)}"))
    equal(o2, o[-8:])
    equal(end.data["code"], 0)
