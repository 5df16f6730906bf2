# Another vcpu or memory than the template's is honoured: the first of a size boots, and the answer says so and how long; the second is a restore.
# serial
# variants: 1
# limit: 200
from t import *

import random

size = (200 + 2 * random.randrange(28)) << 20  # a size that no earlier run on this state has left a checkpoint of
a = api("POST", "/v1/sandboxes", {"vcpu": 2, "memory": size}, status=201, timeout=150).json
try:
    equal((a["vcpu"], a["memory"]), (2, size))
    equal(out(a["id"], "nproc"), "2")
    total = int(out(a["id"], "awk '/MemTotal/{print $2}' /proc/meminfo")) << 10
    check(0.7 * size < total < size, f"the guest sees {total}")
    equal(a["start"], "boot")
    p = a["phases"]
    check(p["boot"] > 1000, f"booting and saving takes its time: {p}")
    check(0.8 * p["total"] <= sum(v for k, v in p.items() if k != "total") <= 1.2 * p["total"], f"the phases make up the total: {p}")
    start = time.monotonic()
    b = api("POST", "/v1/sandboxes", {"vcpu": 2, "memory": size}, status=201, timeout=150).json
    api("DELETE", f"/v1/sandboxes/{b['id']}")
    check(b["start"] in ("restore", "pool"), f"the second of that size: {b['start']}")
finally:
    api("DELETE", f"/v1/sandboxes/{a['id']}")
with sandbox(disk="6G") as id:
    equal(show(id)["disk"], 6 << 30)
    size = int(out(id, "df --output=size -B1 / | tail -1"))
    check(size > 5.5 * (1 << 30), f"the guest's root has {size}")
error("POST", "/v1/sandboxes", {"disk": "1M"}, status=400)
