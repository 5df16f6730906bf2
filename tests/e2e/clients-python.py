# The Python client with real guests: create, run, stream, cut and resume, tokens, files, tar, watch, ports, events, operations, errors, over socket and TCP.
# limit: 240
from t import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import io, tarfile  # noqa: E402

import space as client  # noqa: E402
from space import Space, SpaceError  # noqa: E402


def fails(code, fn, status=None):
    try:
        fn()
    except SpaceError as e:
        equal(e.code, code, f"code of {e}")
        check(e.message and e.remedy and code in str(e), f"message and remedy of {e}")
        if status is not None:
            equal(e.status, status)
            check(e.request_id, "request_id")
        return e
    fail(f"no {code}")


class Cutter:
    """Lies between client and daemon, and cuts every connection after so many bytes of answers."""

    def __init__(self, after):
        self.after, self.cuts, self.open = after, 0, True
        self.path = os.path.join(DIR, "cutter.sock")
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(self.path)
        self.server.listen(16)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while self.open:
            try:
                c, _ = self.server.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        s = socket.socket(socket.AF_UNIX)
        s.connect(SOCKET)
        sent = 0
        while True:
            for f in select.select([c, s], [], [])[0]:
                data = f.recv(2048)
                if f is s:
                    sent += len(data)
                if not data or (self.after and sent > self.after):
                    self.cuts += bool(data)
                    c.close()
                    s.close()
                    return
                (s if f is c else c).sendall(data)

    def close(self):
        self.open = False
        self.server.close()
        os.unlink(self.path)


