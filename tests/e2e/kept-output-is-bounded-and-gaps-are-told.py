# Output that fell out of the kept megabyte is reported as a gap with its exact bounds.
from t import *

with sandbox() as id:
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"}, status=201).json
    path = f"/v1/sandboxes/{id}/processes/{a['pid']}/output"
    wait_for(lambda: not [p for p in api("GET", f"/v1/sandboxes/{id}/processes").json["processes"] if p["pid"] == a["pid"] and p["running"]], 30, "it ends")
    ev = list(Stream("GET", path + "?offset=0"))
    gap = [e for e in ev if e.event == "gap"]
    equal(len(gap), 1, f"gaps in {[e.event for e in ev][:10]}")
    g = gap[0].data
    equal((g["stream"], g["from"]), ("stdout", 0))
    total = 3000000 + 1 + 5
    got = b"".join(e.bytes for e in ev if e.event == "stdout")
    equal(g["to"] + len(got), total, "gap and rest make the whole")
    check(900_000 <= len(got) <= 1_100_000, f"{len(got)} bytes were kept")
    check(got.endswith(b"\nlast\n"), "the end is there")
    equal(ev[-1].event, "exit")
