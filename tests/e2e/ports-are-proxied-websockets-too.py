# A server in a sandbox is reached through the API: by path, host name and E2B's headers, bound to 127.0.0.1 or ::1 too, with websockets.
# limit: 200
from t import *
import hashlib

SERVER = r'''
import base64, hashlib, http.server, socket, sys
class H(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.headers.get("Upgrade", "").lower() == "websocket":
            k = base64.b64encode(hashlib.sha1((self.headers["Sec-WebSocket-Key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode()
            self.wfile.write(f"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {k}\r\n\r\n".encode())
            self.wfile.flush()
            while True:
                h = self.rfile.read(2)
                if len(h) < 2 or h[0] & 15 == 8:
                    return
                n = h[1] & 127
                m = self.rfile.read(4)
                d = bytes(b ^ m[i % 4] for i, b in enumerate(self.rfile.read(n)))
                self.wfile.write(bytes([0x81, n]) + d[::-1])
                self.wfile.flush()
        b = f"{self.command} {self.path} {self.headers.get('X-Mine')} {self.headers.get('Authorization')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(b)))
        self.send_header("X-From", "guest")
        self.end_headers()
        self.wfile.write(b)
    def do_POST(self):
        n = int(self.headers.get("Content-Length") or 0)
        d = self.rfile.read(n) if n else b""
        b = hashlib.sha256(d).hexdigest().encode()
        self.send_response(201)
        self.send_header("Content-Length", str(len(b)))
        self.end_headers()
        self.wfile.write(b)
    def log_message(self, *a): pass
class S(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
S((sys.argv[1], int(sys.argv[2])), H).serve_forever()
'''


def ws(path, headers, where, texts):
    """A websocket client by hand: what each text was answered with."""
    c = Connection(where)
    c.connect()
    key = base64.b64encode(os.urandom(16)).decode()
    head = {"Host": "x", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Key": key, "Sec-WebSocket-Version": "13", **headers}
    c.sock.sendall((f"GET {path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in head.items()) + "\r\n").encode())
    f = c.sock.makefile("rb")
    check(b" 101 " in f.readline(), "switching protocols")
    accept = None
    for line in iter(f.readline, b"\r\n"):
        if line.lower().startswith(b"sec-websocket-accept"):
            accept = line.split(b":")[1].strip().decode()
    equal(accept, base64.b64encode(hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()).decode())
    got = []
    for t in texts:
        c.sock.sendall(bytes([0x81, 0x80 | len(t)]) + b"\1\2\3\4" + bytes(b ^ b"\1\2\3\4"[i % 4] for i, b in enumerate(t)))
        h = f.read(2)
        got.append(f.read(h[1]))
    c.close()
    return got


with sandbox() as id:
    put(id, "/tmp/s.py", SERVER)
    for addr, port in (("0.0.0.0", 8001), ("127.0.0.1", 8002), ("::1", 8003)):
        api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"cmd": ["python3", "/tmp/s.py", addr, str(port)]}, status=201)
    for port in (8001, 8002, 8003):
        p = f"/v1/sandboxes/{id}/ports/{port}"
        wait_for(lambda: api("GET", p + "/", status=(200, 502)).status == 200, 60, f"port {port}")
        a = api("GET", p + "/a/b?c=d%20e", headers={"X-Mine": "yes"})
        equal(a.body, b"GET /a/b?c=d%20e yes None", f"port {port}")
        equal(a.headers["X-From"], "guest")
        d = os.urandom(300000)
        equal(api("POST", p + "/up", d, status=201).body.decode(), hashlib.sha256(d).hexdigest())
        equal(ws(p + "/ws", {}, SOCKET, [b"hello", b"again"]), [b"olleh", b"niaga"], f"websocket, port {port}")
    # By host name and by E2B's headers, over TCP: no key of ours goes to the guest.
    where = ("127.0.0.1", PORT)
    equal(api("GET", "/x", headers={"Host": f"8002-{id}.localhost:{PORT}"}, where=where).body, b"GET /x None None")
    equal(api("GET", "/y", headers={"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8002"}, where=where).body, b"GET /y None None")
    equal(ws("/ws", {"Host": f"8002-{id}.localhost:{PORT}"}, where, [b"abc"]), [b"cba"])
    error("GET", f"/v1/sandboxes/{id}/ports/8099/", status=502, code="port_closed")
    error("GET", f"/v1/sandboxes/{id}/ports/0/", status=(400, 404))
    error("GET", f"/v1/sandboxes/{id}/ports/70000/", status=(400, 404))

    # `space forward`: a local port that behaves like the sandbox's; one number is the port on both sides.
    lp = free_port()
    api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"cmd": ["python3", "/tmp/s.py", "127.0.0.1", str(lp)]}, status=201)
    p = f"/v1/sandboxes/{id}/ports/{lp}"
    wait_for(lambda: api("GET", p + "/", status=(200, 502)).status == 200, 60, f"port {lp}")
    for words in (f"{lp}:8002", f"{lp}"):
        f = subprocess.Popen([SPACE, "forward", id, words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            def up():
                try:
                    return api("GET", "/z", where=("127.0.0.1", lp)).body == b"GET /z None None"
                except OSError:
                    return False
            wait_for(up, 10, "space forward")
            equal(ws("/ws", {}, ("127.0.0.1", lp), [b"via forward"]), [b"drawrof aiv"])
        finally:
            f.send_signal(signal.SIGINT)
            f.wait(10)
            f.stderr.close()
