"""What the machine holds because of one test run, as counted lines, so that two moments can be compared.

Everything is found from outside (/proc, /sys), never by asking spaced. Ids and numbers that change with every sandbox are replaced by a
letter, so that a ready QEMU that was used and replaced is the same line. `python3 leaks.py RUN.json` prints the lines.
"""
import collections, json, os, re, sys

ID = re.compile(r"\b([in][a-z0-9]{20})\b")
SLOT = re.compile(r"\bs[0-9a-f]{12}\b")


def plain(text):
    return SLOT.sub("SLOT", ID.sub("ID", text))


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
        yield plain(re.sub(r"^/proc/\d+/", "/proc/PID/", re.sub(r":?\[\d+\]", "", to)))


def tree(top):
    """Names below TOP. Of growing or renewed files only that they are there."""
    for at, dirs, files in os.walk(top):
        for n in dirs + files:
            path = os.path.join(at, n)
            if re.search(r"/pool/(tmp|lost\+found)(/|$)", path):
                if path.endswith("/tmp") or path.endswith("lost+found"):
                    continue
            yield plain(path)


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
                if real and (real.st_dev, real.st_ino) not in seen and (ID.search(d) or os.path.basename(run["dir"]) in path):
                    seen.add((real.st_dev, real.st_ino))
                    yield path


def snapshot(run):
    now = collections.Counter()

    def add(kind, what):
        now[f"{kind}: {what}"] += 1

    spaced = read(run["pidfile"]).strip()
    nets = set()
    for pid, uid, cmd in processes(run):
        name = program(cmd)
        add("process", name)
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
            add("mount", plain(where))
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
        if not run.get("shared_host") or (mine is not None and m and m[1] in mine) or os.path.basename(run["dir"]) in path:
            add("control group", plain(path))
    for top in (run["run"], run["state"]):
        for path in tree(top):
            add("file", path)
    for path in os.listdir(run["dir"]):
        add("file", os.path.join(run["dir"], path))
    return now


# What may come and go by itself.
IGNORE = re.compile(
    r"^file: .*/(space\.db-(wal|shm)|[a-z-]+\.(log|yaml))$"
    r"|^descriptor of spaced: .*/space\.db-(wal|shm)( \(deleted\))?$"
    r"|^file: .*/(run\.json|refused)$"
    r"|^file: .*__pycache__")


def differences(before, after):
    """Lines that one of them has more often; what was there before and is gone counts as well."""
    out = []
    for k in sorted(set(before) | set(after)):
        if before[k] != after[k] and not IGNORE.search(k):
            out.append(f"{k}: {before[k]} before, {after[k]} after")
    return out


if __name__ == "__main__":
    for k, n in sorted(snapshot(json.load(open(sys.argv[1]))).items()):
        print(n, k)
