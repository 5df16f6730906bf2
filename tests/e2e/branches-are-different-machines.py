# Ten branches continue the parent's processes and are ten machines: names, ids, tokens, clocks, and whatever is drawn from the kernel afterwards; the parent never notices; programs of clone.d have run before their processes.
# limit: 300
from t import *

DRAW = ("hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1 | tr -d ' '; cat /proc/sys/kernel/random/uuid; "
        "python3 -c 'import uuid, random; print(uuid.uuid4()); print(random.random()); import ssl; print(ssl.RAND_bytes(16).hex())'; "
        "command -v openssl >/dev/null && openssl rand -hex 16 || true")
WHAT = ("host name", "machine id", "urandom", "kernel uuid", "uuid4", "random", "ssl", "openssl")

with sandbox(timeout="10m", metadata={"role": "parent", "job": "7"}, env={"FROM": "parent"}) as id:
    # A generator that is seeded already goes on alike in all, unless a program of clone.d says so to its process.
    put(id, "/home/user/seeded.py", """
import random, signal, time, os
def again(*_):
    random.seed(int.from_bytes(os.urandom(8), "big"))
signal.signal(signal.SIGUSR1, again)
open("/home/user/ready", "w").close()
while not os.path.exists("/home/user/go"): time.sleep(0.05)
open("/home/user/drawn", "w").write(str(random.random()))
""")
    sh(id, "mkdir -p /etc/space/clone.d; printf '#!/bin/sh\\ncat /etc/machine-id > /run/hook-id; echo $SPACE_ID >> /run/hook-id; echo a word; pkill -USR1 -f [s]eeded.py\\n' > /etc/space/clone.d/50-seed; "
           "printf '#!/bin/sh\\nexit 3\\n' > /etc/space/clone.d/10-fails; printf '#!/bin/sh\\nsleep 60\\n' > /etc/space/clone.d/90-slow; chmod 755 /etc/space/clone.d/*; "
           "printf '#!/bin/sh\\ntouch /run/no\\n' > /etc/space/clone.d/99-not; chmod 777 /etc/space/clone.d/99-not", user="root")
    sh(id, "rm /etc/space/clone.d/90-slow", user="root")
    sh(id, "nohup python3 /home/user/seeded.py >/dev/null 2>&1 & for i in $(seq 100); do test -e /home/user/ready && exit; sleep 0.1; done; exit 1")
    sh(id, "nohup sleep 5432 >/dev/null 2>&1 & echo one > /home/user/shared; sync")
    parent = out(id, DRAW).splitlines()
    token = show(id).get("token")
    a = api("POST", f"/v1/sandboxes/{id}/branch", {"count": 10, "metadata": {"role": "child"}}, status=201, timeout=200).json
    children = [s["id"] for s in a["sandboxes"]]
    try:
        equal((len(children), a["failed"], a["checkpoint"]["kind"]), (10, [], "branch"))
        equal(show(id)["state"], "running", "the parent")
        for s in a["sandboxes"]:
            equal((s["state"], s["metadata"], s["name"]), ("running", {"role": "child", "job": "7"}, None if s["name"] is None else ""), "a branch")
        drawn = [parent]
        for c in children:  # one command each: Python is slow where guests are emulated
            t0 = time.time()
            o = out(c, DRAW + "; echo =; cat /home/user/shared; pgrep -c -f '[s]leep 5432'; echo $FROM; echo $E2B_SANDBOX_ID; cat /run/hook-id; test -e /run/no && echo no; date +%s.%N")
            d, rest = o.split("\n=\n")
            drawn.append(d.splitlines())
            *rest, now = rest.split()
            equal(d.splitlines()[0], c, "the host name is the id")
            equal(rest, ["one", "1", "parent", c, d.splitlines()[1], c], "what it continues; its hook ran as the new machine, and only the one that nobody else may write")
            check(t0 - 0.1 <= float(now) <= time.time() + 0.1, f"its clock is {float(now) - t0:.3f} s off")
        for i, what in enumerate(WHAT[:len(parent)]):
            values = [d[i] for d in drawn]
            equal(len(set(values)), 11, f"{what}: the same in two of {values}")
        for c in children[:4]:
            sh(c, "touch /home/user/go; for i in $(seq 100); do test -s /home/user/drawn && exit; sleep 0.1; done; exit 1")
        seeded = [out(c, "cat /home/user/drawn") for c in children[:4]]
        equal(len(set(seeded)), 4, "what clone.d reseeded")
        sh(children[0], "echo two > /home/user/shared")
        for c in (children[0], children[1], id):
            drop_caches(c)
        equal(out(children[0], "cat /home/user/shared"), "two", "its own disk")
        equal(out(children[1], "cat /home/user/shared"), "one", "a sibling's disk")
        equal(out(id, "cat /home/user/shared"), "one", "the parent's disk")
        with booted_from(a["checkpoint"]["id"]) as it:
            equal(out(it, "cat /home/user/shared"), "one", "what they were branched from, its disk alone")
        log = api("GET", f"/v1/sandboxes/{children[0]}/logs").body.decode(errors="replace")
        if log:
            check("clone.d/50-seed: a word" in log and "clone.d/10-fails" in log, log[-1500:])
        # A branch of a branch; its parent may end.
        b = api("POST", f"/v1/sandboxes/{children[1]}/fork", {}, status=201, timeout=60).json
        children += [s["id"] for s in b["sandboxes"]]
        api("DELETE", f"/v1/sandboxes/{children[1]}")
        equal(out(children[-1], "pgrep -c -f '[s]leep 5432'"), "1", "a grandchild")
    finally:
        for c in children:
            api("DELETE", f"/v1/sandboxes/{c}", status=(200, 404))
