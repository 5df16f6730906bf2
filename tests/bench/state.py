"""Figures of the state: checkpoints, branches, suspension, and lists of many nodes. Parts of tests/bench/run.py."""
import json, os, sqlite3, statistics, threading, time

WRITE = "python3 -c \"import os,mmap; m=mmap.mmap(-1,32<<20); open('/tmp/pid','w').write(str(os.getpid()))\nfor i in range(0,32<<20,4096): m[i:i+8]=os.urandom(8)\nopen('/tmp/done','w').close()\nimport time; time.sleep(3000)\""


def until_output(c, t0):
    """ms from T0 to the first byte of output of the exec that C has just asked for. Ends the connection."""
    r, event, ms = c.getresponse(), "", None
    while ms is None:
        line = r.readline()
        if not line:
            raise SystemExit("a command without output")
        if line.startswith(b"event:"):
            event = line[6:].strip()
        if line.startswith(b"data:") and event == b"stdout":
            ms = (time.monotonic() - t0) * 1000
    while r.readline():
        pass
    c.close()
    return ms


def first_output(t, id, cmd=("echo", "x"), wait=None):
    """ms until the first byte of output of CMD in a sandbox; WAIT: a call that is made first, over the same connection."""
    c = t.Connection(timeout=120)
    c.connect()
    t0 = time.monotonic()
    if wait:
        c.request("POST", f"/v1/sandboxes/{id}/{wait}")
        r = c.getresponse()
        r.read()
        if r.status != 200:
            raise SystemExit(f"{wait}: {r.status}")
    c.request("POST", f"/v1/sandboxes/{id}/exec", json.dumps({"cmd": list(cmd)}))
    return until_output(c, t0)


def write_all(pool, bytes_):
    """ms that writing so many bytes into the pool takes, synced."""
    path = os.path.join(pool, "bench-write")
    block = os.urandom(1 << 20)
    t0 = time.monotonic()
    try:
        with open(path, "wb", buffering=0) as f:
            for _ in range(max(1, bytes_ >> 20)):
                f.write(block)
            os.fdatasync(f.fileno())
        return (time.monotonic() - t0) * 1000
    finally:
        os.unlink(path)


