# A sandbox that writes checksummed files all the time is suspended and woken again and again: nothing is missing, nothing torn, on the disk as well.
# limit: 300
from t import *

CYCLES = 20 if os.environ.get("SPACE_TEST_LONG") else 6

writer = r"""
import hashlib, os
os.makedirs("/home/user/out", exist_ok=True)
n = 0
while True:
    data = os.urandom(1000 + n * 37 % 60000)
    with open("/home/user/out/new", "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    os.rename("/home/user/out/new", f"/home/user/out/{n:06}-{hashlib.sha256(data).hexdigest()}")
    with open("/home/user/acknowledged", "a") as f:
        f.write(f"{n}\n")
        f.flush()
        os.fsync(f.fileno())
    n += 1
"""
checker = r"""
import hashlib, os, re
names = sorted(os.listdir("/home/user/out"))
seen = 0
for n in names:
    if n == "new":
        continue
    i, digest = n.split("-")
    assert int(i) == seen, (n, seen)
    assert hashlib.sha256(open("/home/user/out/" + n, "rb").read()).hexdigest() == digest, n
    seen += 1
said = [int(l) for l in open("/home/user/acknowledged").read().split()]
assert said == list(range(len(said))), "torn"
assert len(said) <= seen <= len(said) + 1, (len(said), seen)
print(seen)
"""

with sandbox(timeout=290) as id:
    put(id, "/home/user/writer.py", writer)
    put(id, "/home/user/checker.py", checker)
    pid = out(id, "setsid python3 /home/user/writer.py > /home/user/log 2>&1 < /dev/null & echo $!")
    wait_for(lambda: sh(id, "test -s /home/user/acknowledged", code=None)["exit"]["code"] == 0, 30, "it writes")
    last = 0
    for i in range(CYCLES):
        time.sleep(0.3)
        api("POST", f"/v1/sandboxes/{id}/suspend", status=200, timeout=60)
        equal(api("POST", f"/v1/sandboxes/{id}/wake", status=200, timeout=60).json["state"], "running", "woken")
        sh(id, f"kill -STOP {pid}")
        drop_caches(id)
        seen = int(out(id, "cat /home/user/log; python3 /home/user/checker.py"))
        sh(id, f"kill -CONT {pid}")
        check(seen >= last + (i > 0), f"it writes on: {last} then {seen}")
        last = seen
    # Its disk alone, as after a power cut: all that was said to be written is there.
    api("POST", f"/v1/sandboxes/{id}/suspend", status=200, timeout=60)
    node = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=60).json["id"]
    try:
        with booted_from(node) as it:
            seen = int(out(it, "python3 /home/user/checker.py"))
            check(seen >= last, f"its disk has {seen} files, {last} had been written")
    finally:
        api("DELETE", f"/v1/checkpoints/{node}", status=204)
    print(f"{CYCLES} cycles, {last} files")
