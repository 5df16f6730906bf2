# Root inside a sandbox reaches nothing: no TCP, UDP, DNS, ICMP, IPv6 or raw frame gets out, to the host, its API, or another sandbox.
from t import *

PROBE = r'''
import json, os, socket, struct, sys, time
res = {}

def tcp(name, host, port):
    t = time.time()
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    s.settimeout(3)
    try:
        s.connect((host, port))
        res[name] = "CONNECTED"
    except OSError as e:
        res[name] = f"{type(e).__name__} {time.time() - t:.2f}"
    s.close()

def udp(name, host, port, data=b"x"):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(1)
    try:
        s.connect((host, port))
        s.send(data)
        s.recv(100)
        res[name] = "ANSWERED"
    except OSError as e:
        res[name] = type(e).__name__
    s.close()

mark = open("/tmp/mark", "rb").read()
host_ips, port = json.loads(sys.argv[1]), int(sys.argv[2])
for ip in host_ips:
    tcp("tcp host " + ip, ip, port)
    tcp("tcp host ssh " + ip, ip, 22)
for name, ip, p in (("gateway api", "100.64.0.1", port), ("gateway agent", "100.64.0.1", 49983), ("internet", "1.1.1.1", 443),
                    ("metadata", "169.254.169.254", 80), ("neighbour", "100.64.0.3", 49983), ("private", "10.0.0.1", 80), ("private 2", "192.168.0.1", 80),
                    ("same address", "100.64.0.2", 8000), ("next address", "100.64.0.3", 8000)):
    tcp("tcp " + name, ip, p)
q = b"\x12\x34\x01\0\0\1\0\0\0\0\0\0\7example\3com\0\0\1\0\1"
for ip in ("100.64.0.1", "8.8.8.8", *host_ips):
    udp("dns " + ip, ip, 53, q)
    udp("udp " + ip, ip, 123)
for h in ("example.com", "localhost.localdomain.invalid"):
    t = time.time()
    try:
        socket.getaddrinfo(h, 80)
        res["name " + h] = "RESOLVED"
    except OSError as e:
        res["name " + h] = f"{type(e).__name__} {time.time() - t:.1f}"
tcp("tcp6", "2606:4700:4700::1111", 443)
tcp("tcp6 link-local", "fe80::1%eth0", port)
for ip in ("100.64.0.1", "1.1.1.1"):
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.settimeout(0.7)
    p = struct.pack("!BBHHH", 8, 0, 0, 1, 1) + b"abcdefgh"
    c = sum(struct.unpack("!8H", p))
    c = ~((c & 0xffff) + (c >> 16)) & 0xffff
    s.sendto(p[:2] + struct.pack("!H", c) + p[4:], (ip, 0))
    try:
        while True:
            b = s.recv(1000)
            if b[20] == 0:
                res["ping " + ip] = "ANSWERED"
                break
    except OSError:
        res["ping " + ip] = "silent"
# Raw frames: other addresses, other MACs, IPv6, broadcast; whatever comes back is noted.
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0))
me, gw, other = b"\2\0\0\0\0\2", b"\2\0\0\0\0\1", b"\2\0\0\0\0\7"
def ip(src, dst, proto, load):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(load), 1, 0, 64, proto, 0, socket.inet_aton(src), socket.inet_aton(dst))
    c = sum(struct.unpack("!10H", h))
    c = ~((c & 0xffff) + (c >> 16)) & 0xffff
    return h[:10] + struct.pack("!H", c) + h[12:] + load
u = struct.pack("!HHHH", 5555, port, 12, 0) + b"mark"
for mac in (me, other):
    for src in ("100.64.0.2", "100.64.0.1", "127.0.0.1", "100.64.0.9"):
        s.send(gw + mac + b"\x08\0" + ip(src, "100.64.0.1", 17, u))
s.send(b"\xff" * 6 + me + b"\x86\xdd" + b"\x60" + b"\0" * 5 + b"\x3a\xff" + b"\xfe\x80" + b"\0" * 13 + b"\2" + b"\xff\2" + b"\0" * 13 + b"\1" + b"\x80\0\0\0\0\0\0\0")
s.send(gw + me + b"\x81\0\0\1\x08\0" + ip("100.64.0.2", "100.64.0.1", 17, u))
print(json.dumps(res))
'''

# Runs in the other sandbox, whose address and MAC are the same as everyone's: notes each frame on any of its interfaces that holds the mark.
CAPTURE = r'''
import socket
mark, own = open("/tmp/mark", "rb").read(), open("/tmp/own-mark", "rb").read()
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)
n = marked = mine = 0
while True:
    f = s.recv(65536)
    n, marked, mine = n + 1, marked + (mark in f), mine + (own in f)
    with open("/tmp/seen", "w") as o:
        o.write(f"{n} {marked} {mine}")
'''

