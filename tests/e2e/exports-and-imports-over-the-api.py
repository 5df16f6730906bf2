# Exports and imports are streams: a slow client holds nobody up and no memory, a cut or damaged stream is refused and leaves nothing, only so many go on at once; usage, prune and fsck.
# limit: 240
from t import *


def rss():
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{Daemon.main().pid}/status").read())[1]) // 1024


def export(k):
    c = Connection(timeout=60)
    c.request("GET", f"/v1/checkpoints/{k}/export")
    r = c.getresponse()
    return c, r


def imported(data, status=201, **kw):
    return api("POST", "/v1/checkpoints/import", data, status=status, timeout=120, **kw)


made = []
try:
    with sandbox(timeout=230) as id:
        sh(id, "head -c 24M /dev/urandom > /home/user/big; sha256sum /home/user/big > /home/user/sum; (while :; do sleep 1; done) >/dev/null 2>&1 & echo $! > /home/user/pid")
        k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "to export"}, status=201, timeout=120).json
        made.append(k["id"])
        wanted = out(id, "cat /home/user/sum")

    # A reader that takes nothing for a while: the daemon keeps no stream, and serves others.
    before = rss()
    slow = [export("to%20export") for _ in range(4)]
    for c, r in slow:
        equal((r.status, r.headers["Content-Type"]), (200, "application/vnd.space.checkpoint"))
    time.sleep(2)
    check(rss() - before < 24, f"spaced grew from {before} to {rss()} MiB")
    e = error("GET", f"/v1/checkpoints/{k['id']}/export", status=429, code="rate_limited")
    with sandbox(timeout=60) as other:
        equal(out(other, "echo hi"), "hi")
    for c, r in slow[1:]:  # these leave, and their place is free
        r.close()
        c.sock and c.sock.close()
        c.close()
    data = slow[0][1].read()
    slow[0][0].close()
    check(len(data) > 24 << 20, f"{len(data)} bytes")
    equal(wait_for(lambda: (lambda c, r: (r.status == 200 and r.read()) or None)(*export(k["id"])), 20, "a place is free") == data, True, "the same stream again")
    error("GET", "/v1/checkpoints/nobody/export", status=404, code="checkpoint_not_found")

    # In: whole, in chunks; and it works.
    j = imported(data).json
    made.append(j["id"])
    equal((j["parent"], j["kind"]), (None, "checkpoint"))
    check(j["id"] != k["id"], "a new id")
    api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
    with sandbox(checkpoint=j["id"], timeout=100) as id:
        equal(out(id, "sha256sum /home/user/big; kill -0 $(cat /home/user/pid) && echo alive"), wanted + "\nalive")
    c = Connection(timeout=120)
    c.request("POST", "/v1/checkpoints/import", iter(data[i:i + 100000] for i in range(0, len(data), 100000)), encode_chunked=True,
              headers={"Transfer-Encoding": "chunked"})
    r = c.getresponse()
    j = json.loads(r.read())
    equal(r.status, 201, j)
    made.append(j["id"])
    c.close()

    # What is not whole is refused, and leaves nothing.
    ours = lambda: [n["id"] for n in api("GET", "/v1/tree?limit=1000").json["nodes"] if n["label"] == "to export"]
    known = ours()
    for what, bad in (("empty", b""), ("text", b"hello" * 1000), ("cut", data[:len(data) // 2]), ("without its last byte", data[:-1]),
                      ("damaged", data[:len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1:])):
        c = Connection(timeout=60)
        try:
            c.request("POST", "/v1/checkpoints/import", bad)
            r = c.getresponse()
            j = json.loads(r.read())
            check(400 <= r.status < 600 and j["code"] != "internal" and j["remedy"], f"{what}: {r.status} {j}")
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused before it was all there
        finally:
            c.close()
    c = Connection(timeout=60)
    c.connect()
    c.sock.sendall(b"POST /v1/checkpoints/import HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data[:1 << 20])
    c.close()
    wait_for(lambda: api("GET", "/v1/checkpoints/to%20export/export", status=(200, 404, 429)).status != 429, 20, "the cut one has ended")
    equal(ours(), known, "nothing is left of what was refused")

    # What takes the room, what is damaged, what is old.
    u = api("GET", "/v1/usage").json
    check(u["pool"]["total"] > u["pool"]["free"] > 0 and u["pool"]["clone"], f"{u}")
    check(any(r["count"] >= 2 and r["bytes"] > 0 for r in u["rows"] if r["what"] == "checkpoints"), f"{u}")
    o = wait_op(op_of(api("POST", "/v1/fsck", status=202)), 120)
    check(o["state"] == "done" and o["result"]["checked"] >= 2 and o["result"]["damaged"] == [], f"{o}")
    error("POST", "/v1/prune", {}, status=400, code="bad_request")
    error("POST", "/v1/prune", {"older_than": 0, "kinds": ["template"]}, status=400, code="bad_request")
    equal(api("POST", "/v1/prune", {"older_than": "1h"}).json["removed"], [], "nothing is that old")
    p = api("POST", "/v1/prune", {"older_than": 0, "kinds": ["checkpoint"], "dry_run": True}).json
    check(set(made[1:]) <= set(p["removed"]) and p["bytes"] > 0, f"{p}")
    equal(api("GET", f"/v1/checkpoints/{made[1]}").json["id"], made[1], "a dry run removes nothing")
finally:
    for k in made:
        api("DELETE", f"/v1/checkpoints/{k}", status=(204, 404))
