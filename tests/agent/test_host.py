"""Health, identity, tokens and signatures, freezing, the raw pipe to a port."""
import base64
import hashlib
import json
import os
import socket
import subprocess
import threading
import time
import urllib.parse

from lib import HOST, Agent, Stream, b64, check, same, until
from test_process import cgroups, next_generation

TOKEN = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0"


def test_health_is_204_without_a_token(a):
    status, h, body = a.http("GET", "/health")
    same((status, body, h["cache-control"]), (204, b"", "no-store"))
    check("content-length" not in h and "transfer-encoding" not in h, h)


def test_metrics_have_every_field(a):
    m = json.loads(a.http("GET", "/metrics")[2])
    for k in ("ts", "cpu_count", "cpu_used_pct", "mem_total", "mem_used", "mem_cache", "mem_total_mib", "mem_used_mib", "disk_used", "disk_total"):
        check(isinstance(m[k], (int, float)), k)
    check(m["cpu_count"] == os.cpu_count() and 0 < m["mem_used"] < m["mem_total"] and 0 < m["disk_used"] <= m["disk_total"], m)


def test_cors_preflight_needs_no_token(a):
    status, h, _ = a.http("OPTIONS", "/process.Process/Start", headers={"Origin": "http://x", "Access-Control-Request-Method": "POST",
                                                                        "Access-Control-Request-Headers": "x-access-token"})
    same((status, h["access-control-allow-origin"]), (204, "*"))
    check("POST" in h["access-control-allow-methods"] and "x-access-token" in h["access-control-allow-headers"], h)
    same(a.http("GET", "/health")[1]["access-control-allow-origin"], "*")


def test_unknown_paths_and_methods(a):
    status, _, body = a.http("GET", "/nope")
    same((status, json.loads(body)["code"]), (404, 404))
    same(a.http("DELETE", "/health")[0], 405)


def test_init_answers_who_it_is_and_writes_identity(a):
    g = next_generation()
    status, h, body = a.init(generation=g, id="iabc", hostname="box-1", machine_id="0123456789abcdef" * 2, timestamp="2026-01-02T03:04:05.678901234Z",
                             entropy=b64(os.urandom(64)), envVars={}, defaultUser="user", caBundle="-----BEGIN CERTIFICATE-----\nAA\n-----END CERTIFICATE-----\n")
    same(status, 200, body)
    m = json.loads(body)
    same((m["generation"], m["id"], m["machine_id"], m["protocol"], h["x-envd-version"]), (g, "iabc", "0123456789abcdef" * 2, 2, "0.6.13"))
    same(len(base64.b64decode(m["random"])), 16)
    check(m["boot_id"] and m["boot_token"] and m["uptime_ms"] > 0 and m["timestamp"].endswith("Z"), m)
    read = lambda p: open(a.root + p).read()
    same((read("/etc/hostname"), read("/etc/machine-id")), ("box-1\n", "0123456789abcdef" * 2 + "\n"))
    check("127.0.1.1\tbox-1" in read("/etc/hosts"))
    check("AA" in read("/usr/local/share/ca-certificates/space.crt") and read("/etc/ssl/certs/ca-certificates.crt").count("BEGIN") == 1)
    same(read("/run/e2b/.E2B_SANDBOX_ID"), "iabc")
    a.init(generation=next_generation(), caBundle="-----BEGIN CERTIFICATE-----\nBB\n-----END CERTIFICATE-----\n")
    bundle = read("/etc/ssl/certs/ca-certificates.crt")
    check("BB" in bundle and "AA" not in bundle, "the old certificate is still trusted")
    same(json.loads(a.http("GET", "/envs")[2])["E2B_SANDBOX_ID"], "iabc")


def test_init_is_refused_unless_the_generation_rises(a):
    g = next_generation()
    same(a.init(generation=g, hostname="first")[0], 200)
    same(a.init(generation=g, hostname="again")[0], 409)
    same(a.init(generation=g - 1)[0], 409)
    same(open(a.root + "/etc/hostname").read(), "first\n")


