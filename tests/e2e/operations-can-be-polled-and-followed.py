# Prefer: respond-async answers 202 with an operation that can be polled and followed to its end; an Idempotency-Key makes one sandbox.
from t import *


def id_ok(text):
    return bool(re.fullmatch("i[a-z0-9]{20}", text or ""))


a = api("POST", "/v1/sandboxes", {"name": "async-one"}, status=202, headers={"Prefer": "respond-async"})
op = op_of(a)
equal(a.headers["Location"], f"/v1/operations/{op['id']}")
equal(op["kind"], "create")
ev = list(Stream("GET", f"/v1/operations/{op['id']}", timeout=60))
equal(ev[-1].event, "done", f"{ev}")
o = wait_op(op, 60)
equal((o["state"], o["error"]), ("done", None))
id = o["target"] if id_ok(o["target"]) else o["result"]["id"] if "id" in o["result"] else o["result"]["sandbox"]["id"]
try:
    equal(show(id)["state"], "running")
    check(any(x["id"] == op["id"] for x in api("GET", "/v1/operations").json["operations"]), "it is listed")
    ev = list(Stream("GET", f"/v1/operations/{op['id']}", timeout=60))
    equal(ev[-1].event, "done", "followed after its end")
finally:
    api("DELETE", f"/v1/sandboxes/{id}")
o = wait_op(op_of(api("POST", "/v1/sandboxes", {"template": "base", "env": {"A": "b"}}, status=202, headers={"Prefer": "respond-async"})), 60)
i2 = o["target"] if id_ok(o["target"]) else o["result"]["id"]
api("DELETE", f"/v1/sandboxes/{i2}")

# Every slow call takes it.
with sandbox() as id:
    def later(method, path, body, kind):
        a = api(method, f"/v1/sandboxes/{id}{path}", body, status=202, headers={"Prefer": "respond-async"})
        equal(a.headers["Preference-Applied"], "respond-async", path)
        op = op_of(a)
        equal((a.headers["Location"], op["kind"], op["target"]), (f"/v1/operations/{op['id']}", kind, id), path)
        done = wait_op(op, 60)
        equal((done["state"], done["error"]), ("done", None), f"{kind}: {done}")
        return done
    before = show(id)["deadline_at"]
    later("POST", "/timeout", {"timeout": 120}, "timeout")
    check(show(id)["deadline_at"] != before, "the deadline moved")
    later("POST", "/pause", None, "pause")
    equal(show(id)["state"], "paused")
    later("POST", "/wake", None, "wake")
    equal(show(id)["state"], "running")
    equal(out(id, "echo awake"), "awake")
    # Other preferences change nothing; ours is found among them.
    api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 120}, status=200, headers={"Prefer": "return=minimal"})
    wait_op(op_of(api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 120}, status=202, headers={"Prefer": "return=minimal, respond-async, wait=5"})), 20)
    # What is wrong is said at once, not by an operation.
    error("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": -5}, status=400, code="bad_request", headers={"Prefer": "respond-async"})
    later("DELETE", "", None, "kill")
    equal(show(id)["state"], "stopped")
    o = wait_op(op_of(api("POST", f"/v1/sandboxes/{id}/pause", None, status=202, headers={"Prefer": "respond-async"})), 20)
    equal((o["state"], o["error"]["code"]), ("failed", "sandbox_gone"), "an operation that cannot be done says why")

got = []
threads = [threading.Thread(target=lambda: got.append(api("POST", "/v1/sandboxes", {}, status=201, headers={"Idempotency-Key": "once-only-1"}).json["id"])) for _ in range(3)]
for x in threads:
    x.start()
for x in threads:
    x.join()
try:
    got.append(api("POST", "/v1/sandboxes", {}, status=201, headers={"Idempotency-Key": "once-only-1"}).json["id"])
    equal(len(set(got)), 1, f"{got}")
finally:
    for i in set(got):
        api("DELETE", f"/v1/sandboxes/{i}")
