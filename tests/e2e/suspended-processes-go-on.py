# A suspended sandbox has no machine; woken, it is the one that it was: the same processes, open files, unlinked ones too, memory, connections inside, host name, token; its clock is the host's, from the same source, and a timer that was due meanwhile fires once.
# limit: 240
from t import *

KEEPER = r"""
import os, sys, socket, time, ctypes, select, struct, threading
held = os.urandom(1 << 20) * 8
gone = open("/home/user/gone", "w+b"); gone.write(held[:4096]); gone.flush(); os.unlink("/home/user/gone")
a, b = socket.socketpair()
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); d, _ = l.accept()
# A timer of wall time that is due while we are away, and one that repeats.
libc = ctypes.CDLL(None, use_errno=True)
TFD_TIMER_ABSTIME = 1
def timer(first, every):
    fd = libc.timerfd_create(0, 0)  # CLOCK_REALTIME
    spec = struct.pack("qqqq", every, 0, first, 0)
    assert libc.timerfd_settime(fd, TFD_TIMER_ABSTIME, spec, None) == 0
    return fd
once = timer(int(time.time()) + 4, 0)
sys.stdout.write("ready %d\n" % hash(held)); sys.stdout.flush()
fired = 0
for line in sys.stdin:
    word = line.strip()
    if word == "state":
        os.lseek(gone.fileno(), 0, 0)
        same = os.read(gone.fileno(), 4096) == held[:4096]
        a.send(b"x"); c.send(b"y")
        print("state", hash(held), same, b.recv(1), d.recv(1), flush=True)
    if word == "timer":
        t0 = time.time()
        while select.select([once], [], [], 1.0)[0]:
            fired += struct.unpack("Q", os.read(once, 8))[0]
        print("timer", fired, flush=True)
"""

with sandbox(timeout="10m") as id:
    put(id, "/home/user/keeper.py", KEEPER)
    sh(id, "echo kept > /home/user/file; nohup sleep 9876 >/dev/null 2>&1 & mkfifo /home/user/in; nohup sh -c 'exec sleep 100000 > /home/user/in' >/dev/null 2>&1 & "
           "nohup python3 /home/user/keeper.py < /home/user/in > /home/user/out 2>&1 &")
    ask = lambda word: sh(id, f"n=$(wc -l < /home/user/out); echo {word} > /home/user/in; for i in $(seq 100); do [ $(wc -l < /home/user/out) -gt $n ] && break; sleep 0.1; done; tail -1 /home/user/out")["stdout"].strip()
    wait_for(lambda: out(id, "cat /home/user/out").startswith("ready"), 20, "the keeper")
    before = ask("state")
    check("True b'x' b'y'" in before, before)
    who = "hostname; cat /etc/machine-id; pgrep -f '[s]leep 9876'; pgrep -f '[k]eeper.py'"
    was, d0 = out(id, who), show(id)
    source = lambda: out(id, "cat /sys/devices/system/clocksource/clocksource0/current_clocksource; dmesg | grep -c 'clocksource.*unstable' || true", user="root")
    clock = source()
    equal(clock, "tsc\n0", "its clock source, and whether it was ever found unstable")
    # A stream that is followed over it all.
    follow = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "for i in $(seq 1 40); do echo line $i; sleep 0.2; done"}, timeout=120)
    time.sleep(1)
    a = api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120).json
    equal(a["state"], "suspended")
    equal(api("POST", f"/v1/sandboxes/{id}/suspend").json["state"], "suspended", "again")
    check(not os.path.exists(os.path.join(RUN["run"], "sandboxes", id)), "its monitor's directory is still there")
    check(not os.path.exists(os.path.join(RUN["state"], "pool/sandboxes", id)), "its disk is still there")
    time.sleep(6)
    t0 = time.time()
    a = api("POST", f"/v1/sandboxes/{id}/wake", timeout=120).json
    equal(a["state"], "running")
    now = float(out(id, "date +%s.%N"))
    check(t0 - 0.2 <= now <= time.time() + 0.1, f"its clock: {now}, ours {time.time()}")
    equal(out(id, who), was, "who it is, and what runs")
    equal(source(), clock, "its clock source after the wake")
    equal(ask("state"), before, "the keeper's memory, files and connections")
    equal(out(id, "cat /home/user/file"), "kept")
    equal(ask("timer"), "timer 1", "the timer that was due meanwhile")
    equal(ask("timer"), "timer 1", "and only once")
    text, _, end = collect(follow)
    equal((text.decode().split("\n"), end.data.get("code")), ([f"line {i}" for i in range(1, 41)] + [""], 0), "the stream that was followed")
    follow.close()
    d1 = show(id)
    check(d1["deadline_at"] > d0["deadline_at"], f"its time begins anew: {d0['deadline_at']}, {d1['deadline_at']}")
    # Twenty times more, and the processes are still those.
    for i in range(3):
        api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)
        api("POST", f"/v1/sandboxes/{id}/wake", timeout=120)
        equal(ask("state"), before, f"round {i}")
        equal(source(), clock, f"its clock source, round {i}")
    types = [e["type"] for e in events_of(id)]
    for t in ("suspending", "suspended", "waking", "running"):
        check(t in types, f"no event {t}: {types}")
    # Suspended ones can be killed, and leave nothing (tests/run looks).
    api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)
    api("DELETE", f"/v1/sandboxes/{id}")
    error("POST", f"/v1/sandboxes/{id}/wake", status=410, code="sandbox_gone")
