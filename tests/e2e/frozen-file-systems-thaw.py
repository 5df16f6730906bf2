# A snapshot that cannot be stored leaves the guest writing; and a guest whose file systems were frozen by a spaced that was killed then thaws them itself after ten seconds.
# serial
# limit: 120
from t import *
import sqlite3

d = Daemon.main()
nodes = os.path.join(d.state, "pool/nodes")


def agent(id, path, body):
    """A call to the agent as spaced makes it: from the gateway of the sandbox's network, with its token."""
    with contextlib.closing(sqlite3.connect(f"file:{d.state}/space.db?mode=ro", uri=True)) as db:
        token = json.loads(db.execute("SELECT body FROM record WHERE tbl = 'sandbox' AND key = ?", (id,)).fetchone()[0])["token"]
    slot = json.load(open(f"{d.run}/sandboxes/{id}/machine.json"))["slot"]
    ns = f"{d.run}/netns/{slot}"
    p = subprocess.run(["nsenter", f"--net={ns}", "curl", "-sS", "-m", "20", "-o", "/dev/null", "-w", "%{http_code}", "-H", f"X-Access-Token: {token}",
                        "-H", "Content-Type: application/json", "-d", json.dumps(body), f"http://100.64.0.2:49983{path}"], capture_output=True, text=True)
    return p.stdout or p.stderr


def writes(id, what):
    equal(out(id, "cd /home/user && date +%N > n && sync n && echo yes", timeout=20), "yes", what)


with sandbox(timeout=110) as id:
    writes(id, "before anything")
    # Nothing can be put among the nodes: the save fails at its very end, after the freeze.
    subprocess.run(["chattr", "+i", nodes], check=True)
    try:
        a = api("POST", f"/v1/sandboxes/{id}/snapshots", {}, status=range(400, 600), timeout=60).json
        check(a["code"] and a["message"], f"{a}")
    finally:
        subprocess.run(["chattr", "-i", nodes], check=True)
    equal(show(id)["state"], "running", "after a snapshot that failed")
    writes(id, "after a snapshot that failed")
    equal(api("GET", f"/v1/sandboxes/{id}/checkpoints").json["checkpoints"], [], "nothing of it is listed")

    # Frozen, and who froze it is gone.
    equal(agent(id, "/freeze", {"fs": True}), "204", "the freeze")
    d.stop(signal.SIGKILL)
    t0 = time.monotonic()
    console = f"{d.run}/sandboxes/{id}/console"
    said = lambda: "nobody thawed the file systems" in open(console, errors="replace").read()
    try:
        wait_for(said, 30, "the guest thaws its file systems")
        took = time.monotonic() - t0
    finally:
        d.start()
    check(took > 5, f"thawed after {took:.1f} s: by somebody else")
    wait_state(id, "running", 30)
    writes(id, "once spaced is back")
    k = api("POST", f"/v1/sandboxes/{id}/snapshots", {}, status=201, timeout=60).json["id"]
    api("DELETE", f"/v1/checkpoints/{k}", status=204)
    writes(id, "after a snapshot that was stored")