def part_checkpoint(b):
    """A 512 MiB sandbox with 32 MiB changed each time."""
    t, rep = b.t, b.rep
    b.restart(ready_monitors=0, ready_slots=2)
    paused, took, own, touched = [], [], [], 0
    with t.sandbox(timeout=3000) as id:
        for i in range(b.n):
            t.out(id, "rm -f /tmp/done; [ -e /tmp/pid ] && kill $(cat /tmp/pid); (" + WRITE + ") >/dev/null 2>&1 & for i in $(seq 600); do [ -e /tmp/done ] && exit; sleep 0.1; done; exit 1",
                  timeout=120)
            t0 = time.monotonic()
            k = t.api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201).json
            took.append((time.monotonic() - t0) * 1000)
            paused.append(k["paused_ms"])
            own.append(k["own_bytes"] / (1 << 20))
            touched = max(touched, k["own_bytes"] + k["shared_bytes"])
            t.api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
        rep.add("checkpoint, 32 MiB changed: the guest stands still", paused)
        rep.add("checkpoint, 32 MiB changed: the call", took)
        rep.add("checkpoint, 32 MiB changed: own bytes", own, "MiB")
        rep.add("writing all touched memory", [write_all(os.path.join(b.info["state"], "pool"), touched) for _ in range(max(5, b.n // 2))],
                note=f"{touched >> 20} MiB")
    rep.ratio("standing still : writing all touched memory", "checkpoint, 32 MiB changed: the guest stands still", "writing all touched memory", 1 / 8)


def all_first(t, ids):
    times = []
    threads = [threading.Thread(target=lambda i=i: times.append(first_output(t, i))) for i in ids]
    for x in threads:
        x.start()
    for x in threads:
        x.join()
    return times


def part_branch(b):
    t, rep = b.t, b.rep
    b.restart(ready_monitors=0, ready_slots=12, memory_limit="64G")
    ten, creates, one = [], [], []
    for i in range(max(3, b.n // 4)):
        t0 = time.monotonic()
        ids, lock = [], threading.Lock()

        def create():
            sb = t.api("POST", "/v1/sandboxes", {}, status=201).json
            first_output(t, sb["id"])
            with lock:
                ids.append(sb["id"])
        threads = [threading.Thread(target=create) for _ in range(10)]
        for x in threads:
            x.start()
        for x in threads:
            x.join()
        creates.append((time.monotonic() - t0) * 1000)
        b.kill(ids)
        with t.sandbox(timeout=600) as id:
            t.out(id, "true")
            t0 = time.monotonic()
            res = t.api("POST", f"/v1/sandboxes/{id}/branch", {"count": 10}, status=201, timeout=120).json
            ids = [s["id"] for s in res["sandboxes"]]
            all_first(t, ids)
            ten.append((time.monotonic() - t0) * 1000)
            b.kill(ids)
    rep.add("10 creates at once, all have answered", creates)
    rep.add("a branch of 10, all have answered", ten)
    rep.ratio("branch of 10 : 10 creates", "a branch of 10, all have answered", "10 creates at once, all have answered", 1.5)
    first, last = [], []
    with t.sandbox(timeout=3000) as id:
        t.out(id, "true")
        for i in range(50):
            t0 = time.monotonic()
            res = t.api("POST", f"/v1/sandboxes/{id}/branch", {"count": 1}, status=201, timeout=120).json
            sb = res["sandboxes"][0]["id"]
            first_output(t, sb)
            one.append((time.monotonic() - t0) * 1000)
            b.kill([sb])
    first, last = one[:10], one[-10:]
    rep.add("a branch of one: the first ten of a parent", first)
    rep.add("a branch of one: the 41st to the 50th", last)
    rep.ratio("50th branch : first", "a branch of one: the 41st to the 50th", "a branch of one: the first ten of a parent", 1.3)


def part_wake(b):
    t, rep = b.t, b.rep
    b.restart(ready_monitors=0, ready_slots=4)
    create, wake, suspend, pause, execs = [], [], [], [], []
    with t.sandbox(timeout=3000) as id:
        t.out(id, "true")
        for i in range(b.n):
            execs.append(first_output(t, id))
            t.api("POST", f"/v1/sandboxes/{id}/pause", status=200)
            pause.append(first_output(t, id, wait="wake"))
        for i in range(b.n):
            t0 = time.monotonic()
            sb = t.api("POST", "/v1/sandboxes", {}, status=201).json["id"]
            first_output(t, sb)
            create.append((time.monotonic() - t0) * 1000)
            b.kill([sb])
            t0 = time.monotonic()
            t.api("POST", f"/v1/sandboxes/{id}/suspend", status=200)
            suspend.append((time.monotonic() - t0) * 1000)
            wake.append(first_output(t, id, wait="wake"))
    rep.add("exec on a running sandbox, first output", execs)
    rep.add("wake from a pause, first output", pause)
    rep.add("create from the template, first output", create)
    rep.add("suspend", suspend)
    rep.add("wake from suspension, first output", wake)
    rep.ratio("wake from a pause : exec", "wake from a pause, first output", "exec on a running sandbox, first output", 1.2)
    rep.ratio("wake from suspension : create", "wake from suspension, first output", "create from the template, first output", 1.5)


def part_lists(b):
    """10,000 nodes: rows put into the database while the daemon is down, each with a directory in the pool that has the node.json of a real one."""
    t, rep, n = b.t, b.rep, 10000
    with t.sandbox() as id:
        k = t.api("POST", f"/v1/sandboxes/{id}/snapshots", {"label": "many"}, status=201).json
    d = t.Daemon.main()
    nodes = os.path.join(b.info["state"], "pool", "nodes")
    note = open(os.path.join(nodes, k["id"], "node.json")).read()
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    names = ["n" + "".join(alphabet[(i // 36 ** p) % 36] for p in range(20)) for i in range(1, n)]
    d.stop()
    db = sqlite3.connect(os.path.join(b.info["state"], "space.db"))
    row = db.execute("SELECT body FROM record WHERE tbl='node' AND key=?", (k["id"],)).fetchone()[0]
    db.executemany("INSERT INTO record(tbl, key, body) VALUES('node', ?, ?)", [(x, row.replace(k["id"], x)) for x in names])
    db.commit()
    db.close()
    for x in names:
        os.mkdir(os.path.join(nodes, x), 0o700)
        with open(os.path.join(nodes, x, "node.json"), "w") as f:
            f.write(note.replace(k["id"], x))
    d.start()
    try:
        c = t.Connection()
        for path, what in (("/v1/tree", "tree"), ("/v1/checkpoints", "list"), (f"/v1/checkpoints/{names[n // 2]}", "show"), ("/v1/sandboxes", "sandboxes")):
            times = []
            for _ in range(max(b.n, 20)):
                t0 = time.monotonic()
                c.request("GET", path)
                r = c.getresponse()
                r.read()
                times.append((time.monotonic() - t0) * 1000)
                if r.status != 200:
                    raise SystemExit(f"{path}: {r.status}")
            rep.add(f"{what}, of {n} nodes", times)
        c.close()
    finally:
        d.stop()
        db = sqlite3.connect(os.path.join(b.info["state"], "space.db"))
        db.execute("DELETE FROM record WHERE tbl='node' AND key IN (SELECT key FROM record WHERE tbl='node' AND body LIKE '%many%')")
        db.commit()
        db.close()
        for x in names + [k["id"]]:
            dir = os.path.join(nodes, x)
            for f in os.listdir(dir) if os.path.isdir(dir) else []:
                os.unlink(os.path.join(dir, f))
            if os.path.isdir(dir):
                os.rmdir(dir)
        d.start()


PARTS = {"checkpoint": part_checkpoint, "branch": part_branch, "wake": part_wake, "lists": part_lists}
