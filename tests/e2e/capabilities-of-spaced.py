# spaced holds the capabilities it needs and no other; its monitors hold none, under uids of their own, and the host would lose them first.
from t import *

NUMBER = {"CHOWN": 0, "DAC_OVERRIDE": 1, "FOWNER": 3, "KILL": 5, "SETGID": 6, "SETUID": 7, "NET_ADMIN": 12, "SYS_PTRACE": 19, "SYS_ADMIN": 21,
          "SYS_RESOURCE": 24, "MKNOD": 27}
WANT = sum(1 << n for n in NUMBER.values())

def status(pid):
    return {k: v.strip() for k, v in (l.split(":", 1) for l in open(f"/proc/{pid}/status"))}

pid = Daemon.main().pid
mine = int(status("self")["CapPrm"], 16)
for t in os.listdir(f"/proc/{pid}/task"):
    s = status(f"{pid}/task/{t}")
    for k in ("CapPrm", "CapEff"):
        # What this machine does not give to root is not there to keep.
        equal(f"{int(s[k], 16):x}", f"{WANT & mine:x}", f"{k} of spaced's thread {t} ({s['Name']})")
    equal((int(s["CapAmb"], 16), int(s["CapInh"], 16)), (0, 0), f"nothing is handed on by thread {t}")
if mine != (1 << 41) - 1:
    print(f"this test itself has {mine:x} only")
with sandbox() as id:
    m = status(monitor_pid(id))
    equal([int(m[k], 16) for k in ("CapPrm", "CapEff", "CapInh", "CapAmb")], [0] * 4, "the monitor's")
    uids = set(m["Uid"].split())
    check(len(uids) == 1 and RUN["uid_base"] <= int(*uids) < RUN["uid_base"] + 10000, f"the monitor's uids are {uids}")
    equal(set(m["Groups"].split()) - uids, set(), "it is in no group of others")
    equal((m["NoNewPrivs"], m["Seccomp"]), ("1", "2"), "it can gain none, and its system calls are filtered")
    equal(open(f"/proc/{monitor_pid(id)}/oom_score_adj").read().strip(), "500", "a host without memory ends a monitor before its daemon")
