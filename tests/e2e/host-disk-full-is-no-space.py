# When the pool is full, creating answers no_space or a guest that cannot write is paused with host_disk_full; nothing that was acknowledged is lost, and with room all goes on.
# serial
# limit: 200
from t import *

pool = os.path.join(RUN["state"], "pool")
filler = os.path.join(pool, "tmp", "filler")
if not os.path.ismount(pool):
    skip("the pool is the host's own file system; it will not be filled for a test")
with sandbox() as id:
    sh(id, "echo kept > /home/user/kept; sync")
    st = os.statvfs(pool)
    if st.f_bavail * st.f_frsize > 60 << 30:
        skip("the pool is larger than this test wants to fill")
    try:
        with open(filler, "wb") as f:
            size = st.f_bavail * st.f_frsize
            while size > 4096:
                try:
                    os.posix_fallocate(f.fileno(), os.fstat(f.fileno()).st_size, size)
                except OSError:
                    size //= 2
        a = api("POST", "/v1/sandboxes", {}, status=(201, 503, 507), timeout=60)
        if a.status == 201:
            api("DELETE", f"/v1/sandboxes/{a.json['id']}")
        else:
            equal(a.json["code"], "no_space")
            check(a.json["remedy"], "a remedy")
        equal(api("GET", "/readyz", status=(200, 503)).status in (200, 503), True)
    finally:
        os.unlink(filler)
    j = show(id)
    if j["state"] == "paused":
        api("POST", f"/v1/sandboxes/{id}/wake")
    equal(out(id, "cat /home/user/kept"), "kept")
    with sandbox() as again:
        equal(out(again, "echo ok"), "ok")
