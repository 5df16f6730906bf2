# The event log of a sandbox, and of all, lists its life in order and resumes after any event; lists are paged and filtered.
from t import *

mark = f"m{os.getpid()}"
with sandbox(name=f"one-{mark}", metadata={"k": mark}) as a, sandbox(metadata={"k": mark, "n": "2"}) as b:
    l = events_of(a)
    types = [e["type"] for e in l]
    check(types and l[0]["seq"] < l[-1]["seq"] or len(l) == 1, f"{l}")
    check(all(e["sandbox"] == a for e in l), "only its own")
    with Stream("GET", f"/v1/sandboxes/{a}/events", timeout=15) as s:
        it = iter(s)
        first = [next(it) for _ in l]
        equal([e.data["seq"] for e in first], [e["seq"] for e in l])
        equal([int(e.id) for e in first], [e["seq"] for e in l])
        api("POST", f"/v1/sandboxes/{a}/pause")
        live = next(it)
        check(live.data["seq"] > l[-1]["seq"], "a new one comes while the stream is open")
    again = Stream("GET", f"/v1/sandboxes/{a}/events", last_id=str(l[0]["seq"]), timeout=15)
    nxt = next(iter(again))
    again.close()
    check(nxt.data["seq"] > l[0]["seq"], "resumed after the first")
    equal(show(a)["state"], "paused")
    error("POST", f"/v1/sandboxes/{a}/exec", {"shell": "true"}, status=409, code="sandbox_not_running")
    equal([s["id"] for s in api("GET", f"/v1/sandboxes?state=paused&metadata.k={mark}").json["sandboxes"]], [a])
    start = time.monotonic()
    api("POST", f"/v1/sandboxes/{a}/wake")
    equal(show(a)["state"], "running")
    for _ in range(2):
        equal(api("POST", f"/v1/sandboxes/{a}/wake").json["state"], "running", "waking what runs")
    equal(out(a, "echo awake"), "awake")
    allev = api("GET", "/v1/events?after=0", headers={"Accept": "application/json"}).json["events"]
    check({a, b} <= {e["sandbox"] for e in allev} or len(allev) >= 100, "both in the log of all")
    page = api("GET", f"/v1/sandboxes?metadata.k={mark}&limit=1").json
    equal(len(page["sandboxes"]), 1)
    rest = api("GET", f"/v1/sandboxes?metadata.k={mark}&limit=1&cursor={page['next_cursor']}").json
    equal({page["sandboxes"][0]["id"], rest["sandboxes"][0]["id"]}, {a, b})
    equal(api("GET", f"/v1/sandboxes?metadata.k={mark}&metadata.n=2").json["sandboxes"][0]["id"], b)
    # A name is one sandbox's while that lives.
    equal(show(f"one-{mark}")["id"], a)
check(api("GET", f"/v1/sandboxes?metadata.k={mark}").json["sandboxes"] == [], "ended ones are not listed")
equal(len(api("GET", f"/v1/sandboxes?metadata.k={mark}&all=1").json["sandboxes"]), 2, "unless asked for")
