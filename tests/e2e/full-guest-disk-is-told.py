# A full disk inside gives 507 no_space for an upload, keeps the old file, and the sandbox works again once there is room.
# limit: 180
from t import *

with sandbox() as id:
    put(id, "/home/user/keep", b"old")
    sh(id, "df -m / | tail -1; fallocate -l $(( $(df --output=avail -B1 / | tail -1) - 12000000 )) /big", user="root")
    big = os.urandom(1 << 20) * 40
    j = error("PUT", f"/v1/sandboxes/{id}/files/home/user/keep", big, status=507, code="no_space", timeout=100)
    equal(get(id, "/home/user/keep").body, b"old", "the old file")
    equal(out(id, "ls -A /home/user | grep -c keep"), "1", "no temporary file is left")
    r = sh(id, "head -c 60000000 /dev/urandom > /home/user/x", code=None)
    check(r["exit"]["code"] != 0 and "No space" in r["stderr"], f"a program sees it as well: {r['stderr']}")
    sh(id, "rm -f /big /home/user/x", user="root")
    put(id, "/home/user/keep", b"new")
    equal(get(id, "/home/user/keep").body, b"new")
    m = api("GET", f"/v1/sandboxes/{id}/metrics").json
    check(0 < m["disk_used"] < m["disk_total"], f"{m}")
