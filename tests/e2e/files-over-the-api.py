# Files go in and out byte for byte, with ranges, modes, owners, listings, moves and removals.
from t import *
import hashlib

with sandbox() as id:
    data = bytes(range(256)) * 5000
    a = put(id, "/home/user/a b/ü%.bin", data, "?mode=0750").json
    equal((a["size"], a["sha256"]), (len(data), hashlib.sha256(data).hexdigest()))
    r = get(id, "/home/user/a b/ü%.bin")
    equal(r.body, data)
    equal(int(r.headers["X-Space-Mode"], 8) & 0o777, 0o750)
    equal(r.headers["X-Space-Owner"].split(":")[0], "user")
    r = get(id, "/home/user/a b/ü%.bin", status=206, headers={"Range": "bytes=1000-1999"})
    equal((r.body, r.headers["Content-Range"]), (data[1000:2000], f"bytes 1000-1999/{len(data)}"))
    equal(get(id, "/home/user/a b/ü%.bin", status=206, headers={"Range": "bytes=-7"}).body, data[-7:])
    get(id, "/home/user/a b/ü%.bin", status=416, headers={"Range": f"bytes={len(data)}-"})
    e = get(id, "/home/user/a b/ü%.bin", "?stat=1").json
    equal((e["type"], e["size"], e["mode"], e["owner"], e["path"]), ("file", len(data), "0750", "user", "/home/user/a b/ü%.bin"))
    put(id, "/etc/by-root", b"r", "?user=root")
    equal(get(id, "/etc/by-root", "?stat=1").json["owner"], "root")
    put(id, "/home/user/d/e", None, "?dir=1")
    sh(id, "ln -s /etc/hostname d/l; mkfifo d/p; echo x > d/e/x")
    l = {x["name"]: x for x in get(id, "/home/user/d", "?list=1").json["entries"]}
    equal({k: v["type"] for k, v in l.items()}, {"e": "directory", "l": "symlink", "p": "other"})
    equal(l["l"]["target"], "/etc/hostname")
    equal({x["path"] for x in get(id, "/home/user/d", "?list=1&depth=2").json["entries"]}, {f"/home/user/d/{n}" for n in ("e", "l", "p", "e/x")})
    m = api("POST", f"/v1/sandboxes/{id}/files/home/user/d/e/x?move=/home/user/moved").json
    equal(m["path"], "/home/user/moved")
    get(id, "/home/user/d/e/x", status=404)
    equal(get(id, "/home/user/moved").body, b"x\n")
    for _ in range(2):
        api("DELETE", f"/v1/sandboxes/{id}/files/home/user/d", status=204)
    get(id, "/home/user/d", "?stat=1", status=404)
    put(id, "/home/user/empty", b"")
    equal(get(id, "/home/user/empty").body, b"")
    # Chunked, without a length.
    def parts():
        for i in range(50):
            yield bytes([i]) * 20000
    c = Connection()
    c.request("PUT", f"/v1/sandboxes/{id}/files/home/user/chunked", parts(), {"Transfer-Encoding": "chunked"}, encode_chunked=True)
    equal(c.getresponse().status, 201)
    c.close()
    equal(get(id, "/home/user/chunked").body, b"".join(bytes([i]) * 20000 for i in range(50)))
    error("GET", f"/v1/sandboxes/{id}/files/home/user", status=(400, 409))
    j = error("PUT", f"/v1/sandboxes/{id}/files/etc", b"x", status=(400, 409))
    equal(get(id, "/etc/hostname").body.decode().strip(), out(id, "hostname"))
