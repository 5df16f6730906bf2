"""What the agent's protocol tests share: an agent of their own in a mount namespace, and a client that sees every byte."""
import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.parse

HOST = "127.0.0.1"


def b64(data):
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def free_port():
    s = socket.socket()
    s.bind((HOST, 0))
    port = s.getsockname()[1]
    s.close()
    return port


class Failure(Exception):
    pass


def check(cond, what="check failed"):
    if not cond:
        raise Failure(what)


def same(got, want, what="value"):
    if got != want:
        raise Failure("%s: got %r, want %r" % (what, got, want))


def until(fn, seconds=5.0, what="condition"):
    """Polls FN until it is true and returns what it returned."""
    end = time.time() + seconds
    while True:
        v = fn()
        if v:
            return v
        if time.time() > end:
            raise Failure("%s did not come within %s s" % (what, seconds))
        time.sleep(0.02)


class Agent:
    """space-agent --test with its own /etc/passwd: root, user (1000), other (1001), and groups; a tiny tmpfs at TINY."""

    def __init__(self, binary, *options):
        self.dir = tempfile.mkdtemp(prefix="space-agent-test-")
        os.chmod(self.dir, 0o755)
        self.root = os.path.join(self.dir, "root")
        self.home = os.path.join(self.dir, "home")
        self.tiny = os.path.join(self.dir, "tiny")
        for d in (self.root, self.home, self.tiny):
            os.mkdir(d)
        os.chown(self.home, 1000, 1000)
        self.write("passwd", "root:x:0:0:root:%s/roothome:/bin/bash\nuser:x:1000:1000::%s:/bin/bash\nother:x:1001:1001::/tmp:/bin/sh\n"
                   "damaged line\nnumber:x:abc:1:::\n" % (self.dir, self.home))
        self.write("group", "root:x:0:\nuser:x:1000:\nother:x:1001:\nsudo:x:27:user\nteam:x:2000:other,user\n")
        os.mkdir(os.path.join(self.dir, "roothome"))
        self.port = free_port()
        # Started as under nohup or in the background: what is ignored here must not reach the commands.
        script = ("trap '' HUP INT QUIT; mount --bind %(d)s/passwd /etc/passwd && mount --bind %(d)s/group /etc/group && "
                  "mount -t tmpfs -o size=256k,nr_inodes=64 tiny %(d)s/tiny && exec \"$0\" \"$@\"" % {"d": self.dir})
        # AddressSanitizer keeps freed memory: what a program needs can't be told from its size then.
        self.sized = b"__asan_init" not in open(binary, "rb").read()
        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.proc = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", script, binary, "--test", "--port", str(self.port), "--root", self.root, *options],
            stderr=self.log, stdout=self.log, stdin=subprocess.DEVNULL)
        try:
            until(self.listens, 10, "the agent's port")
        except Failure:
            self.stop()
            raise

    def write(self, name, text):
        with open(os.path.join(self.dir, name), "w") as f:
            f.write(text)

    def listens(self):
        if self.proc.poll() is not None:
            raise Failure("the agent has exited: " + open(os.path.join(self.dir, "log")).read())
        try:
            socket.create_connection((HOST, self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        if self.proc.poll() is None:
            self.proc.terminate()
            try:
                self.proc.wait(10)
            except subprocess.TimeoutExpired:
                self.proc.kill()
                self.proc.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)

    def rss_kib(self):
        text = open("/proc/%d/status" % self.proc.pid).read()
        return int(re.search(r"VmRSS:\s+(\d+)", text).group(1))

    def check_grown(self, before_kib, limit_kib, now_kib=None):
        grown = (now_kib or self.rss_kib()) - before_kib
        check(not self.sized or grown <= limit_kib, "the agent grew by %d KiB" % grown)

    # --- plain HTTP ---

    def http(self, method, path, body=None, headers=None, chunks=None, timeout=30):
        """(status, headers, body). A dict is sent as JSON; CHUNKS, an iterable, as a chunked body."""
        c = http.client.HTTPConnection(HOST, self.port, timeout=timeout)
        headers = dict(headers or {})
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        if chunks is not None:
            c.request(method, path, body=iter(chunks), headers=headers, encode_chunked=True)
        else:
            c.request(method, path, body=body, headers=headers)
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, data

    def q(self, target, /, **query):
        return target + "?" + urllib.parse.urlencode({k: v for k, v in query.items() if v is not None})

    def init(self, **body):
        return self.http("POST", "/init", body)

    # --- Connect ---

    def rpc(self, method, body=None, user=None, headers=None, service=None):
        """A unary call: (status, message)."""
        service = service or ("filesystem.Filesystem" if method in FS_METHODS else "process.Process")
        h = {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}
        if user:
            h["Authorization"] = "Basic " + b64(user + ":")
        h.update(headers or {})
        status, _, data = self.http("POST", "/%s/%s" % (service, method), json.dumps(body or {}).encode(), h)
        return status, json.loads(data) if data else None

    def ok(self, method, body=None, **kw):
        status, msg = self.rpc(method, body, **kw)
        same(status, 200, "%s %r -> %r" % (method, body, msg))
        return msg

    def err(self, code, method, body=None, **kw):
        status, msg = self.rpc(method, body, **kw)
        check(status >= 400 and msg.get("code") == code, "%s: wanted %s, got %s %r" % (method, code, status, msg))
        return msg["message"]

    def stream(self, method, body, **kw):
        return Stream(self, method, body, **kw)

    def start(self, cmd, args=None, **kw):
        """Start: CMD is a shell line unless ARGS are given. Members of the request by name, else of Stream."""
        opts = {k: kw.pop(k) for k in ("user", "headers", "rcvbuf") if k in kw}
        process = {"cmd": cmd, "args": args} if args is not None else {"cmd": "/bin/bash", "args": ["-c", cmd]}
        for k in ("envs", "cwd"):
            if k in kw:
                process[k] = kw.pop(k)
        body = {"process": process, "stdin": False}
        body.update(kw)
        if body["stdin"] is None:
            del body["stdin"]
        return self.stream("Start", body, **opts)

    def run(self, cmd, args=None, **kw):
        """(stdout, stderr, end event)"""
        return self.start(cmd, args, **kw).result()

    def processes(self):
        status, _, data = self.http("GET", "/space/processes")
        same(status, 200)
        return json.loads(data)["processes"]


FS_METHODS = {"Stat", "MakeDir", "Move", "ListDir", "Remove", "WatchDir", "CreateWatcher", "GetWatcherEvents", "RemoveWatcher"}


class Stream:
    """A server stream, read envelope by envelope and no further than asked."""

    def __init__(self, agent, method, body, user=None, headers=None, rcvbuf=None, service=None):
        service = service or ("filesystem.Filesystem" if method in FS_METHODS else "process.Process")
        payload = json.dumps(body).encode()
        payload = b"\0" + struct.pack(">I", len(payload)) + payload
        lines = ["POST /%s/%s HTTP/1.1" % (service, method), "Host: x", "Content-Type: application/connect+json",
                 "Content-Length: %d" % len(payload)]
        if user:
            lines.append("Authorization: Basic " + b64(user + ":"))
        for k, v in (headers or {}).items():
            lines.append("%s: %s" % (k, v))
        self.s = socket.socket()
        if rcvbuf:
            self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.s.settimeout(30)
        self.s.connect((HOST, agent.port))
        self.s.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + payload)
        self.raw = b""
        self.body = b""
        self.ended = False
        self.last = None
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        self.status = int(head[0].split()[1])
        self.headers = {l.split(":", 1)[0].lower(): l.split(":", 1)[1].strip() for l in head[1:] if l}

    def _fill(self):
        data = self.s.recv(65536)
        if not data:
            raise Failure("the connection was cut in the middle of a stream")
        self.raw += data

    def _until(self, mark):
        while mark not in self.raw:
            self._fill()
        part, self.raw = self.raw.split(mark, 1)
        return part

    def _need(self, n):
        while len(self.body) < n:
            size = int(self._until(b"\r\n"), 16)
            while len(self.raw) < size + 2:
                self._fill()
            if size == 0:
                raise Failure("the body ended without an end-of-stream envelope")
            self.body += self.raw[:size]
            self.raw = self.raw[size + 2:]

    def next(self, timeout=30):
        """The next message, or None at the end; then self.last is the end's payload."""
        if self.ended:
            return None
        self.s.settimeout(timeout)
        self._need(5)
        flags, n = struct.unpack(">BI", self.body[:5])
        self._need(5 + n)
        msg = json.loads(self.body[5:5 + n])
        self.body = self.body[5 + n:]
        if flags & 2:
            self.ended = True
            self.last = msg
            return None
        same(flags, 0, "flags")
        return msg

    def events(self):
        while True:
            m = self.next()
            if m is None:
                return
            yield m.get("event", m)

    def pid(self):
        e = self.next()
        check(e and "start" in e.get("event", {}), "start is not the first event: %r %r" % (e, self.last))
        return e["event"]["start"]["pid"]

    def result(self, pid=True):
        if pid:
            self.the_pid = self.pid()
        out, err, end = b"", b"", None
        for e in self.events():
            if "data" in e:
                check(end is None, "data after end")
                d = e["data"]
                out += base64.b64decode(d.get("stdout", d.get("pty", "")))
                err += base64.b64decode(d.get("stderr", ""))
            elif "end" in e:
                end = e["end"]
        return out, err, end

    def error(self):
        """Reads to the end, and returns the error of it."""
        for _ in self.events():
            pass
        check(self.last.get("error"), "the stream ended without an error")
        return self.last["error"]

    def close(self):
        self.s.close()


def run_tests(namespace, names, agent):
    passed = failed = 0
    for name, fn in list(namespace.items()):
        if not name.startswith("test_") or (names and not any(n in name for n in names)):
            continue
        t = time.time()
        try:
            fn(agent)
            passed += 1
            print("ok   %s (%.2f s)" % (name[5:], time.time() - t), flush=True)
        except Exception as e:  # whatever it is, the next test runs
            failed += 1
            print("FAIL %s: %s" % (name[5:], e), flush=True)
            if not isinstance(e, Failure):
                traceback.print_exc()
    return passed, failed
