"""The checker checked: one thing of every kind is left behind on purpose, and each must be named; once it is away again, none may be."""
import contextlib, os, socket, subprocess, time

import leaks

SOCKETS = 8  # more than the sockets of a ready monitor, which are nobody's


@contextlib.contextmanager
def process(run, command=("sleep", "1000")):
    p = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**os.environ, "SPACE_TEST_DIR": run["dir"]})
    try:
        time.sleep(0.3)  # it has become that program
        yield
    finally:
        p.kill()
        p.wait()


def namespace(run):
    return process(run, ("unshare", "--net", "sleep", "1000"))


@contextlib.contextmanager
def mount(run):
    where = os.path.join(run["dir"], "leak-mount")
    os.mkdir(where)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "leak", where], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", where], check=True)
        os.rmdir(where)


@contextlib.contextmanager
def loop(run):
    path = os.path.join(run["dir"], "leak-disk")
    with open(path, "wb") as f:
        f.truncate(1 << 20)
    dev = subprocess.run(["losetup", "--find", "--show", path], check=True, capture_output=True, text=True).stdout.strip()
    try:
        yield
    finally:
        subprocess.run(["losetup", "--detach", dev], check=True)
        os.unlink(path)


@contextlib.contextmanager
def cgroup(run):
    for line in leaks.read("/proc/mounts").splitlines():
        where, kind = line.split(" ")[1:3]
        if kind in ("cgroup", "cgroup2"):
            path = os.path.join(where, os.path.basename(run["dir"]))
            with contextlib.suppress(OSError):
                os.mkdir(path)
                break
    else:
        raise RuntimeError("no control group can be made")
    try:
        yield
    finally:
        os.rmdir(path)


@contextlib.contextmanager
def descriptor(run):
    socks = []
    try:
        for _ in range(SOCKETS):
            s = socket.socket(socket.AF_UNIX)
            socks.append(s)
            s.connect(run["socket"])
            s.sendall(b"GET /healthz HTTP/1.1\r\n")
        time.sleep(0.3)
        yield
    finally:
        for s in socks:
            s.close()


@contextlib.contextmanager
def file(run, path=None):
    path = path or os.path.join(run["run"], "leak-file")
    open(path, "w").close()
    try:
        yield
    finally:
        os.unlink(path)


def temporary(run):
    return file(run, f"/tmp/{leaks.TEMPORARY[0]}leak.{os.getpid()}")


KINDS = (("process", process), ("network namespace in use", namespace), ("mount", mount), ("loop device", loop), ("control group", cgroup),
         ("descriptor of spaced", descriptor), ("file", file), ("temporary file", temporary))


def failures(run, quiet, snapshot, leaked):
    """What is wrong with the checker, as sentences. quiet(): now, when nothing moves; snapshot(): now; leaked(before): what is there after things could settle."""
    before, wrong = quiet(), []
    for kind, leak in KINDS:
        with leak(run):
            found = leaks.differences(before, snapshot())
            if not any(x.startswith(kind + ": ") for x in found):
                wrong.append(f"a {kind} that is left is not found; found: {found}")
    left = leaked(before)
    return wrong + [f"after all was put away there is still {x}" for x in left]
