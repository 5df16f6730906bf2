# A checkpoint of a running sandbox is whole, and stores little more than what has changed since the one before it: memory and disk.
# limit: 240
from t import *

NODES = os.path.join(RUN["state"], "pool/nodes")
BLOCK = 4096


def blocks(path):
    """Where a file has data, in blocks."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)  # XFS takes a cached page of a hole beside written blocks for data
        at, size, have = 0, os.fstat(fd).st_size, set()
        while at < size:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(fd, at, os.SEEK_HOLE)
            have.update(range(at // BLOCK, (end + BLOCK - 1) // BLOCK))
            at = end
        return have
    finally:
        os.close(fd)


def changed(a, b, name):
    """Bytes of 4 KiB blocks that differ between the files of two nodes."""
    pa, pb = (os.path.join(NODES, n, name) for n in (a, b))
    n = 0
    with open(pa, "rb") as fa, open(pb, "rb") as fb:
        for i in sorted(blocks(pa) | blocks(pb)):
            fa.seek(i * BLOCK)
            fb.seek(i * BLOCK)
            n += fa.read(BLOCK) != fb.read(BLOCK)
    return n * BLOCK


def checkpoint(id, **body):
    return api("POST", f"/v1/sandboxes/{id}/checkpoints", body, status=201, timeout=120).json


def nonzero(path):
    with open(path, "rb") as f:
        return sum(f.seek(i * BLOCK) >= 0 and any(f.read(BLOCK)) for i in blocks(path))


# A process that holds 64 MiB and changes 8,192 scattered bytes of them each time it is asked to.
holder = r"""
import os, random, sys
m = bytearray(os.urandom(1 << 20) * 64)
r = random.Random(1)
print("ready", flush=True)
for line in sys.stdin:
    for i in range(8192):
        m[r.randrange(len(m))] ^= 1
    print("done", flush=True)
"""

@contextlib.contextmanager
def no_checkpoints_left(id):
    try:
        yield
    finally:
        for k in api("GET", f"/v1/sandboxes/{id}/checkpoints").json["checkpoints"]:
            api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)


with sandbox(timeout=600) as id, no_checkpoints_left(id):
    put(id, "/tmp/holder.py", holder)
    sh(id, "mkfifo /tmp/in; sleep 1000 > /tmp/in 2> /dev/null < /dev/null & python3 /tmp/holder.py < /tmp/in > /tmp/out 2>&1 & "
           "for i in $(seq 300); do grep -q ready /tmp/out && exit 0; sleep 0.1; done; cat /tmp/out; exit 1")
    last = checkpoint(id, label="first")
    equal((last["kind"], last["sandbox"], last["label"]), ("checkpoint", id, "first"), "the checkpoint")
    equal(api("GET", f"/v1/checkpoints/{last['parent']}").json["kind"], "template", "its parent")
    check(last["paused_ms"] > 0, f"{last}")
    idle = 60 if os.environ.get("SPACE_TEST_LONG") else 15  # a guest that does nothing for a minute takes long to wait for; a quarter of one shows the same growth
    print(f"idle: {idle} s" + (" (60 with SPACE_TEST_LONG=1)" if idle < 60 else ""))
    rows = (
        ("8,192 scattered bytes", "echo > /tmp/in; for i in $(seq 300); do grep -q done /tmp/out && exit 0; sleep 0.1; done; exit 1"),
        ("a file of 32 MiB", "head -c 32M /dev/urandom > /tmp/big; sync"),
        (f"nothing for {idle} s", f"sleep {idle}"),
        ("100 MiB taken and given back", "python3 -c 'import os; b = bytearray(os.urandom(1 << 20)) * 100; assert len(b) == 100 << 20'"),
    )
    for what, script in rows:
        sh(id, script)
        k = checkpoint(id)
        equal(k["parent"], last["id"], what)
        memory, disk = (changed(last["id"], k["id"], f) for f in ("memory", "disk"))
        own = k["own_bytes"]
        print(f"{what}: changed memory {memory / 2**20:.1f} disk {disk / 2**20:.1f} own {own / 2**20:.1f} MiB, stood still {k['paused_ms']:.1f} ms")
        check(own <= 1.2 * (memory + disk) + (2 << 20), f"{what}: {own} bytes of its own, {memory} changed in memory, {disk} on the disk")
        check(own >= 0.9 * (memory + disk) - (1 << 20), f"{what}: {own} bytes of its own is too little to be true: {memory} + {disk} have changed")
        if "given back" in what:  # what is free is zero (init_on_free), so none of it is stored
            check(own < 8 << 20, f"{what}: {own} bytes of its own")
        last = k
    memory = os.path.join(NODES, last["id"], "memory")
    equal(nonzero(memory), len(blocks(memory)), "blocks of the memory that hold anything, and those that are stored")
    # What was saved runs: the process in it goes on.
    with_it = api("POST", "/v1/sandboxes", {"checkpoint": last["id"]}, status=201, timeout=120).json["id"]
    try:
        sh(with_it, "test -p /tmp/in && : > /tmp/out && echo > /tmp/in; for i in $(seq 300); do grep -q done /tmp/out && exit 0; sleep 0.1; done; exit 1")
        drop_caches(with_it)
        digest = out(id, "sha256sum < /tmp/big")
        equal(out(with_it, "sha256sum < /tmp/big"), digest, "the file")
    finally:
        api("DELETE", f"/v1/sandboxes/{with_it}")
    with booted_from(last["id"]) as it:
        equal(out(it, "sha256sum < /tmp/big"), digest, "the file on the disk alone")
    # One of the middle goes; the others still open.
    ks = api("GET", f"/v1/sandboxes/{id}/checkpoints").json["checkpoints"]
    equal(len(ks), 5, "checkpoints")
    for k in ks[1:]:
        api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
        check(not os.path.exists(os.path.join(NODES, k["id"])), "its files are gone")
    again = checkpoint(id, label="after")
    check(again["own_bytes"] < 24 << 20, f"after the others were removed: {again}")
    types = [e["type"] for e in events_of(id)]
    equal(types.count("checkpoint"), 6, "events")
