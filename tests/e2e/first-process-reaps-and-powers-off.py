# Orphans of commands leave no zombies, and a power-off asked for inside ends the sandbox as guest_shutdown, after commands had their TERM.
from t import *

# Two forks, so that the grandchild is the first process's to reap; many of them, some that end at once and some later.
ORPHANS = r'''
import os, time
for i in range(200):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.002 * i)
            os._exit(i % 256)
        os._exit(0)
    os.wait()
'''
ZOMBIES = "grep -l '^State:[[:space:]]Z' /proc/[0-9]*/status 2>/dev/null | wc -l"

with sandbox() as id:
    n = int(out(id, "ls -d /proc/[0-9]* | wc -l"))
    put(id, "/tmp/orphans.py", ORPHANS)
    for user in ("root", "user"):
        out(id, "setsid python3 /tmp/orphans.py", user=user)
    equal(out(id, "sh -c 'sleep 5 >/dev/null 2>&1 & echo $!' | { read p; grep PPid /proc/$p/status | tr -dc 0-9; }"), "1", "an orphan is the first process's")
    wait_for(lambda: out(id, ZOMBIES) == "0" and int(out(id, "ls -d /proc/[0-9]* | wc -l")) <= n + 2, 10, "no zombie is left")
    # A command whose own children end unreaped is their parent still: that is not ours to mend, and ends with it.
    equal(sh(id, "sleep 0 & exec sh -c 'exit 3'", code=None)["exit"]["code"], 3, "statuses of commands are their own")
    equal(out(id, ZOMBIES), "0")

# The trap leaves its mark on the console, which outlives the machine.
TRAP = "trap 'echo trap-ran-$(cat /proc/sys/kernel/random/uuid) > /dev/console; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
for how in ("kill -TERM 1", "poweroff", "/sbin/poweroff"):
    with sandbox() as id:
        if how != "kill -TERM 1" and sh(id, f"command -v {how}", code=None, user="root")["exit"]["code"]:
            continue
        s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": TRAP, "user": "root"}, timeout=40)
        events = iter(s)
        for e in events:
            if e.event == "stdout":
                break
        api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": how, "user": "root"}, status=(201, 502, 410))
        j = wait_for(lambda: (lambda x: x if x["state"] in ("stopped", "failed") else None)(show(id)), 25, f"{how}: it ended")
        equal((j["state"], j["reason"]), ("stopped", "guest_shutdown"), how)
        last = list(events)[-1:]
        check(last and last[0].event in ("exit", "error"), f"{how}: the stream's last word {last}")
        console = api("GET", f"/v1/sandboxes/{id}/logs").body.decode(errors="replace")
        check(re.search("trap-ran-[0-9a-f]{8}-", console), f"{how}: the command's TERM trap did not run; the console ends {console[-400:]!r}")
        s.close()
