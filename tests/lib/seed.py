"""Takes kernel and base image over from another state directory's pool, so that a test run need not build them once more.

The other pool may be in use. It is mounted here only if it is not, and unmounted again.
"""
import os, shutil, subprocess

FOLDERS = ("kernels", "disks", "names/kernels", "images", "names/images")


def mounted(path):
    return any(l.split(" ")[4] == path for l in open("/proc/self/mountinfo"))


def pool(tool, state, verb):
    return subprocess.run([tool, "--state-dir", state, verb], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def has_base(state):
    return os.path.exists(os.path.join(state, "pool/names/images/base"))


def take_over(tool, sources, state):
    """The one of SOURCES (state directories) that the base image came from; None: no one has it, or STATE had it already. TOOL: space-image."""
    state = os.path.realpath(state)
    if not os.path.exists(os.path.join(state, "pool")):
        for source in sources:
            source = os.path.realpath(source)
            if source != state and os.path.exists(os.path.join(source, "pool")) and copy_from(tool, source, state):
                return source
    return None


def copy_from(tool, source, state):
    image = os.path.exists(os.path.join(source, "pool.xfs"))
    ours = image and not mounted(os.path.join(source, "pool"))
    if ours and not pool(tool, source, "pool-mount"):
        return False
    try:
        if not has_base(source):
            return False
        os.makedirs(state, mode=0o711, exist_ok=True)
        good = pool(tool, state, "pool-mount")
        for d in FOLDERS if good else ():
            to = os.path.join(state, "pool", d)
            good = good and subprocess.run(["cp", "-a", "--sparse=always", os.path.join(source, "pool", d) + "/.", to], capture_output=True).returncode == 0
        pool(tool, state, "pool-unmount")
        if not good:
            # Half a pool is none.
            for n in ("pool", "pool.xfs", "pool.lock"):
                path = os.path.join(state, n)
                shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.path.exists(path) and os.unlink(path)
        return good
    finally:
        if ours:
            pool(tool, source, "pool-unmount")
