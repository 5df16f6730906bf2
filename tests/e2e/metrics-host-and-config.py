# /metrics is Prometheus text that counts, /v1/host and `space config show` tell the settings in force, health needs no key.
from t import *

def metric(name):
    m = re.search(rf"^{name}(?:\{{[^}}]*\}})? ([0-9.e+-]+)$", api("GET", "/metrics").body.decode(), re.M)
    return float(m[1]) if m else None

text = api("GET", "/metrics").body.decode()
for line in text.splitlines():
    check(not line or line.startswith("# ") or re.fullmatch(r'[a-z_:][a-z0-9_:]*(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.eNInf]+', line), f"no Prometheus line: {line!r}")
names = {l.split("{")[0].split(" ")[0] for l in text.splitlines() if l and l[0] != "#"}
creates = [n for n in names if re.search("create", n) and n.endswith("_total")]
check(creates, f"no counter of creates in {sorted(names)}")
def total():
    return sum(float(l.rsplit(" ", 1)[1]) for l in api("GET", "/metrics").body.decode().splitlines() if l and l[0] != "#" and l.split("{")[0].split(" ")[0] in creates)
before = total()
with sandbox() as id:
    check(total() > before, "a create is counted")
    h = api("GET", "/v1/host").json
    check(h["sandboxes"]["running"] >= 1 and h["memory"]["reserved"] >= 512 << 20 and h["memory"]["limit"] > h["memory"]["reserved"], f"{h}")
    check(h["isolation"] in ("kvm", "emulated") and h["driver"] == "qemu" and h["driver_version"], f"{h}")
    m = api("GET", f"/v1/sandboxes/{id}/metrics").json
    for k in ("cpu_used_pct", "cpu_count", "mem_used", "mem_total", "mem_cache", "disk_used", "disk_total", "host_rss", "host_private", "host_cpu_s"):
        check(isinstance(m[k], (int, float)) and m[k] >= 0, f"{k} in {m}")
    check(300 << 20 < m["mem_total"] < 520 << 20 and m["cpu_count"] == 1, f"{m}")
c = api("GET", "/v1/config").json
text = cli("config", "show").out
for k, v in (("vcpu", "1"), ("memory", "512"), ("disk", "5"), ("timeout", "300"), ("overcommit", "1.5")):
    check(re.search(rf"^\s*{k}: *{v}", text, re.M), f"{k}: {v} in config show:\n{text[:1500]}")
check("#" in text, "with comments")
equal(api("GET", "/v1/config", headers={"Accept": "application/yaml"}).body.decode().strip(), text.strip())
where = ("127.0.0.1", PORT)
for p in ("/healthz", "/readyz", "/openapi.json"):
    api("GET", p, where=where)
error("GET", "/v1/sandboxes", where=where, status=401, code="unauthorized")
