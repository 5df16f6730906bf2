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

host_ips, port = json.loads(sys.argv[1]), int(sys.argv[2])
for ip in host_ips:
    tcp("tcp host " + ip, ip, port)
    tcp("tcp host ssh " + ip, ip, 22)
for name, ip, p in (("gateway api", "100.64.0.1", port), ("gateway agent", "100.64.0.1", 49983), ("internet", "1.1.1.1", 443),
                    ("metadata", "169.254.169.254", 80), ("neighbour", "100.64.0.3", 49983), ("private", "10.0.0.1", 80), ("private 2", "192.168.0.1", 80)):
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
    api("POST", f"/v1/sandboxes/{other}/exec?detach=1", {"shell": "python3 -m http.server 8000", "cwd": "/tmp"}, status=201)
    put(id, "/tmp/probe.py", PROBE)
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
    equal(out(id, "echo ok"), "ok", "the host still reaches it")
for s in lures:
    try:
        s.accept() if s.type == socket.SOCK_STREAM else s.recv(1)
        fail("the lure on the host was touched")
    except BlockingIOError:
        pass
    s.close()