s = Space(SOCKET)
check(s.healthy() and s.ready(), "healthy and ready")
check(not Space("/nowhere.sock").healthy(), "nowhere is not healthy")
fails("daemon_down", Space("/nowhere.sock").host)
fails("sandbox_not_found", lambda: s.get("i" + "0" * 20), 404)
fails("bad_request", lambda: s.create(rootfs="sideways"), 400)
os.environ["SPACE_SOCKET"] = SOCKET
with Space().create(name="pyclient", metadata={"who": "py"}, env={"GREETING": "hi"}) as sb:
    print(sb)
    # run
    equal(sb.run("echo hi").stdout, "hi\n")
    r = sb.run(["sh", "-c", "cat; echo $GREETING $X >&2; exit 3"], input="in", env={"X": "y"})
    equal((r.stdout, r.stderr, r.exit_code, r.ok, r.reason), ("in", "hi y\n", 3, False, "exited"))
    equal(sb.run("printf '\\377'").stdout_bytes, b"\xff")
    equal(sb.run("sleep 20", timeout=0.5).reason, "deadline")
    fails("bad_request", lambda: sb.run("true", user="nobody-at-all"), 400)
    # the list, by state and metadata; a page of one
    check(sb.id in [x.id for x in s.sandboxes(state="running", metadata={"who": "py"}, limit=1)], "in the list")
    equal(s.get("pyclient").id, sb.id)
    # a stream as it comes, left in the middle and gone on with
    p = sb.start("echo one; sleep 1.5; echo two; echo err >&2")
    began = time.monotonic()
    for piece in p:
        equal((piece.stream, piece.text, piece.offset), ("stdout", "one\n", 0))
        break
    check(time.monotonic() - began < 1.3, "the first piece came before the end")
    r = p.wait()
    equal((r.stdout, r.stderr, r.exit_code), ("two\n", "err\n", 0))
    # stdin
    p = sb.start("tr a-z A-Z", stdin=True)
    p.write("ab")
    p.write(iter([b"c", b"d\n"]), close=True)
    equal(p.wait().stdout, "ABCD\n")
    # a terminal
    p = sb.start("stty size; read x; stty size; tty", pty={"cols": 90, "rows": 30})
    p.resize(100, 40)
    p.write("\n")
    check(p.wait().stdout.replace("\r", "").endswith("40 100\n/dev/pts/0\n"), "the terminal's size")
    # signals
    p = sb.start("sleep 100 & sleep 100")
    p.signal("TERM", group=True)
    r = p.wait()
    equal((r.signal, r.exit_code, r.reason), ("SIGTERM", 143, "signaled"))
    # detach, attach by the token alone over TCP, offsets
    p = sb.detach("for i in 1 2 3; do echo line $i; sleep 0.2; done", tag="three")
    tcp = f"http://127.0.0.1:{PORT}"
    equal(Space(tcp).attach(sb.id, p.pid, p.attach_token).wait().stdout, "line 1\nline 2\nline 3\n")
    fails("unauthorized", lambda: Space(tcp).attach(sb.id, p.pid, "x" * 40).wait(), 401)
    equal(p.output(stdout=7).wait().stdout, "line 2\nline 3\n")
    check(any(x.pid == p.pid and x.tag == "three" and x.exit.code == 0 for x in sb.processes()), "in the list of commands")
    # cut again and again
    cutter = Cutter(4000)
    n = 3000
    through = Space(cutter.path, resume=10).get(sb.id)
    p = through.start(f"for i in $(seq {n}); do echo out $i; [ $((i % 10)) = 0 ] && echo err $i >&2; [ $((i % 300)) = 0 ] && sleep 0.05; done; exit 5")
    r = p.wait()
    equal(r.stdout, "".join(f"out {i}\n" for i in range(1, n + 1)), "every byte once")
    equal(r.stderr, "".join(f"err {i}\n" for i in range(10, n + 1, 10)), "every byte of stderr once")
    equal(r.exit_code, 5)
    check(cutter.cuts > 3, f"only {cutter.cuts} cuts")
    # one that is cut for good gives up, and says so
    p = sb.start("sleep 30")
    p2 = Space(cutter.path, resume=0.3).get(sb.id).process(p.pid)
    cutter.close()
    fails("daemon_down", p2.wait)
    # closed from another thread
    threading.Timer(0.3, p.close).start()
    equal(list(p), [])
    p.kill()
    equal(p.wait().signal, "SIGKILL")
    # wait() with a limit says what is left
    r = sb.start("head -c 100000 /dev/zero").wait(limit=1000)
    equal((len(r.stdout_bytes), r.truncated["stdout"], r.next["stdout"]), (1000, True, 1000))
    # files
    data = os.urandom(3 << 20)
    w = sb.write("/tmp/a b/ü", data, mode="0750")
    import hashlib
    equal((w.size, w.sha256), (len(data), hashlib.sha256(data).hexdigest()))
    equal(sb.read("/tmp/a b/ü"), data)
    equal(sb.stat("/tmp/a b/ü").mode, "0750")
    with sb.open("/tmp/a b/ü", offset=5, length=10) as f:
        equal((f.status, f.mode, f.read()), (206, "0750", data[5:15]))
    here = os.path.join(DIR, "pyclient.bin")
    equal(sb.open("/tmp/a b/ü").save(here), len(data))
    equal(open(here, "rb").read(), data)
    with open(here, "rb") as f:
        equal(sb.write("/tmp/copy", f).size, len(data))
    equal(sb.write("/tmp/gen", (bytes([i]) * 1000 for i in range(100))).size, 100000)
    os.unlink(here)
    sb.write("/tmp/text", "grüße")
    equal(sb.read_text("/tmp/text"), "grüße")
    sb.mkdir("/tmp/dir/sub")
    sb.mkdir("/tmp/dir/sub")
    sb.move("/tmp/text", "/tmp/dir/sub/text")
    equal(sorted(e.path for e in sb.list("/tmp/dir", depth=2)), ["/tmp/dir/sub", "/tmp/dir/sub/text"])
    fails("file_not_found", lambda: sb.read("/tmp/text"), 404)
    fails("file_not_found", lambda: sb.open("/tmp/text"), 404)
    sb.remove("/tmp/text")
    # an upload that is refused at once says why, however much is left to send; one that breaks off leaves what was there
    fails("bad_request", lambda: sb.write("/tmp/x", (bytes(65536) for _ in range(200)), mode="rwx"), 400)

    def broken():
        yield b"half"
        raise RuntimeError("mine")
    try:
        sb.write("/tmp/gen", broken())
        fail("a source that breaks is no success")
    except RuntimeError as e:
        equal(str(e), "mine")
    equal(sb.stat("/tmp/gen").size, 100000)
    # a download that is cut is an error, and leaves no file
    cutter = Cutter(1 << 20)
    cut = Space(cutter.path).get(sb.id)
    fails("daemon_down", lambda: cut.read("/tmp/copy"))
    fails("daemon_down", lambda: cut.open("/tmp/copy").save(here))
    fails("daemon_down", lambda: cut.get_tar("/tmp/copy").read())
    check(not [f for f in os.listdir(DIR) if f.startswith("pyclient")], "no half of it is left")
    cutter.close()
    # tar, down and up
    tar = tarfile.open(fileobj=io.BytesIO(sb.get_tar("/tmp/dir").read()))
    check("dir/sub/text" in tar.getnames(), f"in the tar: {tar.getnames()}")
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as t:
        info = tarfile.TarInfo("from/tar")
        info.size = 5
        t.addfile(info, io.BytesIO(b"hello"))
    equal(sb.put_tar("/tmp/dir", out.getvalue()).files >= 1, True)
    equal(sb.read("/tmp/dir/from/tar"), b"hello")
    # watch
    with sb.watch("/tmp/dir", recursive=True) as events:
        equal(next(events).type, "start")
        sb.run("touch /tmp/dir/sub/new")
        e = next(events)
        equal((e.type, e.name, e.path), ("create", "sub/new", "/tmp/dir/sub/new"))
    fails("file_not_found", lambda: sb.watch("/no/such/place"), 404)
    # ports: by path, by header, by URL, raw
    sb.write("/tmp/www/index.html", "<p>served</p>")
    server = sb.detach("cd /tmp/www && exec python3 -m http.server 8000")

    def served():
        a = sb.request(8000, "GET", "/index.html")
        return a.status == 200 and a.read() == b"<p>served</p>"
    wait_for(served, 30, "the server")
    equal(sb.request(8000, "GET", "/none").status, 404)
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=20)
    c.request("GET", "/index.html", headers=sb.port_headers(8000))
    equal(c.getresponse().read(), b"<p>served</p>")
    c.close()
    c = sb.connect(8000)
    c.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
    raw_answer = b""
    while True:
        b = c.recv(1000)
        if not b:
            break
        raw_answer += b
    c.close()
    check(raw_answer.endswith(b"<p>served</p>"), f"by the tunnel: {raw_answer!r}")
    fails("port_closed", lambda: sb.connect(9), 502)
    server.kill()
    # over TCP with a key, by environment; what a key may not do
    key = s.create_key("py", scope="use")
    try:
        os.environ.update(SPACE_URL=tcp, SPACE_API_KEY=key.key)
        remote = Space()
        equal(remote.get(sb.id).run("echo far").stdout, "far\n")
        equal(remote.get(sb.id).port_url(8000, "/x"), f"{tcp}/v1/sandboxes/{sb.id}/ports/8000/x")
        fails("forbidden", lambda: remote.create_key("more"), 403)
        del os.environ["SPACE_API_KEY"]
        fails("unauthorized", lambda: list(Space().sandboxes()), 401)
    finally:
        del os.environ["SPACE_URL"]
        s.delete_key(key)
    check(key.id not in [k.id for k in s.keys()], "the key is gone")
    # pause, wake, deadline, events, logs, metrics
    equal(sb.pause().state, "paused")
    fails("sandbox_not_running", lambda: sb.run("true"), 409)
    equal(sb.wake(background=True).wait().state, "running")
    equal(sb.set_timeout("5m").info.timeout, 300)
    check(sb.metrics().mem_total > 0, "metrics")
    check("Linux" in sb.logs() or sb.logs(tail=1000) != "", "console")
    types = [e.type for e in sb.events(limit=2)]
    check(len(types) > 2, f"events: {types}")
    with sb.follow_events(after=0) as follow:
        equal([next(follow).type for _ in types], types, "the events that are followed")
    check(s.host().memory.limit > 0 and s.config().listen == f"127.0.0.1:{PORT}" and "listen" in s.config_yaml(), "host and config")
    check("space_" in s.metrics(), "metrics")
    check(any(t.name == "base" for t in s.templates()) and s.template("base").version >= 1, "template")
    check(s.image("base").digest.startswith("sha256:"), "image")
    # operations
    op = s.create(background=True, timeout=60)
    states = [o.state for o in op.follow()]
    equal(states[-1], "done")
    other = op.wait()
    check(other.id in [x.id for x in s.sandboxes()] and s.operation(op.id).state == "done", "made in the background")
    equal(other.kill(background=True).wait().state, "stopped")
    op = s.build_template("never", "no-such-image")
    fails("image_not_found", op.wait) if op.state != "failed" else None
equal(sb.state, "stopped")
fails("sandbox_gone", lambda: sb.run("true"), 410)
equal(sb.kill().state, "stopped", "again: the same")
