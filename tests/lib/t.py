"""What end-to-end tests share: the front door (the `space` program and the API), a sandbox for the time of a `with`, the daemon's life.

A test is one file. It fails by an exception or a status that is not 0, and says skip() when this machine lacks what it needs. The
environment comes from tests/run: SPACE_TEST_DIR (run.json lies there), SPACE_SOCKET, BUILD_DIR.
"""
import base64, contextlib, http.client, json, os, re, select, signal, socket, subprocess, sys, threading, time, urllib.parse

import leaks

DIR = os.environ["SPACE_TEST_DIR"]
BUILD = os.environ["BUILD_DIR"]
SPACE = os.path.join(BUILD, "src/cli/space")
SPACED = os.path.join(BUILD, "src/api/spaced")
RUN = json.load(open(os.path.join(DIR, "run.json")))
SOCKET = RUN["socket"]
PORT = RUN["port"]


class Skip(Exception):
    pass


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def fail(message):
    raise AssertionError(message)


def check(ok, message):
    if not ok:
        fail(message)


def equal(got, want, what=""):
    if got != want:
        fail(f"{what}: got {got!r}, want {want!r}")


def wait_for(fn, seconds, what):
    """fn() until it is true; its value."""
    end = time.monotonic() + seconds
    while True:
        v = fn()
        if v:
            return v
        if time.monotonic() > end:
            fail(f"{what}: not within {seconds} s")
        time.sleep(0.05)


# --- the program `space` ---

class Done:
    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    def json(self):
        return json.loads(self.out)


def cli_env(**more):
    env = {k: v for k, v in os.environ.items() if k not in ("SPACE_URL", "SPACE_API_KEY")}
    env.update(more)
    return env


def cli(*args, code=0, input=None, timeout=60, env=None, cwd=None, binary=False):
    p = subprocess.run([SPACE, *args], input=input, capture_output=True, timeout=timeout, env=env or cli_env(), cwd=cwd,
                       stdin=subprocess.DEVNULL if input is None else None)
    out, err = (p.stdout, p.stderr) if binary else (p.stdout.decode(errors="replace"), p.stderr.decode(errors="replace"))
    if code is not None and p.returncode != code:
        fail(f"space {' '.join(args)}: status {p.returncode}, want {code}\n--- stdout\n{out[-2000:]}\n--- stderr\n{err[-2000:]}")
    return Done(p.returncode, out, err)


# --- the API ---

class Connection(http.client.HTTPConnection):
    def __init__(self, where=None, timeout=60):
        self.where = where or SOCKET
        super().__init__("space", timeout=timeout)

    def connect(self):
        if isinstance(self.where, tuple):
            self.sock = socket.create_connection(self.where, self.timeout)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # head and body are two segments: Nagle's 40 ms are not the daemon's
            return
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.where)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __getitem__(self, key):
        return self.json[key]


def body_bytes(body):
    if body is None or isinstance(body, (bytes, bytearray)):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body).encode()


def api(method, path, body=None, status=None, headers=None, where=None, timeout=60):
    """One call. status: what it must answer (a number or several); None: any success."""
    c = Connection(where, timeout)
    try:
        c.request(method, path, body_bytes(body), headers or {})
        r = c.getresponse()
        a = Answer(r.status, r.headers, r.read())
    finally:
        c.close()
    want = status if isinstance(status, (tuple, list, range)) else (status,)
    if (status is None and not 200 <= a.status < 300) or (status is not None and a.status not in want):
        fail(f"{method} {path}: {a.status}, want {status or 'success'}: {a.body[:600]!r}")
    return a


def error(method, path, body=None, status=400, code=None, **kw):
    """A call that must fail as every failure does: the status, the code, a sentence, a remedy, the request's id."""
    a = api(method, path, body, status=status, **kw)
    j = a.json
    for k in ("code", "message", "remedy", "request_id"):
        check(isinstance(j.get(k), str) and j[k], f"{method} {path}: no {k} in {j}")
    want = code if isinstance(code, (tuple, list)) else (code,)
    if code and j["code"] not in want:
        fail(f"{method} {path}: code {j['code']}, want {code}: {j}")
    return j


def raw(data, where=None, timeout=10, until_close=True):
    """Bytes as they are; what came back until the peer closed or was silent for a second."""
    c = Connection(where, timeout)
    c.connect()
    s = c.sock
    out = b""
    try:
        s.sendall(data)
        s.settimeout(1.5)
        while True:
            b = s.recv(65536)
            if not b:
                break
            out += b
    except (TimeoutError, ConnectionResetError, BrokenPipeError):
        pass
    finally:
        s.close()
    return out


class Event:
    def __init__(self, id, event, data, at):
        self.id, self.event, self.data, self.at = id, event, data, at

    @property
    def bytes(self):
        """What a stdout, stderr or pty event carries."""
        return base64.b64decode(self.data["base64"]) if "base64" in self.data else self.data["data"].encode()

    def __repr__(self):
        return f"<{self.id} {self.event} {self.data}>"


