# With rootfs read-only nothing written to the root survives in it, and a tmpfs of the size asked for is there to work in.
# variants: 1
# limit: 200
from t import *

WHAT = "ls -A / /root /srv; sha256sum /etc/passwd; ls -l /usr/bin | sha256sum"

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
    pristine = out(id, WHAT, user="root")
    write = "echo x > /root/x && echo 'x:x:9:9::/:/bin/sh' >> /etc/passwd && rm /usr/bin/less && mkdir -p /srv/new"
    r = sh(id, write, code=None, user="root")
    check(r["exit"]["code"] != 0 and "Read-only file system" in r["stderr"], f"root writes to it: {r}")
    # Root may insist. Then it is the layer in memory that is written to, which is there for as long as this sandbox is and cannot be kept.
    sh(id, "mount -o remount,rw / && " + write, user="root")
    check(out(id, WHAT, user="root") != pristine, "what was written is not there")
    error("POST", f"/v1/sandboxes/{id}/snapshots", {}, status=400, code="bad_request")
    fstype = out(id, "stat -f -c %T /")
    check(fstype in ("overlayfs", "erofs", "tmpfs"), fstype)
with sandbox(rootfs="read-only", tmpfs={"/scratch": "64M"}) as id:
    equal(out(id, WHAT, user="root"), pristine, "the image, as it was before the last one wrote over it")
r = cli("run", "--read-only", "--tmpfs", "/work:256M", "--", "sh", "-c", "df --output=size -B1M /work | tail -1; stat -f -c %T /work; cd /work && echo x > x")
size, kind = r.out.split()
check(250 <= int(size) <= 257 and kind == "tmpfs", r.out)
