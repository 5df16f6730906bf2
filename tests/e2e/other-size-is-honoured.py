# Another vcpu or memory than the template's is honoured, the answer says how it was started, and the second start of that size is a restore.
# serial
# variants: 1
# limit: 200
from t import *

a = api("POST", "/v1/sandboxes", {"vcpu": 2, "memory": "256M"}, status=201, timeout=150).json
try:
    equal((a["vcpu"], a["memory"]), (2, 256 << 20))
    equal(out(a["id"], "nproc"), "2")
    total = int(out(a["id"], "awk '/MemTotal/{print $2}' /proc/meminfo")) << 10
    check(190 << 20 < total < 256 << 20, f"the guest sees {total}")
    check(a["start"] in ("boot", "restore"), a["start"])
    check(a["phases"].get("total", 0) > 0, f"{a['phases']}")
    start = time.monotonic()
    b = api("POST", "/v1/sandboxes", {"vcpu": 2, "memory": "256M"}, status=201, timeout=150).json
    api("DELETE", f"/v1/sandboxes/{b['id']}")
    check(b["start"] in ("restore", "pool"), f"the second of that size: {b['start']}")
finally:
    api("DELETE", f"/v1/sandboxes/{a['id']}")
with sandbox(disk="6G") as id:
    equal(show(id)["disk"], 6 << 30)
    size = int(out(id, "df --output=size -B1 / | tail -1"))
    check(size > 5.5 * (1 << 30), f"the guest's root has {size}")
error("POST", "/v1/sandboxes", {"disk": "1M"}, status=400)
