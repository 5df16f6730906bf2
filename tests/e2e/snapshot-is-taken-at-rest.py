# A snapshot is taken with the guest's file systems frozen, while somebody writes: it boots without repair, everything that was synced is in it, and the guest is thawed.
# limit: 240
from t import *

with sandbox(timeout=230) as id:
    made = []
    try:
        sh(id, "setsid sh -c 'n=0; mkdir -p /home/user/w; while :; do n=$((n+1)); head -c 20000 /dev/urandom > /home/user/w/$n; sha256sum /home/user/w/$n > /home/user/w/$n.sum; "
               "sync -f /home/user/w; echo $n > /home/user/n.new; mv /home/user/n.new /home/user/n; done' > /dev/null 2>&1 < /dev/null &")
        wait_for(lambda: int(out(id, "cat /home/user/n 2>/dev/null || echo 0")) > 3, 30, "it writes")
        for i in range(3):
            before = int(out(id, "cat /home/user/n"))
            k = api("POST", f"/v1/sandboxes/{id}/snapshots", {"label": f"s{i}"}, status=201, timeout=60).json
            made.append((k, before))
            equal((k["kind"], k["memory"]), ("snapshot", 0), "the snapshot")
            check(not os.path.exists(os.path.join(RUN["state"], "pool/nodes", k["id"], "memory")), "no memory in it")
            wait_for(lambda: int(out(id, "cat /home/user/n")) > before + 1, 20, "it is thawed and writes on")
        k, before = made[-1]
        s = api("POST", "/v1/sandboxes", {"snapshot": k["id"]}, status=201, timeout=180).json
        try:
            equal(s["start"], "boot", "it boots")
            n = int(out(s["id"], "cat /home/user/n"))
            check(n >= before, f"{n} files, {before} were there before")
            sh(s["id"], f"cd /; for i in $(seq {n}); do sha256sum -c --quiet /home/user/w/$i.sum || exit 1; done", timeout=100)
            kernel = out(s["id"], "dmesg", user="root")
            check("EXT4-fs (vd" in kernel, f"nothing of its disk in the kernel's log: {kernel[-1000:]}")
            check("recovery" not in kernel and "orphan" not in kernel, f"the disk had to be repaired: {kernel[-1500:]}")
        finally:
            api("DELETE", f"/v1/sandboxes/{s['id']}")
    finally:
        for k, _ in made:
            api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
