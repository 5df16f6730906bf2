# What is created from a checkpoint goes on as a new machine; from a snapshot (or a checkpoint's disk) it boots, also with another size; what cannot be is refused with the way out.
# limit: 240
from t import *

nodes = []
made = []


def create(**req):
    a = api("POST", "/v1/sandboxes", {"timeout": "10m", **req}, status=201, timeout=120).json
    made.append(a["id"])
    return a


try:
    with sandbox(env={"A": "1"}, tmpfs={"/scratch": "16M"}) as id:
        sh(id, "nohup sleep 7777 >/dev/null 2>&1 & echo disk > /home/user/f; echo mem > /scratch/f; sync")
        machine = out(id, "cat /etc/machine-id")
        nodes.append(api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "c"}, status=201, timeout=60).json["id"])
        nodes.append(api("POST", f"/v1/sandboxes/{id}/snapshots", {"label": "s"}, status=201, timeout=60).json["id"])
    c, s = nodes
    a = create(checkpoint=c, env={"B": "2"}, metadata={"from": "c"})
    equal((a["start"], a["metadata"]), ("restore", {"from": "c"}))
    equal(out(a["id"], "pgrep -c -f '[s]leep 7777'; cat /home/user/f /scratch/f; echo $A$B; hostname"), f"1\ndisk\nmem\n12\n{a['id']}")
    check(out(a["id"], "cat /etc/machine-id") != machine, "the machine id of the one before")
    b = create(snapshot=s)
    equal(b["start"], "boot")
    equal(out(b["id"], "pgrep -c -f '[s]leep 7777' || true; cat /home/user/f; test -e /scratch/f || echo empty; df /scratch | tail -1 | cut -d' ' -f1; echo $A; hostname"),
          f"0\ndisk\nempty\ntmpfs\n1\n{b['id']}")
    b = create(snapshot="c", memory="256M", disk="6G")
    equal(b["memory"], 256 << 20)
    check(int(out(b["id"], "grep MemTotal /proc/meminfo | tr -dc 0-9")) < 260000, "its memory")
    check(int(out(b["id"], "df --output=size -B1 / | tail -1")) > 5.4e9, "its disk")
    equal(out(b["id"], "cat /home/user/f"), "disk")
    d = create(checkpoint="c", disk="6G")
    check(int(out(d["id"], "df --output=size -B1 / | tail -1")) > 5.4e9, "the disk of one that goes on")
    error("POST", "/v1/sandboxes", {"checkpoint": "s"}, status=400, code="bad_request")
    e = error("POST", "/v1/sandboxes", {"checkpoint": "c", "memory": "256M"}, status=400, code="bad_request")
    check("--disk" in e["remedy"], e)
    error("POST", "/v1/sandboxes", {"checkpoint": "c", "vcpu": 2}, status=400, code="bad_request")
    error("POST", "/v1/sandboxes", {"checkpoint": "c", "template": "base"}, status=400)
    error("POST", "/v1/sandboxes", {"checkpoint": "nothing"}, status=404, code="checkpoint_not_found")
finally:
    for i in made:
        api("DELETE", f"/v1/sandboxes/{i}", status=(200, 404))
    for n in nodes:
        api("DELETE", f"/v1/checkpoints/{n}", status=(204, 404))
