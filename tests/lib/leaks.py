"""What the machine holds because of one test run, as counted lines, so that two moments can be compared.

Everything is found from outside (/proc, /sys), never by asking spaced. Ids and numbers that change with every sandbox are replaced by a
letter, so that a ready QEMU that was used and replaced is the same line. `python3 leaks.py RUN.json` prints the lines.
"""
import collections, json, os, random, re, socket, sys

ID = re.compile(r"\b([in][a-z0-9]{20})\b")
SLOT = re.compile(r"\bs[0-9a-f]{12}\b")
# Names in /tmp of what our programs, and those they run, might leave there. A run's own directory begins with space-test.
TEMPORARY = ("space-", "mmdebstrap", "apt.", "skopeo", "umoci")
TMP = re.compile(r"/tmp/\d+-[0-9a-f]{16}")


def free_port():
    """A port of loopback that is free and stays so while nobody listens: outside of what the kernel gives to connections of its own choice."""
    lowest = int(read("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    while True:
        port = random.randrange(max(1024, lowest - 16384), lowest)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def plain(text):
    return TMP.sub("/tmp/TMP", SLOT.sub("SLOT", ID.sub("ID", text)))


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def processes(run):
    """Of this run: its token in the environment, its directories in the command line, or a uid of its range."""
    token = "SPACE_TEST_DIR=" + run["dir"]
    lo, hi = run["uid_base"], run["uid_base"] + 10000
    for p in filter(str.isdigit, os.listdir("/proc")):
        st = read(f"/proc/{p}/status")
        if not st or re.search(r"^State:\s+[ZX]", st, re.M):
            continue
        uid = int(re.search(r"^Uid:\s+(\d+)", st, re.M)[1])
        cmd = read(f"/proc/{p}/cmdline").replace("\0", " ").strip()
        if int(p) == os.getpid() or "tests/run" in cmd:
            continue
        if lo <= uid < hi or run["dir"] in cmd or run["state"] in cmd or token in read(f"/proc/{p}/environ").split("\0"):
            yield p, uid, cmd


def program(cmd):
    return os.path.basename(cmd.split(" ")[0])


def descriptors(pid):
    """One line a descriptor, by what it is."""
    try:
        fds = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for f in fds:
        try:
            to = os.readlink(f"/proc/{pid}/fd/{f}")
        except OSError:
            continue
        yield (re.sub(r"^/proc/\d+/", "/proc/PID/", re.sub(r":?\[\d+\]", "", to)))


def tree(top):
    """Names below TOP. Of growing or renewed files only that they are there."""
    for at, dirs, files in os.walk(top):
        for n in dirs + files:
            path = os.path.join(at, n)
            if re.search(r"/pool/(tmp|lost\+found)(/|$)", path):
                if path.endswith("/tmp") or path.endswith("lost+found"):
                    continue
            yield path


def nodes_of_pool(state):
    """Ids of all nodes that lie in the pool, whatever they are for. They are to be those of /v1/tree."""
    return sorted(os.listdir(os.path.join(state, "pool/nodes")))


def cgroups(run):
    """Directories of control groups that carry the id of a sandbox or the name of this run."""
    seen = set()
    for line in read("/proc/mounts").splitlines():
        dev, where, kind = line.split(" ")[:3]
        if kind not in ("cgroup", "cgroup2"):
            continue
        for at, dirs, _ in os.walk(where):
            for d in dirs:
                path = os.path.join(at, d)
                real = os.stat(path, follow_symlinks=False) if os.path.isdir(path) else None
                if real and (real.st_dev, real.st_ino) not in seen and (ID.search(d) or os.path.basename(run["dir"]) in path.split("/")):
                    seen.add((real.st_dev, real.st_ino))
                    yield path


def ready_machines(run):
    """Monitors made ahead, by the notes in the run directory. How many there are is spaced's own affair (it keeps some of what was used
    lately), so nothing of theirs counts; one that is in no note does. {id: (uid, slot)}"""
    found = {}
    top = os.path.join(run["run"], "sandboxes")
    for id in os.listdir(top) if os.path.isdir(top) else []:
        try:
            note = json.loads(read(os.path.join(top, id, "machine.json")))
        except ValueError:
            continue
        if note.get("role") == "ready":
            found[id] = (note.get("uid"), note.get("slot"))
    return found


def snapshot(run):
    now = collections.Counter()
    ready = ready_machines(run)
    uids = {u for u, _ in ready.values()}
    theirs = re.compile("|".join([*ready, *(s for _, s in ready.values() if s)]) or r"(?!)")

    def add(kind, what):
        if not theirs.search(what):
            now[f"{kind}: {plain(what)}"] += 1

    spaced = read(run["pidfile"]).strip()
    nets = set()
    for pid, uid, cmd in processes(run):
        if uid in uids or any(id in cmd for id in ready):
            continue
        add("process", program(cmd))
        try:
            nets.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OSError:
            pass
        if pid == spaced:
            for d in descriptors(pid):
                add("descriptor of spaced", d)
    for _ in nets:
        add("network namespace in use", "net")
    for line in read("/proc/self/mountinfo").splitlines():
        where = line.split(" ")[4]
        if where.startswith((run["dir"], run["state"])):
            add("mount", where)
    for dev in os.listdir("/sys/block") if os.path.isdir("/sys/block") else []:
        back = read(f"/sys/block/{dev}/loop/backing_file").strip()
        if back.startswith((run["dir"], run["state"])):
            add("loop device", back)
    for name in os.listdir("/sys/class/net"):
        if not run.get("shared_host") or name.startswith(("tap", "space")):
            add("link", name)
    mine = run.get("ids")
    for path in cgroups(run):
        # On a machine where other daemons run their sandboxes, only ours count.
        m = ID.search(path)
        if not run.get("shared_host") or (mine is not None and m and m[1] in mine) or os.path.basename(run["dir"]) in path.split("/"):
            add("control group", path)
    for top in (run["run"], run["state"]):
        for path in tree(top):
            add("file", path)
    for path in os.listdir(run["dir"]):
        add("file", os.path.join(run["dir"], path))
    for name in os.listdir("/tmp"):
        if name.startswith(TEMPORARY) and not name.startswith("space-test."):
            if not run.get("shared_host") or f".{os.getpid()}" in name or name.startswith("mmdebstrap"):
                add("temporary file", re.sub(r"[A-Za-z0-9_]+$", "…", name))
    now["ready"] = len(ready)
    return now


# What may come and go by itself.
IGNORE = re.compile(
    r"^file: .*/(space\.db-(wal|shm)|[a-z-]+\.(log|yaml))$"
    r"|^descriptor of spaced: .*/space\.db-(wal|shm)( \(deleted\))?$"
    r"|^file: .*/(run\.json|refused)$"
    r"|^file: .*/pool/nodes/ID/digests$"  # made in the background for a node that is no longer new; one whose node is gone has a directory left as well
    r"|^file: .*__pycache__")


# Of a template that was used lately spaced keeps the files open, two more than are in use (src/sandbox/source.c).
CACHED = re.compile(r"^descriptor of spaced: (/memfd:space-guest.*|.*/pool/(images/.*|initrds/.*|kernels/.*|nodes/ID|nodes/ID/disk)( \(deleted\))?)$")
CACHED_MOST = 3
# What a ready monitor keeps open in spaced without its name on it.
ANONYMOUS = re.compile(r"^descriptor of spaced: (/proc/PID/pagemap|anon_inode:.*|net|socket)$")
ANONYMOUS_MOST = 3
# A connection that is just being kept alive or let go. One that is lost in every test adds up, and fails the look at the end of the run.
ANONYMOUS_SLACK = 1
# A template's variant (another size, a read-only root) is kept once it was made. Tests that make some say so.
NODE = re.compile(r"^file: .*/pool/nodes/ID(/|$)")


def differences(before, after, variants=0):
    """Lines that one of them has more often; what was there before and is gone counts as well."""
    out = []
    ready = abs(before["ready"] - after["ready"])
    for k in sorted(set(before) | set(after)):
        d = after[k] - before[k]
        if not d or k == "ready" or IGNORE.search(k):
            continue
        if CACHED.search(k) and abs(d) <= CACHED_MOST or ANONYMOUS.search(k) and abs(d) <= ANONYMOUS_MOST * ready + ANONYMOUS_SLACK or NODE.search(k) and 0 < d <= variants:
            continue
        out.append(f"{k}: {before[k]} before, {after[k]} after")
    return out


if __name__ == "__main__":
    for k, n in sorted(snapshot(json.load(open(sys.argv[1]))).items()):
        print(n, k)