class Stream:
    """The events of one answer, as they come."""

    def __init__(self, method, path, body=None, headers=None, last_id=None, where=None, timeout=60):
        self.c = Connection(where, timeout)
        h = {"Accept": "text/event-stream", **(headers or {})}
        if last_id:
            h["Last-Event-ID"] = last_id
        self.c.request(method, path, body_bytes(body), h)
        self.r = self.c.getresponse()
        self.status, self.headers = self.r.status, self.r.headers
        if self.status != 200:
            fail(f"{method} {path}: {self.status}: {self.r.read()[:600]!r}")

    def __iter__(self):
        id, event, data = None, "message", []
        while True:
            line = self.r.readline()
            if not line:
                return
            line = line.rstrip(b"\n").decode()
            if not line:
                if data:
                    yield Event(id, event, json.loads("\n".join(data)), time.monotonic())
                event, data = "message", []
            elif line.startswith("id:"):
                id = line[3:].strip()
            elif line.startswith("event:"):
                event = line[6:].strip()
            elif line.startswith("data:"):
                data.append(line[5:].strip())

    def close(self):
        """Cuts the connection, as a client that dies does."""
        try:
            self.c.sock and self.c.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.r.close()
        self.c.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def collect(events):
    """stdout, stderr and the exit of a stream of a command."""
    out, err, end = b"", b"", None
    for e in events:
        if e.event in ("stdout", "pty"):
            out += e.bytes
        elif e.event == "stderr":
            err += e.bytes
        elif e.event in ("exit", "error"):
            end = e
    return out, err, end


# --- sandboxes ---

@contextlib.contextmanager
def sandbox(where=None, **req):
    """A sandbox for the time of a `with`; what it is bound to is its id."""
    a = api("POST", "/v1/sandboxes", req, status=201, where=where, timeout=120)
    id = a.json["id"]
    try:
        yield id
    finally:
        api("DELETE", f"/v1/sandboxes/{id}", status=(200, 404), where=where)


def show(id, **kw):
    return api("GET", f"/v1/sandboxes/{id}", **kw).json


def sh(id, script, code=0, timeout=60, **more):
    """A shell script inside; its answer. code: the exit status it must have, None for any."""
    a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": script, **more}, timeout=timeout).json
    if code is not None and (a["exit"] or {}).get("code") != code:
        fail(f"{script!r} inside: {a['exit']}, want {code}\n--- stdout\n{a['stdout'][-1500:]}\n--- stderr\n{a['stderr'][-1500:]}")
    return a


def out(id, script, **kw):
    return sh(id, script, **kw)["stdout"].strip()


def drop_caches(id):
    """What is read next comes from the disk: a restored guest has the page cache of then in its memory, which says nothing about the disk."""
    sh(id, "sync; echo 3 > /proc/sys/vm/drop_caches", user="root")


@contextlib.contextmanager
def booted_from(node):
    """A sandbox that booted from the disk of a node, so that nothing in it can come from its memory."""
    with sandbox(snapshot=node) as id:
        equal(show(id)["start"], "boot", f"a start from the disk of {node}")
        yield id


def put(id, path, data, query="", status=201, **kw):
    return api("PUT", f"/v1/sandboxes/{id}/files{urllib.parse.quote(path)}{query}", data, status=status, **kw)


def get(id, path, query="", status=200, **kw):
    return api("GET", f"/v1/sandboxes/{id}/files{urllib.parse.quote(path)}{query}", status=status, **kw)


def events_of(id):
    return api("GET", f"/v1/sandboxes/{id}/events", headers={"Accept": "application/json"}).json["events"]


def wait_state(id, state, seconds=20):
    return wait_for(lambda: (lambda s: s if s["state"] == state else None)(show(id)), seconds, f"{id} {state}")


def wait_op(op, seconds=600, where=None):
    """An operation (the answer of a 202) to its end; fails unless it is done."""
    def ended():
        o = api("GET", f"/v1/operations/{op['id']}", where=where).json
        o = o.get("operation", o)
        return o if o["state"] != "running" else None
    return wait_for(ended, seconds, f"operation {op['kind']}")


def op_of(answer):
    return answer.json["operation"]


def build(path, body, seconds=600, where=None):
    o = wait_op(op_of(api("POST", path, body, status=202, where=where)), seconds, where)
    check(o["state"] == "done", f"{path}: {o}")
    return o


# --- daemons ---

BASE_CONFIG = RUN["config"]


free_port = leaks.free_port


