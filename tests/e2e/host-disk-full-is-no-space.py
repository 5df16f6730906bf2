# When the pool is full, creates answer no_space, a guest that cannot write stands still as paused with host_disk_full, and with room again it goes on and nothing is lost.
# serial
# limit: 240
from t import *

pool = os.path.join(RUN["state"], "pool")
filler = os.path.join(pool, "tmp", "filler")
MIB = 1 << 20
WRITE = 160 * MIB
if not os.path.ismount(pool):
    skip("the pool is the host's own file system; it will not be filled for a test")


def fill():
    """Takes all room, again and again: the pool may grow while the host has some."""
    with open(filler, "ab") as f:
        size = 8 << 30
        while size > 4096:
            try:
                os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, size)
            except OSError:
                size //= 2


st = os.statvfs(pool)
if st.f_bavail * st.f_frsize > 60 << 30:
    skip("the pool is larger than this test wants to fill")
with sandbox() as id:
    sh(id, "echo kept > /home/user/kept; sync")
    try:
        fill()
        # Distinct blocks, so that none can be left out; the checksum is taken from what was meant to be written.
        program = (f"import hashlib,os\nh=hashlib.sha256()\nf=open('/home/user/big','wb')\n"
                   f"for i in range({WRITE // MIB}):\n b=hashlib.sha256(b'%d'%i).digest()*32768\n h.update(b);f.write(b)\n"
                   f"f.flush();os.fsync(f.fileno())\nopen('/home/user/sum','w').write(h.hexdigest())\n")
        pid = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"cmd": ["python3", "-c", program]}, status=201).json["pid"]
        deadline = time.monotonic() + 60
        while show(id)["state"] != "paused":
            check(time.monotonic() < deadline, f"a guest without room is shown paused: {show(id)['state']}")
            fill()
            time.sleep(0.5)
        equal(show(id)["reason"], "host_disk_full")
        a = error("POST", "/v1/sandboxes", {}, status=507, code="no_space")
        check(a["remedy"], "a remedy")
        error("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=409, code="sandbox_not_running")
    finally:
        os.unlink(filler)
    api("POST", f"/v1/sandboxes/{id}/wake")
    equal(show(id)["reason"], None)
    deadline = time.monotonic() + 60
    while any(p["pid"] == pid and p["running"] for p in api("GET", f"/v1/sandboxes/{id}/processes").json["processes"]):
        check(time.monotonic() < deadline, "the command that was held up goes on")
        time.sleep(0.3)
    equal(out(id, "cat /home/user/kept"), "kept")
    sh(id, "sync; echo 3 > /proc/sys/vm/drop_caches", user="root")
    equal(out(id, "sha256sum < /home/user/big | cut -c1-64"), out(id, "cat /home/user/sum"))
    deadline = time.monotonic() + 20  # until the daemon has looked again
    while api("POST", "/v1/sandboxes", {"name": "again"}, status=(201, 507)).status == 507:
        check(time.monotonic() < deadline, "creates go on")
        time.sleep(1)
    api("DELETE", "/v1/sandboxes/again")
