#!/usr/bin/env python3
"""Figures: what `make bench` prints, and what docs/benchmarks.md was made from.

usage: tests/bench/run.py [--build DIR] [--state DIR] [--json FILE] [--n N] [--only WORD[,…]] [--long]

One unit for every start: first command output, from the first byte of the request to the first byte that the command printed, as a client
on the local socket sees it. Each figure is N runs (20 at least, unless --n says less), shown as median, p99 and least. With 20 runs the p99 is
the slowest. Ratios are of medians of this one run, on this one machine: absolute figures mean little elsewhere.

Starts are set against two boots. The reference is a bare QEMU with Debian's own bzImage and an initramfs with nothing but /bin/echo. The cold boot is
that of the same guest: the same kernel, initramfs, image and disk, QEMU's microvm with no serial output and a quiet kernel, started by hand,
until `echo` in it has answered: the fastest boot we know. Where bwrap, crun, podman or runsc are installed and work, the same command is
run by them as well; otherwise a line says why not. Parts: reference, start, burst, exec, files, memory, idle, peers,
checkpoint, branch, wake, lists.
"""
import argparse, importlib.machinery, importlib.util, json, os, platform, re, shutil, signal, socket, statistics, struct, subprocess, sys
import tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
loader = importlib.machinery.SourceFileLoader("runner", os.path.join(os.path.dirname(HERE), "run"))
runner = importlib.util.module_from_spec(importlib.util.spec_from_loader("runner", loader))
loader.exec_module(runner)

sys.path.insert(0, HERE)
import peers, state  # noqa: E402


class Report:
    """Collects figures and prints each as it comes."""

    def __init__(self, path):
        self.path, self.figures = path, {}

    def add(self, name, samples, unit="ms", note=""):
        s = sorted(samples)
        f = {"name": name, "n": len(s), "unit": unit, "median": statistics.median(s), "p99": s[min(len(s) - 1, int(len(s) * 0.99))], "min": s[0]}
        if note:
            f["note"] = note
        self.figures[name] = f
        digits = 0 if f["median"] >= 1000 else 1 if f["median"] >= 10 else 2
        print(f"{name:52} {f['median']:9.{digits}f} {f['p99']:9.{digits}f} {f['min']:9.{digits}f} {unit:6} n={len(s)}  {note}", flush=True)
        return f["median"]

    def one(self, name, value, unit, note=""):
        self.figures[name] = {"name": name, "value": value, "unit": unit, **({"note": note} if note else {})}
        print(f"{name:52} {value:9.2f} {'':19} {unit:6} {note}", flush=True)

    def ratio(self, what, a, b, goal=None):
        """a : b, of medians."""
        if a not in self.figures or b not in self.figures:
            return
        x, y = self.figures[a]["median"], self.figures[b]["median"]
        reached = "" if goal is None else f"   goal {goal:.3f}: {'reached' if x / y <= goal else 'NOT reached'}"
        self.figures["ratio: " + what] = {"name": what, "ratio": x / y, "goal": goal}
        print(f"  ratio  {what:59} {x / y:7.4f}  ({f'1/{y / x:.1f}' if x < y else f'{x / y:.1f} times'}){reached}", flush=True)

    def note(self, text):
        print("  " + text, flush=True)

    def save(self, machine):
        if self.path:
            with open(self.path, "w") as f:
                json.dump({"machine": machine, "figures": list(self.figures.values())}, f, indent=1)


def first_line(*argv):
    try:
        p = subprocess.run(argv, capture_output=True, text=True, timeout=20)
        return ((p.stdout or p.stderr).strip().splitlines() or ["?"])[0]
    except (OSError, subprocess.TimeoutExpired):
        return None


