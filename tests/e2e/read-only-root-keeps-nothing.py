# With rootfs read-only nothing written to the root survives in it, and a tmpfs of the size asked for is there to work in.
# variants: 1
# limit: 200
from t import *

with sandbox(rootfs="read-only", tmpfs={"/scratch": "64M"}) as id:
    equal(show(id)["rootfs"], "read-only")
    equal(show(id)["tmpfs"], {"/scratch": 64 << 20})
    equal(out(id, "stat -f -c %T /scratch"), "tmpfs")
    size = int(out(id, "df --output=size -B1 /scratch | tail -1"))
    check(60 << 20 <= size <= 66 << 20, f"/scratch has {size} bytes")
    sh(id, "echo data > /scratch/f && cat /scratch/f", user="root")
    r = sh(id, "head -c 80000000 /dev/zero > /scratch/big", code=None, user="root")
    check(r["exit"]["code"] != 0 and "No space" in r["stderr"], "the limit holds")
    # No disk of its own: what the root takes in lies in memory, and is little.
    check("/dev/vdb" not in out(id, "cat /proc/mounts"), "no writable disk is mounted")
    sh(id, "echo x > /root/x; true", user="root", code=None)
    fstype = out(id, "stat -f -c %T /")
    check(fstype in ("overlayfs", "erofs", "tmpfs"), fstype)
with sandbox(rootfs="read-only") as id:
    r = sh(id, "cat /root/x", code=None, user="root")
    check(r["exit"]["code"] != 0, "nothing of the last one")
r = cli("run", "--read-only", "--tmpfs", "/scratch:32M", "--", "sh", "-c", "df --output=size -B1M /scratch | tail -1")
check(28 <= int(r.out) <= 33, r.out)
