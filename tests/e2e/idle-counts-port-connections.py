# For the idle deadline requests to a port count as activity, and a websocket or pipe that is held open, silent as it may be; a server alone does not.
# limit: 200
from t import *

IDLE = 8
# Whatever is asked of it gets an answer; an upgrade is taken and then held.
SERVER = r'''
import socket, threading
def one(c):
    head = b""
    while b"\r\n\r\n" not in head:
        b = c.recv(4096)
        if not b:
            return c.close()
        head += b
    if b"upgrade: websocket" in head.lower():
        c.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n")
        c.recv(1)
    else:
        c.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
    c.close()
s = socket.create_server(("0.0.0.0", 8000))
while True:
    threading.Thread(target=one, args=(s.accept()[0],), daemon=True).start()
'''


def serve(id):
    """A server that is no command any more: a running command would keep the sandbox by itself."""
    put(id, "/tmp/s.py", SERVER)
    out(id, "setsid python3 /tmp/s.py </dev/null >/dev/null 2>&1 &")
    wait_for(lambda: api("GET", f"/v1/sandboxes/{id}/ports/8000/", status=(200, 502)).status == 200, 30, "the server")


def hold(id, path, proto):
    c = Connection()
    c.connect()
    c.sock.sendall((f"GET /v1/sandboxes/{id}/{path} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: {proto}\r\n"
                    f"Sec-WebSocket-Key: {'A' * 22}==\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
    check(b" 101 " in c.sock.recv(4096), f"{path}: upgraded")
    return c


ids, held = {}, {}
try:
    for what in ("websocket", "pipe", "requests", "server"):
        id = ids[what] = api("POST", "/v1/sandboxes", {"idle_timeout": IDLE, "timeout": 180}, status=201).json["id"]
        serve(id)
        if what == "websocket":
            held[what] = hold(id, "ports/8000/ws", "websocket")
        elif what == "pipe":
            held[what] = hold(id, "tcp/8000", "tcp")
    end = time.monotonic() + 2 * IDLE
    while time.monotonic() < end:
        equal(api("GET", f"/v1/sandboxes/{ids['requests']}/ports/8000/").body, b"ok")
        time.sleep(0.5)
    j = show(ids["server"])
    equal((j["state"], j["reason"]), ("stopped", "idle"), "a server that nobody asks")
    for what in ("websocket", "pipe", "requests"):
        equal(show(ids[what])["state"], "running", what)
    for c in held.values():
        c.close()
    for what in ("websocket", "pipe", "requests"):
        equal(wait_state(ids[what], "stopped", 2 * IDLE + 5)["reason"], "idle", what)
finally:
    for i in ids.values():
        api("DELETE", f"/v1/sandboxes/{i}")