def machine_info(t):
    cpu = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    mem = int(re.search(r"MemTotal:\s+(\d+)", open("/proc/meminfo").read())[1]) >> 10
    h = t.api("GET", "/v1/host").json
    osr = dict(l.split("=", 1) for l in open("/etc/os-release").read().splitlines() if "=" in l)
    m = {
        "cpu": cpu[1] if cpu else platform.machine(), "cores": os.cpu_count(), "memory_mib": mem, "kernel": platform.release(),
        "os": osr.get("PRETTY_NAME", "").strip('"'), "load_before": os.getloadavg()[0], "isolation": h["isolation"], "driver": h["driver"],
        "driver_version": h["driver_version"], "guest_kernel": h["kernel"], "space": h["version"], "pool_clone": h["pool"]["clone"],
        "cache": "warm: each kind of start ran twice before it was counted",
        "peers": {p: v for p in ("bwrap", "crun", "podman", "runsc") if (v := first_line(p, "--version"))},
        "date": time.strftime("%Y-%m-%d"),
    }
    for k, v in m.items():
        print(f"# {k}: {v}")
    print(f"\n{'':52} {'median':>9} {'p99':>9} {'least':>9}")
    return m


# --- starts ---

def create_and_first_output(t, cmd, keep=None, **req):
    """ms from the first byte of the create to the first byte of output, over one connection; also the answer of the create."""
    c = t.Connection(timeout=120)
    c.connect()
    body = json.dumps(req)
    t0 = time.monotonic()
    c.request("POST", "/v1/sandboxes", body)
    r = c.getresponse()
    sb = json.loads(r.read())
    if r.status != 201:
        raise SystemExit(f"create: {r.status} {sb}")
    c.request("POST", f"/v1/sandboxes/{sb['id']}/exec", json.dumps({"cmd": cmd}))
    ms = state.until_output(c, t0)
    if keep is not None:
        keep.append(sb["id"])
    else:
        t.api("DELETE", f"/v1/sandboxes/{sb['id']}")
    return ms, sb


def wait_pool(t, monitors, slots, seconds=60):
    def full():
        h = t.api("GET", "/v1/host").json
        return h["monitors_ready"] >= monitors and h["slots_ready"] >= slots
    t.wait_for(full, seconds, f"{monitors} ready QEMUs")
    time.sleep(0.3)  # the refill's own load is not what is measured


def part_reference(b):
    try:
        ref = peers.Reference(b)
    except peers.NotHere as e:
        b.rep.note(f"reference: not measured: {e}")
        return
    try:
        b.rep.note(f"reference: {ref.version}")
        b.rep.add("reference: bare QEMU, bzImage, /bin/echo", [ref.boot() for _ in range(b.n + 1)][1:])
    finally:
        ref.close()


def part_start(b):
    t, rep, n = b.t, b.rep, b.n
    rep.add("cold boot, same guest", [peers.cold_boot(b) for _ in range(n + 1)][1:])
    for ready, name in ((0, "from the template"), (1, "from the template, QEMU ready")):
        b.restart(ready_monitors=ready, ready_slots=2)
        for cmd, what in ((["echo", "x"], ""), (["python3", "-c", "print(6*7)"], ", python3 -c")):
            times, phases = [], []
            for i in range(n + 2):
                wait_pool(t, ready, 2)
                ms, sb = create_and_first_output(t, cmd)
                if i >= 2:
                    times.append(ms)
                    phases.append(sb["phases"])
            rep.add(name + what, times)
            if not what:
                rep.note("phases, median ms: " + ", ".join(f"{k} {statistics.median(p.get(k, 0) for p in phases):.1f}" for k in phases[-1]))
    cold, ref = "cold boot, same guest", "reference: bare QEMU, bzImage, /bin/echo"
    rep.ratio("our own cold boot : reference", cold, ref, 0.6)
    for what, name, to_cold, to_ref in (("template", "from the template", 1 / 18, 1 / 20), ("template, QEMU ready", "from the template, QEMU ready", 1 / 25, 1 / 40),
                                        ("template, python3 -c", "from the template, python3 -c", None, 1 / 8)):
        rep.ratio(f"{what} : reference", name, ref, to_ref)
        rep.ratio(f"{what} : cold boot", name, cold, to_cold)


