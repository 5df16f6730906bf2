# A suspended sandbox outlives its host's reboot: another boot id, nothing left in the run directory, and it wakes with its processes and files.
# serial
# limit: 120
from t import *
import glob, shutil, sqlite3

d = Daemon.main()


def reboot():
    """What is left of a host that was switched off: the state directory. The boot id is not what the daemon remembers."""
    d.stop()
    for p, _, _ in leaks.processes(RUN):  # the monitors, those that are kept ready as well
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(p), signal.SIGKILL)
        wait_for(lambda: not alive(p), 10, "a monitor gone")
    # Control groups are the kernel's memory: gone as well.
    for id in os.listdir(os.path.join(d.run, "sandboxes")):
        for group in glob.glob(f"/sys/fs/cgroup/*/space/{id}") + glob.glob(f"/sys/fs/cgroup/space/{id}"):
            os.rmdir(group)
    for where in sorted((l.split(" ")[4] for l in open("/proc/self/mountinfo")), reverse=True):
        if where.startswith(d.run + "/"):
            subprocess.run(["umount", where], check=True)
    for name in os.listdir(d.run):
        path = os.path.join(d.run, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    with contextlib.closing(sqlite3.connect(os.path.join(d.state, "space.db"))) as db, db:
        n = db.execute("UPDATE record SET body = ? WHERE tbl = 'meta' AND key = 'boot_id'",
                       ('"00000000-0000-4000-8000-000000000000"',)).rowcount
    equal(n, 1, "records of the boot")
    d.start()


with sandbox(timeout=110, name="asleep") as id, sandbox(timeout=110) as awake:
    sh(id, "echo kept > /home/user/file; x=from-memory; (trap 'echo $x > /home/user/told' USR1; echo $BASHPID > /tmp/pid; while :; do sleep 0.1; done) "
           ">/dev/null 2>&1 &")
    api("POST", f"/v1/sandboxes/{id}/suspend", timeout=60)
    was, seq = show(id), events_of(id)[-1]["seq"]
    reboot()
    now = show(id)
    equal((now["state"], now["name"], now["checkpoint"], now["created_at"]), ("suspended", "asleep", was["checkpoint"], was["created_at"]), "afterwards")
    gone = show(awake)
    equal((gone["state"], gone["reason"]), ("failed", "host_restart"), "one that ran went with its host")
    equal(api("POST", f"/v1/sandboxes/{id}/wake", timeout=60).json["state"], "running")
    equal(out(id, "cat /home/user/file"), "kept", "its file")
    equal(out(id, "kill -USR1 $(cat /tmp/pid); for i in $(seq 50); do test -s told && break; sleep 0.1; done; cat told"), "from-memory", "its process")
    equal([e["type"] for e in events_of(id) if e["seq"] > seq], ["waking", "running"], "what happened since")
    with sandbox(timeout=60) as new:
        equal(out(new, "echo new"), "new", "new ones start, too")

