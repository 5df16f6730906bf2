# Sandboxes of one template differ in host name, machine id and random numbers, have the host's time, and share nothing they write.
from t import *

with sandbox(env={"WHO": "a"}) as a, sandbox(env={"WHO": "b"}) as b:
    script = "hostname; cat /etc/machine-id; head -c 16 /dev/urandom | od -An -tx1; python3 -c 'import uuid,random,os; print(uuid.uuid4(), os.getpid() and random.random())'; echo $WHO"
    x, y = out(a, script).splitlines(), out(b, script).splitlines()
    for i, what in enumerate(("host name", "machine id", "urandom", "uuid and random", "environment")):
        check(x[i] and x[i] != y[i], f"{what}: {x[i]!r} in both")
    equal((x[0], y[0]), (a, b), "the host name is the id")
    for i in (a, b):
        t0 = time.time()
        t = float(out(i, "date +%s.%N"))
        t1 = time.time()
        check(t0 - 0.1 <= t <= t1 + 0.1, f"the guest's clock is off by {max(t0 - t, t - t1):.3f} s")
    sh(a, "echo secret > /tmp/only-here")
    sh(b, "test ! -e /tmp/only-here")
    d = show(a)
    for k in ("image", "kernel"):
        check(re.fullmatch("sha256:[0-9a-f]{64}", d["digests"][k]), f"{d['digests']}")
    check(d["digests"]["template"] and d["isolation"] in ("kvm", "emulated") and d["start"] in ("restore", "pool"), f"{d}")
    for k in ("total",):
        check(d["phases"][k] > 0, f"{d['phases']}")