def part_burst(b):
    t, rep = b.t, b.rep
    b.restart(ready_monitors=2, ready_slots=4)
    wait_pool(t, 2, 4)
    ids = []
    t0 = time.monotonic()
    rep.add("20 starts back to back, each", [create_and_first_output(t, ["echo", "x"], keep=ids)[0] for _ in range(20)],
            note=f"all in {(time.monotonic() - t0) * 1000:.0f} ms")
    b.kill(ids)
    wait_pool(t, 2, 4)
    times, ids = [], []
    t0 = time.monotonic()
    threads = [threading.Thread(target=lambda: times.append(create_and_first_output(t, ["echo", "x"], keep=ids)[0])) for _ in range(10)]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    rep.add("10 starts at once, each", times, note=f"all in {(time.monotonic() - t0) * 1000:.0f} ms")
    b.kill(ids)
    seconds, done = (60 if b.long else 20), 0
    t0 = time.monotonic()
    while time.monotonic() - t0 < seconds:
        create_and_first_output(t, ["echo", "x"])
        done += 1
    rep.one("create, echo, delete, sustained", done / (time.monotonic() - t0), "/s", f"for {seconds} s, one client")


# --- a running sandbox ---

def part_exec(b):
    t, rep, n = b.t, b.rep, max(b.n, 20)
    with t.sandbox(timeout=600) as id:
        t.put(id, "/tmp/t.py", "import subprocess,time\nfor i in range(%d):\n t=time.monotonic(); subprocess.run(['/bin/true']); print((time.monotonic()-t)*1000)" % (n + 5))
        inside = [float(x) for x in t.out(id, "python3 /tmp/t.py").split()][5:]
        rep.add("fork and exec of /bin/true, inside the guest", inside)
        for where, name in ((None, "exec /bin/true, local socket"), (("127.0.0.1", b.info["port"]), "exec /bin/true, TCP")):
            c = t.Connection(where)
            h = {"Authorization": "Bearer " + b.key()} if where else {}
            times = []
            for i in range(n * 2 + 5):
                t0 = time.monotonic()
                c.request("POST", f"/v1/sandboxes/{id}/exec?wait=1", b'{"cmd":["/bin/true"]}', h)
                r = c.getresponse()
                r.read()
                if r.status != 200:
                    raise SystemExit(f"exec: {r.status}")
                times.append((time.monotonic() - t0) * 1000)
            rep.add(name, times[5:])
            c.close()
        rep.ratio("exec over the local socket : inside the guest", "exec /bin/true, local socket", "fork and exec of /bin/true, inside the guest", 2.0)


def part_files(b):
    t, rep = b.t, b.rep
    size, block = 256 << 20, os.urandom(1 << 20)
    d = t.Daemon.main()
    up, down, runs = [], [], max(3, min(b.n // 4, 20))
    with t.sandbox(timeout=3000) as id:
        before = t.rss(d.pid)
        for i in range(runs):
            c = t.Connection(timeout=300)
            t0 = time.monotonic()
            c.request("PUT", f"/v1/sandboxes/{id}/files/home/user/big", (block for _ in range(256)), {"Content-Length": str(size)})
            r = c.getresponse()
            r.read()
            up.append(256 * 1.048576 / (time.monotonic() - t0))
            t0 = time.monotonic()
            c.request("GET", f"/v1/sandboxes/{id}/files/home/user/big")
            r = c.getresponse()
            while r.read(1 << 20):
                pass
            down.append(256 * 1.048576 / (time.monotonic() - t0))
            c.close()
        rep.add("upload of 256 MiB, fsynced", up, "MB/s", "p99 is the best here, least the worst")
        rep.add("download of 256 MiB", down, "MB/s", "p99 is the best here, least the worst")
        rep.one("spaced grew by, meanwhile", (t.rss(d.pid) - before) / 1024, "KiB")
        peers.copy_tree(b, id)


# --- memory and idle ---

def private(pid):
    text = open(f"/proc/{pid}/smaps_rollup").read()
    return sum(int(m) for m in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+)", text)) << 10


def pss(pid):
    return int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read(), re.M)[1]) << 10


def part_memory(b):
    t, rep = b.t, b.rep
    b.restart(ready_monitors=0, ready_slots=2)
    pid = t.Daemon.main().pid
    time.sleep(2)
    base = t.rss(pid)
    rep.one("spaced, idle, resident", base / (1 << 20), "MiB")
    ids = []
    try:
        first = None
        for i in range(10):
            ids.append(t.api("POST", "/v1/sandboxes", {"timeout": 600}, status=201).json["id"])
            t.out(ids[-1], "echo ok")
            if i == 0:
                time.sleep(1)
                first = pss(t.monitor_pid(ids[0]))
        time.sleep(2)
        total = sum(pss(t.monitor_pid(i)) for i in ids)
        tenth = private(t.monitor_pid(ids[-1]))
        rep.one("one idle sandbox", first / (1 << 20), "MiB", "proportional set of its QEMU, alone")
        rep.one("the tenth adds", tenth / (1 << 20), "MiB", f"{tenth / first * 100:.0f} % of the first; ten together {total / (1 << 20):.0f} MiB")
        rep.one("spaced, per sandbox", (t.rss(pid) - base) / 10 / 1024, "KiB")
    finally:
        b.kill(ids)