def test_fresh_init_has_a_new_boot_token_and_cuts_other_connections(a):
    token = lambda **more: json.loads(a.init(generation=next_generation(), **more)[2])["boot_token"]
    first = token()
    same(token(), first, "a boot token without a start")
    idle = socket.create_connection((HOST, a.port))
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    check(b" 204 " in idle.recv(4096))
    second = token(fresh=True)
    check(second != first and len(second) == 32, second)
    same(token(), second)
    idle.settimeout(3)
    try:
        same(idle.recv(10), b"")
    except ConnectionResetError:
        pass


def test_processes_are_kept_for_a_branch_and_forgotten_for_a_clone(a):
    a.init(generation=next_generation(), id="iparent")
    s = Stream(a, "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "echo said"]}, "stdin": False})
    pid = s.pid()
    while s.next(timeout=5):
        pass
    listed = lambda: [p["pid"] for p in json.loads(a.http("GET", "/space/processes")[2])["processes"]]
    check(pid in listed())
    a.init(generation=next_generation(), id="ibranch", fresh=True, keepProcesses=True)
    check(pid in listed(), "a branch forgot what had ended")
    a.init(generation=next_generation(), id="iclone", fresh=True)
    check(pid not in listed(), "a clone remembers its template's")


def test_init_refuses_what_it_does_not_understand_and_changes_nothing(a):
    g = next_generation()
    a.init(generation=g, hostname="kept")
    for bad in ({}, {"generation": "5"}, {"generation": g + 1, "nope": 1}, {"generation": g + 1, "machine_id": "xyz"},
                {"generation": g + 1, "timestamp": "yesterday"}, {"generation": g + 1, "entropy": "!!"}, {"generation": g + 1, "hostname": "a b"},
                {"generation": g + 1, "envVars": {"A": 1}}, {"generation": g + 1, "defaultUser": "ghost"}, {"generation": g + 1, "tmpfs": {"rel": 5}},
                *({"generation": g + 1, "tmpfs": {p: 1 << 20}} for p in ("/", "//", "/proc", "/proc/x", "/sys/", "/dev/shm", "/run", "/./etc", "/a/../etc")),
                {"generation": g + 1, "defaultWorkdir": "relative"}):
        status, _, body = a.init(**bad)
        same((status, json.loads(body)["code"]), (400, 400), str(bad))
    same(a.http("POST", "/init", b"{", {"Content-Type": "application/json"})[0], 400)
    same(open(a.root + "/etc/hostname").read(), "kept\n")
    same(a.init(generation=next_generation())[0], 200)


def test_token_guards_everything_but_health_and_files(a):
    a.init(generation=next_generation(), accessToken=TOKEN)
    try:
        status, _, body = a.http("GET", "/metrics")
        same((status, json.loads(body)["message"]),
             (401, "unauthorized access, please provide a valid access token or method signing if supported"))
        same(a.http("GET", "/metrics", headers={"X-Access-Token": TOKEN[:-1] + "1"})[0], 401)
        same(a.http("GET", "/metrics", headers={"X-Access-Token": TOKEN})[0], 200)
        same(a.rpc("List")[0], 401)
        same(a.rpc("List", headers={"X-Access-Token": TOKEN})[0], 200)
        s = a.start("echo x")
        same(s.status, 401)
        same(a.http("GET", "/health")[0], 204)
        same(a.http("GET", "/space/processes")[0], 200)  # the host's, whatever the token
    finally:
        a.init(generation=next_generation())
    same(a.http("GET", "/metrics")[0], 200)


def signature(path, operation, user, token, exp=None):
    text = ":".join([path, operation, user, token] + ([str(exp)] if exp is not None else []))
    return "v1_" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


def test_signed_urls(a):
    same(signature("hello.txt", "read", "user", TOKEN), "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E")
    a.http("POST", a.q("/files", path="hello.txt"), b"hi", {"Content-Type": "application/octet-stream"})
    a.init(generation=next_generation(), accessToken=TOKEN)
    message = lambda r: (r[0], json.loads(r[2])["message"])
    try:
        get = lambda **q: a.http("GET", a.q("/files", path="hello.txt", username="user", **q))
        same(get(signature="v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E")[2], b"hi")
        same(message(get()), (401, "missing signature query parameter"))
        same(message(get(signature="v1_wrong")), (401, "invalid signature"))
        same(message(get(signature=signature("hello.txt", "write", "user", TOKEN))), (401, "invalid signature"))
        far, past = int(time.time()) + 60, int(time.time()) - 60
        same(get(signature=signature("hello.txt", "read", "user", TOKEN, far), signature_expiration=far)[0], 200)
        same(message(get(signature=signature("hello.txt", "read", "user", TOKEN, past), signature_expiration=past)), (401, "signature is already expired"))
        same(message(get(signature=signature("hello.txt", "read", "user", TOKEN, far), signature_expiration=far + 1)), (401, "invalid signature"))
        same(a.http("GET", a.q("/files", path="hello.txt", signature=signature("hello.txt", "read", "", TOKEN)))[0], 200)
        same(a.http("POST", a.q("/files", path="up", signature=signature("up", "write", "", TOKEN)), b"x", {"Content-Type": "application/octet-stream"})[0], 200)
        r = a.http("GET", a.q("/files", path="hello.txt"), headers={"X-Access-Token": "wrong"})
        same(message(r), (401, "access token present in header but does not match"))
        same(a.http("GET", a.q("/files", path="hello.txt"), headers={"X-Access-Token": TOKEN})[2], b"hi")
    finally:
        a.init(generation=next_generation())


def test_freeze_stops_processes_holds_streams_and_serves_only_init(a):
    a.init(generation=next_generation(), accessToken=TOKEN)
    s = Stream(a, "Start", {"process": {"cmd": "/bin/sh", "args": ["-c", "while :; do date +%s%N > "+ a.home + "/tick; sleep 0.02; done"]}, "stdin": False},
               headers={"X-Access-Token": TOKEN})
    pid = s.pid()
    until(lambda: os.path.exists(a.home + "/tick"), 3, "the first tick")
    server = echo_server(socket.AF_INET, "127.0.0.1")
    pipe, _ = upgrade(a, server.getsockname()[1])
    idle = socket.create_connection((HOST, a.port))
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    check(b" 204 " in idle.recv(4096))
    same(a.http("POST", "/freeze", {"fs": False})[0], 204)
    try:
        pipe.sendall(b"held")
        pipe.settimeout(0.5)
        try:
            check(False, f"the pipe goes on: {pipe.recv(10)}")
        except TimeoutError:
            pass
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        check(b" 503 " in idle.recv(4096))
        if cgroups(a):
            first = open(a.home + "/tick").read()
            time.sleep(0.3)
            same(open(a.home + "/tick").read(), first, "a frozen process wrote")
        for m, p in (("GET", "/metrics"), ("GET", "/files?path=x"), ("POST", "/process.Process/List"), ("GET", "/space/processes")):
            same(a.http(m, p, headers={"X-Access-Token": TOKEN})[0], 503, p)
        same(a.http("POST", "/freeze", {})[0], 204)
    finally:
        same(a.init(generation=next_generation())[0], 200)
    same(a.http("GET", "/metrics")[0], 200)  # the token was wiped, and none was given
    first = open(a.home + "/tick").read()
    until(lambda: open(a.home + "/tick").read() != first, 3, "life after the thaw")
    pipe.settimeout(3)
    same(pipe.recv(10), b"held")
    idle.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    check(b" 204 " in idle.recv(4096))
    c = a.stream("Connect", {"process": {"pid": pid}})
    c.pid()
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": 9})
    same(c.result(pid=False)[2]["reason"], "killed")
    same(a.http("POST", "/freeze", {"nope": 1})[0], 400)
    same(a.http("POST", "/space/thaw")[0], 204)


def test_nothing_is_served_before_the_first_init(a):
    b = Agent(a.proc.args[5], "--wait-init")
    try:
        same(b.http("GET", "/health")[0], 204)
        for m, p in (("GET", "/metrics"), ("GET", "/envs"), ("GET", "/files?path=/etc/hostname"), ("POST", "/process.Process/List"), ("GET", "/space/processes")):
            same(b.http(m, p)[0], 503, p)
        same(b.init(generation=1)[0], 200)
        same(b.http("GET", "/metrics")[0], 200)
    finally:
        b.stop()


def echo_server(family, addr):
    s = socket.socket(family)
    s.bind((addr, 0))
    s.listen(4)

    def serve():
        while True:
            try:
                c, _ = s.accept()
            except OSError:
                return
            while True:
                d = c.recv(65536)
                if not d:
                    break
                c.sendall(d)
            c.shutdown(socket.SHUT_WR)
            c.close()

    threading.Thread(target=serve, daemon=True).start()
    return s


def upgrade(a, port):
    c = socket.create_connection((HOST, a.port))
    c.settimeout(20)
    c.sendall(b"GET /space/tcp/%d HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\n" % port)
    head = b""
    while b"\r\n\r\n" not in head:
        d = c.recv(1)
        check(d, "closed")
        head += d
    return c, int(head.split()[1])


def test_raw_pipe_to_a_port_on_ipv4_and_ipv6_loopback(a):
    for family, addr in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        try:
            s = echo_server(family, addr)
        except OSError:
            continue
        c, status = upgrade(a, s.getsockname()[1])
        same(status, 101)
        data = os.urandom(3 << 20)
        got = b""
        t = threading.Thread(target=lambda: (c.sendall(data), c.shutdown(socket.SHUT_WR)))
        t.start()
        while True:
            d = c.recv(65536)
            if not d:
                break
            got += d
        t.join()
        check(got == data, "%d of %d bytes came back" % (len(got), len(data)))
        c.close()
        s.close()


def test_raw_pipe_errors(a):
    s = socket.socket()
    s.bind((HOST, 0))  # bound, not listening
    c, status = upgrade(a, s.getsockname()[1])
    same(status, 502)
    same(a.http("GET", "/space/tcp/80")[0], 426)
    same(a.http("GET", "/space/tcp/99999", headers={"Connection": "upgrade", "Upgrade": "tcp"})[0], 400)
    same(a.http("GET", "/space/tcp/x", headers={"Connection": "upgrade", "Upgrade": "tcp"})[0], 400)


def test_raw_pipe_holds_a_fast_sender_back(a):
    s = socket.socket()
    s.bind((HOST, 0))
    s.listen(1)
    before = a.rss_kib()
    c, status = upgrade(a, s.getsockname()[1])
    peer, _ = s.accept()
    c.settimeout(0.5)
    sent = 0
    try:
        while sent < 64 << 20:
            sent += c.send(b"x" * 65536)
    except TimeoutError:
        pass
    check(sent < 32 << 20, "the agent took %d bytes that nobody reads" % sent)
    a.check_grown(before, 1536)
    c.close()
    peer.close()


def test_idle_agent_is_small(a):
    b = Agent(a.proc.args[5])
    try:
        b.run("true")
        check(not b.sized or b.rss_kib() < 2048, "%d KiB resident" % b.rss_kib())
    finally:
        b.stop()


def test_descriptors_do_not_leak(a):
    fds = lambda: len(os.listdir("/proc/%d/fd" % a.proc.pid))
    a.run("true")
    time.sleep(0.2)
    before = fds()
    for _ in range(10):
        a.run("echo x; echo y >&2", stdin=True)
        a.run("tty", pty={"size": {}}, stdin=None)
        a.http("POST", a.q("/files", path="leak"), b"x", {"Content-Type": "application/octet-stream"})
        a.http("GET", a.q("/files", path="leak"))
        a.http("GET", a.q("/space/tar", path=a.home + "/leak"))
        s = a.stream("WatchDir", {"path": "/tmp"})
        s.next()
        s.close()
        a.start("true", user="ghost").error()
        a.start("true", cwd="/nope").error()
    until(lambda: fds() <= before, 3, "%d descriptors instead of %d" % (fds(), before))
