# A guest that touches all of its memory, holes of the template included, goes on; one that wants more than it has loses a process of its own and no more.
from t import *

with sandbox() as id:
    take = ("import sys\nfree=int([l.split()[1] for l in open('/proc/meminfo') if l.startswith('MemAvailable')][0])<<10\n"
            "n=int(free*float(sys.argv[1]))\nb=bytearray(n)\n"
            "for i in range(0,n,4096):\n b[i]=1+i%251\n"
            "print(sum(b[i]!=0 for i in range(0,n,4096))*4096==(n+4095)//4096*4096)\n")
    put(id, "/home/user/take.py", take.encode())
    for _ in range(2):
        equal(out(id, "python3 /home/user/take.py 0.85", timeout=120), "True")
    a = sh(id, "python3 /home/user/take.py 3", code=None, timeout=120)
    check(a["exit"]["code"] in (1, 137), f"a MemoryError or a kill inside: {a['exit']}")
    equal(show(id)["state"], "running")
    equal(out(id, "echo alive"), "alive")