def part_idle(b):
    t, rep = b.t, b.rep
    ids = []
    b.restart(ready_monitors=0, ready_slots=2, memory_limit="40G")
    try:
        for count in (1, 10, 50) if b.long else (1, 10):
            while len(ids) < count:
                ids.append(t.api("POST", "/v1/sandboxes", {"timeout": 3000}, status=201).json["id"])
                t.out(ids[-1], "true")
            time.sleep(8)
            pids = [t.monitor_pid(i) for i in ids]
            daemon = t.Daemon.main().pid
            c0, t0 = sum(map(t.cpu_seconds, pids)), time.monotonic()
            d0 = t.cpu_seconds(daemon)
            time.sleep(15)
            took = time.monotonic() - t0
            rep.one(f"idle sandbox, of {count}: CPU", (sum(map(t.cpu_seconds, pids)) - c0) / took / count * 100, "%", "of one core")
            rep.one(f"spaced with {count} idle sandboxes: CPU", (t.cpu_seconds(daemon) - d0) / took * 100, "%", "of one core")
    finally:
        b.kill(ids)


def part_peers(b):
    rep = b.rep
    for name, fn in (("bwrap", peers.bwrap), ("crun", peers.crun), ("podman", peers.podman), ("runsc do", peers.runsc)):
        try:
            fn(b)
            rep.add(f"{name} echo", [fn(b) for _ in range(b.n)])
        except peers.NotHere as e:
            rep.note(f"{name}: not measured: {e}")
            continue
        for ours in ("from the template", "from the template, QEMU ready"):
            rep.ratio(f"{ours} : {name}", ours, f"{name} echo", 0.06 if name == "runsc do" else None)


PARTS = {"reference": part_reference, "start": part_start, "burst": part_burst, "exec": part_exec, "files": part_files, "memory": part_memory, "idle": part_idle, "peers": part_peers,
         **state.PARTS}


class Bench:
    def __init__(self, a):
        self.n, self.long = a.n, a.long
        self.rep = Report(a.json)
        args = argparse.Namespace(build=a.build, state=a.state, json=None, keep=False, jobs=1, image_from=a.image_from)
        self.r = runner.Runner(args)
        self.info = self.r.info
        try:
            self.r.up()
        except BaseException:
            self.r.clean()
            raise
        self.t = self.r.t
        self._key = None

    def key(self):
        if not self._key:
            self._key = self.t.api("POST", "/v1/keys", {"name": "bench", "scope": "use"}, status=201).json
        return self._key["key"]

    def kill(self, ids):
        for i in ids:
            self.t.api("DELETE", f"/v1/sandboxes/{i}")

    def restart(self, **config):
        d = self.t.Daemon.main()
        d.restart(**config)
        # Once, so that the memory of the template is loaded.
        with self.t.sandbox() as id:
            self.t.out(id, "true")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", default=os.environ.get("BUILD_DIR", os.path.join(os.path.dirname(os.path.dirname(HERE)), "build")))
    p.add_argument("--state")
    p.add_argument("--image-from", action="append", default=[], help="a state directory whose kernel and base image are taken over")
    p.add_argument("--json")
    p.add_argument("--n", type=int, default=20)
    p.add_argument("--only", default=",".join(PARTS))
    p.add_argument("--long", action="store_true")
    a = p.parse_args()
    if os.geteuid() != 0:
        print("tests/bench/run.py: needs root")
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is put away
    b = Bench(a)
    try:
        m = machine_info(b.t)
        for part in a.only.split(","):
            PARTS[part](b)
        m["load_after"] = os.getloadavg()[0]
        b.rep.save(m)
    finally:
        b.r.clean()
    return 0


if __name__ == "__main__":
    sys.exit(main())
