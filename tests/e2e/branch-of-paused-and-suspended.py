# Paused and suspended sandboxes are branched as well, and stay as they are; stale connections to the host are reset in a branch.
# limit: 240
from t import *


def branch(id, **body):
    a = api("POST", f"/v1/sandboxes/{id}/branch", body, status=201, timeout=120).json
    equal(a["failed"], [])
    return a


with sandbox(timeout="10m") as id:
    # A server with a client from outside, over the port's way: the branch has neither.
    put(id, "/home/user/server.py", """
import socket, os
l = socket.create_server(("0.0.0.0", 8099))
open("/home/user/up", "w").close()
while True:
    c, _ = l.accept()
    try:
        c.recv(4096)
        c.send(b"HTTP/1.1 101 Switching Protocols\\r\\nConnection: upgrade\\r\\nUpgrade: echo\\r\\n\\r\\n")
        while True:
            d = c.recv(100)
            if not d: break
            c.send(d)
        open("/home/user/log", "a").write("end\\n")
    except OSError as e:
        open("/home/user/log", "a").write("reset %s\\n" % e.errno)
""")
    sh(id, "nohup python3 /home/user/server.py >/dev/null 2>&1 & for i in $(seq 100); do test -e /home/user/up && exit; sleep 0.1; done; exit 1")
    c = Connection(SOCKET, 20)
    c.connect()
    c.sock.sendall(f"GET /v1/sandboxes/{id}/ports/8099/ HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n".encode())
    answer = c.sock.recv(4096)
    check(answer.startswith(b"HTTP/1.1 101 "), answer)
    wait_for(lambda: out(id, "grep -c '^ *[0-9]*: 02004064:1FA3 .* 01 ' /proc/net/tcp || true") != "0", 5, "a connection from the host")
    made = []
    try:
        b = branch(id)
        made += [s["id"] for s in b["sandboxes"]]
        child = made[0]
        wait_for(lambda: "reset 104" in out(child, "cat /home/user/log 2>/dev/null || true"), 5, "ECONNRESET in the branch")
        equal(out(id, "cat /home/user/log 2>/dev/null || true"), "", "the parent's connection lives on")
        c.sock.sendall(b"still?")
        equal(c.sock.recv(100), b"still?", "the parent's connection")
        c.sock.close()
        api("POST", f"/v1/sandboxes/{id}/pause")
        b = branch(id, count=2)
        made += [s["id"] for s in b["sandboxes"]]
        equal(show(id)["state"], "paused", "the parent")
        for s in made[1:]:
            equal(out(s, "pgrep -c -f '[s]erver.py'"), "1", "its process")
        api("POST", f"/v1/sandboxes/{id}/wake")
        equal(out(id, "pgrep -c -f '[s]erver.py'"), "1", "the parent's process")
        api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)
        b = branch(id, count=2)
        made += [s["id"] for s in b["sandboxes"]]
        equal(show(id)["state"], "suspended", "the parent")
        for s in made[3:]:
            equal(out(s, "pgrep -c -f '[s]erver.py'"), "1", "its process")
        b = branch(id, label="kept-of-suspended")
        made += [s["id"] for s in b["sandboxes"]]
        equal((b["checkpoint"]["kind"], b["checkpoint"]["label"]), ("checkpoint", "kept-of-suspended"))
        api("DELETE", f"/v1/sandboxes/{id}")
        equal(out(made[-1], "pgrep -c -f '[s]erver.py'"), "1", "after the parent's end")
    finally:
        for s in made:
            api("DELETE", f"/v1/sandboxes/{s}", status=(200, 404))
        api("DELETE", "/v1/checkpoints/kept-of-suspended", status=(204, 404))