class Daemon:
    """A spaced. The shared one is Daemon.main(); tests that are `# serial` may stop it and start it with other settings."""

    def __init__(self, state, run, config, name="own", env=None, prefix=(), extra=()):
        self.state, self.run, self.config, self.name, self.env = state, run, dict(config), name, env
        self.prefix, self.extra = list(prefix), list(extra)
        self.socket = os.path.join(run, "api.sock")
        self.pid, self.proc = None, None

    @staticmethod
    def main():
        d = Daemon(RUN["state"], RUN["run"], BASE_CONFIG, "main")
        d.pid = int(open(RUN["pidfile"]).read())
        return d

    def argv(self):
        path = os.path.join(DIR, f"{self.name}.yaml")
        with open(path, "w") as f:
            f.write(yaml(self.config))
        return [*self.prefix, SPACED, "--state-dir", self.state, "--run-dir", self.run, "--config", path,
                "--libexec-dir", RUN["libexec"], *self.extra]

    def start(self, ready=True, **config):
        self.config.update(config)
        log = open(os.path.join(DIR, f"{self.name}.log"), "ab")
        env = {**os.environ, **(self.env or {})}
        self.proc = subprocess.Popen(self.argv(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=env)
        log.close()
        self.pid = self.proc.pid
        if self.name == "main":
            with open(RUN["pidfile"], "w") as f:
                f.write(str(self.pid))
        if ready:
            self.wait_ready()
        return self

    def wait_ready(self, seconds=60):
        def up():
            if self.proc and self.proc.poll() is not None:
                fail(f"spaced ended with {self.proc.returncode}: {self.log()[-1500:]}")
            try:
                return api("GET", "/readyz", where=self.socket, status=(200, 503)).status == 200
            except (OSError, http.client.HTTPException):
                return False
        wait_for(up, seconds, "spaced ready")

    def log(self):
        return open(os.path.join(DIR, f"{self.name}.log"), errors="replace").read()

    def stop(self, sig=signal.SIGTERM, seconds=30):
        os.kill(self.pid, sig)
        if self.proc:
            self.proc.wait(seconds)
        else:
            wait_for(lambda: not alive(self.pid), seconds, "spaced gone")

    def restart(self, sig=signal.SIGTERM, **config):
        self.stop(sig)
        self.start(**config)


def alive(pid):
    """Is there a thread of it that runs? The first may be dead while another one still waits for the disk, and holds what all of them have open."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for t in threads:
        try:
            if open(f"/proc/{pid}/task/{t}/stat").read().rpartition(")")[2].split()[0] not in "ZX":
                return True
        except OSError:
            pass
    return False


def yaml(config, indent=""):
    text = ""
    for k, v in config.items():
        if isinstance(v, dict):
            text += f"{indent}{k}:\n" + yaml(v, indent + "  ")
        else:
            text += f"{indent}{k}: {str(v).lower() if isinstance(v, bool) else v}\n"
    return text


@contextlib.contextmanager
def main_with(**config):
    """The shared daemon with other settings, and as it was afterwards. Only for tests that are `# serial`."""
    d = Daemon.main()
    d.restart(**config)
    try:
        yield d
    finally:
        again = Daemon(RUN["state"], RUN["run"], BASE_CONFIG, "main")
        if alive(d.pid):
            again.pid, again.proc = d.pid, d.proc
            again.stop()
        again.start()


def refused(prefix=(), config=None, env=None, state=None, seconds=20, extra=()):
    """Starts a spaced that must not come up: its status and what it said."""
    base = os.path.join(DIR, "refused")
    os.makedirs(base, exist_ok=True)
    d = Daemon(state or os.path.join(base, "state"), os.path.join(base, "run"),
               {**BASE_CONFIG, "listen": "off", **(config or {})}, "refused", env, prefix, extra)
    log = os.path.join(DIR, "refused.log")
    if os.path.exists(log):
        os.unlink(log)
    d.start(ready=False)
    try:
        code = d.proc.wait(seconds)
    except subprocess.TimeoutExpired:
        d.stop(signal.SIGTERM)
        fail(f"spaced started although it should not: {d.log()[-1500:]}")
    return code, d.log()


# --- small things ---

def pids_of(pattern):
    """Processes whose command line holds PATTERN."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if pattern.encode() in open(f"/proc/{p}/cmdline", "rb").read() and alive(int(p)):
                found.append(int(p))
        except OSError:
            pass
    return found


def monitor_pid(id):
    """The QEMU of a sandbox, by its run directory in the command line or what it holds open."""
    for p in pids_of("qemu-system"):
        try:
            if not open(f"/proc/{p}/comm").read().startswith("qemu-system"):
                continue
            if id in open(f"/proc/{p}/cmdline").read() or any(id in os.readlink(f"/proc/{p}/fd/{f}") for f in os.listdir(f"/proc/{p}/fd")):
                return p
        except OSError:
            pass
    return None


def rss(pid):
    """Resident bytes."""
    return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{pid}/status").read())[1]) * 1024


def cpu_seconds(pid):
    f = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
    return (int(f[11]) + int(f[12])) / os.sysconf("SC_CLK_TCK")
