# A checkpoint of a checkpoint goes as one file to a daemon that has neither its parents nor image, kernel or template, and its process goes on there.
# serial
# limit: 300
from t import *
import shutil

base = os.path.join(DIR, "elsewhere")
os.makedirs(base, mode=0o711)
away = Daemon(os.path.join(base, "state"), os.path.join(base, "run"),
              {**BASE_CONFIG, "listen": "off", "uid_base": BASE_CONFIG["uid_base"] + 5000, "pool_size": "2G", "ready_monitors": 0,
               "ready_slots": 0}, "elsewhere")
there = cli_env(SPACE_SOCKET=away.socket)
saved, file = [], os.path.join(DIR, "work.space")


def answers():
    try:
        return api("GET", "/healthz", where=away.socket).status == 200
    except OSError:
        return False


def checkpoint(id, label):
    saved.append(cli("checkpoint", id, "--label", label).out.strip())
    return saved[-1]


def leave():
    """The other daemon and its pool go, whatever happened."""
    if away.proc and away.proc.poll() is None:
        for s in api("GET", "/v1/sandboxes", where=away.socket).json["sandboxes"]:
            api("DELETE", f"/v1/sandboxes/{s['id']}", where=away.socket)
        away.stop()
    for where in sorted((l.split(" ")[4] for l in open("/proc/self/mountinfo")), reverse=True):
        if where.startswith(base + "/"):
            subprocess.run(["umount", where], check=True)
    shutil.rmtree(base)
    for n in saved:
        api("DELETE", f"/v1/checkpoints/{n}", status=(204, 404))
    if os.path.exists(file):
        os.unlink(file)


try:
    with sandbox(timeout=600) as id:
        api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "x=from-memory; trap 'echo $x >/home/user/told' USR1; while :; do sleep 0.1; done"})
        sh(id, "head -c 3000000 /dev/urandom >/home/user/first; sync")
        parent = checkpoint(id, "first")
        sh(id, "head -c 2000000 /dev/urandom >/home/user/second; sync")
        node = checkpoint(id, "second")
        equal(api("GET", f"/v1/checkpoints/{node}").json["parent"], parent, "the parent")
        sums = out(id, "sha256sum first second")
        with open(file, "wb") as f:
            p = subprocess.run([SPACE, "export", "second"], stdin=subprocess.DEVNULL, stdout=f, stderr=subprocess.PIPE, env=cli_env(), timeout=120)
        equal((p.returncode, p.stderr), (0, b""), "export")
    check(os.path.getsize(file) > 5000000, f"the export has {os.path.getsize(file)} bytes")

    away.start(ready=False)
    wait_for(answers, 60, "the other daemon answers")
    equal(api("GET", "/v1/images", where=away.socket).json["images"], [], "images there")
    equal(api("GET", "/v1/tree", where=away.socket).json["nodes"], [], "nodes there")
    with open(file, "rb") as f:
        p = subprocess.run([SPACE, "import"], stdin=f, capture_output=True, env=there, timeout=120)
    equal(p.returncode, 0, f"import: {p.stderr.decode()}")
    new = p.stdout.decode().strip()
    check(re.fullmatch("n[a-z0-9]{20}", new) and new not in saved, f"import printed {new!r}")
    k = api("GET", f"/v1/checkpoints/{new}", where=away.socket).json
    equal((k["kind"], k["parent"], k["damaged"]), ("checkpoint", None, None), "what was imported")

    i = cli("create", "-q", "--from", new, "--timeout", "5m", env=there).out.strip()
    inside = lambda script: cli("exec", i, "--", "bash", "-c", script, env=there).out.strip()
    equal(inside("sha256sum first second"), sums, "files")
    inside("pkill -USR1 -f '[x]=from-memory'; for i in $(seq 50); do test -s told && break; sleep 0.1; done")
    equal(inside("cat told"), "from-memory", "what a process remembers")
    # Again after the daemon has started anew, and as a disk that boots.
    away.stop()
    away.start(ready=False)
    wait_for(answers, 60, "the other daemon answers again")
    equal(inside("sha256sum first second"), sums, "files after a restart")
    cli("kill", i, env=there)
    equal(cli("run", "--from", new, "--disk-only", "--", "sha256sum", "first", "second", env=there, timeout=120).out.strip(), sums, "booted from its disk")
    cli("node", "rm", new, env=there)
    equal(api("GET", "/v1/tree", where=away.socket).json["nodes"], [], "nodes there afterwards")
finally:
    leave()