# Runs in the first: the mark by every way out that a frame has.
SHOUT = r'''
import contextlib, socket, struct
mark = open("/tmp/mark", "rb").read()
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind(("eth0", 0))
def ip(src, dst, proto, load):
    h = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(load), 1, 0, 64, proto, 0, socket.inet_aton(src), socket.inet_aton(dst))
    c = sum(struct.unpack("!10H", h))
    c = ~((c & 0xffff) + (c >> 16)) & 0xffff
    return h[:10] + struct.pack("!H", c) + h[12:] + load
udp = struct.pack("!HHHH", 5555, 8000, 8 + len(mark), 0) + mark
sent = 0
macs = [b"\xff" * 6, b"\1\0\x5e\0\0\1", b"\x33\x33\0\0\0\1"] + [b"\2\0\0\0\0" + bytes([n]) for n in (1, 2, 3, 7)]
ours = s.getsockname()[4]
for to in macs:
    for fr in (ours, b"\2\0\0\0\0\1", b"\2\0\0\0\0\7"):
        for dst in ("100.64.0.1", "100.64.0.2", "100.64.0.3", "100.64.0.255", "255.255.255.255", "224.0.0.1"):
            for src in ("100.64.0.2", "100.64.0.1", "100.64.0.9"):
                s.send(to + fr + b"\x08\0" + ip(src, dst, 17, udp)); sent += 1
        s.send(to + fr + b"\x08\6" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + fr + socket.inet_aton("100.64.0.2") + to + socket.inet_aton("100.64.0.3") + mark)
        s.send(to + fr + b"\x88\xb5" + mark)
        s.send(to + fr + b"\x81\0\0\1\x08\0" + ip("100.64.0.2", "100.64.0.3", 17, udp))
        s.send(to + fr + b"\x86\xdd" + b"\x60\0\0\0" + struct.pack("!H", len(udp)) + b"\x11\xff" + b"\xfe\x80" + b"\0" * 13 + b"\2" + b"\xff\2" + b"\0" * 13 + b"\1" + udp)
        sent += 4
for dst in ("100.64.0.1", "100.64.0.3", "100.64.0.255", "255.255.255.255", "224.0.0.1", "ff02::1%eth0"):
    with contextlib.suppress(OSError):
        u = socket.socket(socket.AF_INET6 if ":" in dst else socket.AF_INET, socket.SOCK_DGRAM)
        u.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        u.sendto(mark, (dst, 8000)); sent += 1
print(sent)
'''

# What the host itself listens to: the API on loopback, and a server on every address, both of which must see nobody.
ips = sorted(set(re.findall(r"inet (\d+\.\d+\.\d+\.\d+)", subprocess.run(["ip", "-4", "-o", "addr"], capture_output=True, text=True).stdout)))
lures, seen = [], []
for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
    s = socket.socket(socket.AF_INET, kind)
    s.bind(("0.0.0.0", lures[0].getsockname()[1] if lures else 0))
    if kind == socket.SOCK_STREAM:
        s.listen()
    s.setblocking(False)
    lures.append(s)
lure = lures[0].getsockname()[1]
with sandbox() as id, sandbox() as other:
    mark, own = os.urandom(12).hex(), os.urandom(12).hex()
    for i in (id, other):
        put(i, "/tmp/mark", mark)
    put(other, "/tmp/own-mark", own)
    put(other, "/tmp/capture.py", CAPTURE)
    put(id, "/tmp/probe.py", PROBE)
    put(id, "/tmp/shout.py", SHOUT)
    api("POST", f"/v1/sandboxes/{other}/exec?detach=1", {"shell": "mkdir -p /tmp/www && cd /tmp/www && exec python3 -u -m http.server 8000 > /tmp/http.log 2>&1"}, status=201)
    api("POST", f"/v1/sandboxes/{other}/exec?detach=1", {"cmd": ["python3", "/tmp/capture.py"], "user": "root"}, status=201)
    wait_for(lambda: sh(other, "test -s /tmp/seen && curl -sf -o /dev/null localhost:8000/?control", code=None)["exit"]["code"] == 0, 20, "server and capture run")
    check(int(out(id, "python3 /tmp/shout.py", user="root")) > 300, "the marked frames are sent")
    for port in (lure, PORT):
        r = json.loads(out(id, f"python3 /tmp/probe.py '{json.dumps(ips)}' {port}", user="root", timeout=100))
        for k, v in r.items():
            check(not re.search("CONNECTED|ANSWERED|RESOLVED", v), f"{k}: {v}")
        for k in ("tcp gateway api", "tcp internet", "tcp metadata"):
            name, took = r[k].split()
            check(float(took) < 1, f"{k} is refused at once, not after {took} s ({name})")
    # Root may do to its own links what it likes.
    sh(id, """ip addr add 100.64.0.9/24 dev eth0; ip route add default via 100.64.0.1 2>/dev/null; ip link add link eth0 name v type macvlan;
        ip neigh replace 100.64.0.3 lladdr 02:00:00:00:00:02 dev eth0; sysctl -qw net.ipv4.ip_forward=1; true""", user="root")
    r = json.loads(out(id, f"python3 /tmp/probe.py '{json.dumps(ips)}' {lure}", user="root", timeout=100))
    for k, v in r.items():
        check(not re.search("CONNECTED|ANSWERED|RESOLVED", v), f"with links changed: {k}: {v}")
    out(id, "python3 /tmp/shout.py", user="root")
    equal(out(id, "echo ok"), "ok", "the host still reaches it")
    # The other one's capture works: it has the host's own traffic, and what that sandbox sends itself. Of the first it has nothing.
    out(other, "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(open(\"/tmp/own-mark\", \"rb\").read(), (\"100.64.0.1\", 9))'")
    seen = wait_for(lambda: (lambda v: v if v[2] else None)([int(x) for x in out(other, "cat /tmp/seen").split()]), 10, "the capture sees its own sandbox's frames")
    check(seen[0] > 10, f"the capture saw {seen[0]} frames")
    equal(seen[1], 0, "frames of the first sandbox that the other one saw")
    log = out(other, "cat /tmp/http.log")
    gets = [l for l in log.splitlines() if "GET" in l or "code " in l]
    check(all("/?control" in l for l in gets) and all(l.startswith("127.0.0.1") for l in gets), f"the other one's server was asked: {log}")
for s in lures:
    try:
        s.accept() if s.type == socket.SOCK_STREAM else s.recv(1)
        fail("the lure on the host was touched")
    except BlockingIOError:
        pass
    s.close()
