# Rolled back, a sandbox has the same id, name and token and the state of then: processes, disk, memory; streams of commands from after it end with rolled_back; a snapshot boots; another sandbox's checkpoint is refused.
# limit: 240
from t import *


def checkpoint(id, what="checkpoints", **body):
    return api("POST", f"/v1/sandboxes/{id}/{what}", body, status=201, timeout=120).json["id"]


def roll(id, to):
    a = api("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": to}, timeout=120).json
    equal((a["id"], a["state"]), (id, "running"))
    drop_caches(id)


nodes = []
try:
    with sandbox(timeout="10m", name="time-traveller") as id, sandbox() as other:
        sh(id, "nohup sleep 4321 >/dev/null 2>&1 & echo first > /home/user/f; sync")
        who = out(id, "hostname; cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; pgrep -f '[s]leep 4321'")
        nodes.append(checkpoint(id, label="first"))
        sh(id, "pkill -f '[s]leep 4321'; echo second > /home/user/f; nohup sleep 1234 >/dev/null 2>&1 &")
        nodes.append(checkpoint(id, "snapshots", label="second"))
        s = Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "while :; do echo tick; sleep 0.1; done"})
        it = iter(s)
        next(it)
        roll(id, "first")
        last = None
        for e in it:
            last = e
        check(last and last.event == "error" and last.data["code"] == "rolled_back", f"the stream's end: {last}")
        s.close()
        equal(out(id, "hostname; cat /etc/machine-id; cat /proc/sys/kernel/random/boot_id; pgrep -f '[s]leep 4321'"), who, "who it is")
        equal(out(id, "cat /home/user/f; pgrep -c -f '[s]leep 1234' || true"), "first\n0", "what is there")
        t0 = time.time()
        now = float(out(id, "date +%s.%N"))
        check(t0 - 0.1 <= now <= time.time() + 0.1, f"its clock is {now - t0:.3f} s off")
        # Forwards, to a disk: it boots.
        roll(id, "second")
        equal(out(id, "cat /home/user/f; pgrep -c -x sleep || true"), "second\n0", "a snapshot")
        check(out(id, "cat /proc/sys/kernel/random/boot_id") != who.splitlines()[2], "it did not boot")
        equal(out(id, "hostname; cat /etc/machine-id").splitlines(), who.splitlines()[:2], "who it is after a boot")
        # From suspension and from a pause.
        api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)
        roll(id, nodes[0])
        api("POST", f"/v1/sandboxes/{id}/pause")
        roll(id, nodes[0])
        equal(out(id, "pgrep -f '[s]leep 4321'"), who.splitlines()[3], "the process of then")
        # A branch may go back to what its parent was.
        b = api("POST", f"/v1/sandboxes/{id}/branch", {}, status=201, timeout=60).json["sandboxes"][0]["id"]
        try:
            sh(b, "echo branch > /home/user/f")
            roll(b, "first")
            equal(out(b, "cat /home/user/f; hostname"), f"first\n{b}", "a branch rolled back")
        finally:
            api("DELETE", f"/v1/sandboxes/{b}")
        with booted_from(nodes[0]) as it:
            equal(out(it, "cat /home/user/f"), "first", "its disk alone")
        error("POST", f"/v1/sandboxes/{other}/rollback", {"checkpoint": nodes[0]}, status=409, code="conflict")
        error("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "nothing"}, status=404, code="checkpoint_not_found")
        equal(show(other)["state"], "running", "the other one")
        equal(out(id, "cat /home/user/f"), "first", "nothing happened")
        check("rolled_back" in [e["type"] for e in events_of(id)], "no event")
finally:
    for n in nodes:
        api("DELETE", f"/v1/checkpoints/{n}", status=(204, 404))
