# Where files cannot be cloned and nothing may be mounted, disks and checkpoints are copies: every answer and doctor say so, and all of it works.
# serial
# limit: 200
from t import *
import shutil

base = os.path.join(DIR, "copies")
os.makedirs(base, mode=0o711)
# What is no device cannot be opened: as on a host that gives no loop devices.
closed = socket.socket(socket.AF_UNIX)
closed.bind(os.path.join(base, "closed"))
own = Daemon(os.path.join(base, "state"), os.path.join(base, "run"),
             {**BASE_CONFIG, "listen": "off", "uid_base": BASE_CONFIG["uid_base"] + 5000, "pool_size": "600M", "ready_monitors": 0, "ready_slots": 0},
             "copies", prefix=["unshare", "-m", "--propagation", "private", "sh", "-c",
                               f'mount --bind {base}/closed /dev/loop-control && exec "$@"', "sh"])
file = os.path.join(DIR, "small.space")
there = cli_env(SPACE_SOCKET=own.socket)


def answers():
    try:
        return api("GET", "/healthz", where=own.socket).status == 200
    except OSError:
        return False


def call(method, path, body=None, **kw):
    return api(method, path, body, where=own.socket, timeout=120, **kw).json


def leave():
    if own.proc and own.proc.poll() is None:
        for s in call("GET", "/v1/sandboxes")["sandboxes"]:
            api("DELETE", f"/v1/sandboxes/{s['id']}", where=own.socket)
        own.stop()
    closed.close()
    shutil.rmtree(base)
    if os.path.exists(file):
        os.unlink(file)


probe = os.path.join(base, "probe")
with open(probe, "w") as f:
    f.write("x" * 4096)
if subprocess.run(["cp", "--reflink=always", probe, probe + "2"], stderr=subprocess.DEVNULL).returncode == 0:
    leave()
    skip("this file system clones files")
try:
    with sandbox(timeout=300) as id:
        equal(show(id)["storage"], "clone", "where files are cloned")
        sh(id, "echo copied > /home/user/file; sync")
        k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=120).json
        equal(k["storage"], "clone", "where files are cloned")
        try:
            with open(file, "wb") as f:
                subprocess.run([SPACE, "export", k["id"]], stdin=subprocess.DEVNULL, stdout=f, check=True, env=cli_env(), timeout=120)
        finally:
            api("DELETE", f"/v1/checkpoints/{k['id']}")
    own.start(ready=False)
    wait_for(answers, 60, "the daemon answers")
    equal(call("GET", "/v1/host")["pool"]["clone"], "copy", "the pool")
    check("every disk and checkpoint is a sparse copy" in own.log(), "the log says it")
    told = [f for f in json.loads(cli("doctor", "--json", env=there, code=None).out) if f["check"] == "storage"]
    check(len(told) == 1 and told[0]["verdict"] == "warn" and "copied" in told[0]["found"] and told[0]["remedy"], f"doctor: {told}")
    with open(file, "rb") as f:
        new = subprocess.run([SPACE, "import"], stdin=f, stdout=subprocess.PIPE, check=True, env=there, timeout=120).stdout.decode().strip()
    equal(call("GET", f"/v1/checkpoints/{new}")["storage"], "copy", "what was imported")
    sb = call("POST", "/v1/sandboxes", {"checkpoint": new, "timeout": 280}, status=201)
    equal((sb["storage"], call("GET", f"/v1/sandboxes/{sb['id']}")["storage"]), ("copy", "copy"), "a sandbox")
    inside = lambda i, script: call("POST", f"/v1/sandboxes/{i}/exec?wait=1", {"shell": script})["stdout"].strip()
    equal(inside(sb["id"], "cat file; echo more > file; cat file"), "copied\nmore", "its disk")
    b = call("POST", f"/v1/sandboxes/{sb['id']}/branch", {"count": 1}, status=201)
    equal((b["checkpoint"]["storage"], [s["storage"] for s in b["sandboxes"]]), ("copy", ["copy"]), "a branch")
    check(b["checkpoint"]["shared_bytes"] == 0 and b["checkpoint"]["own_bytes"] > 1 << 20, f"all of it is its own: {b['checkpoint']}")
    equal(inside(b["sandboxes"][0]["id"], "cat file"), "more", "the sibling's disk")
    # Sparsely: what holds nothing takes no room.
    disk = os.stat(os.path.join(own.state, "pool/nodes", b["checkpoint"]["id"], "disk"))
    check(disk.st_blocks * 512 < disk.st_size / 2, f"the disk of {disk.st_size} bytes takes {disk.st_blocks * 512}")
    suspended = call("POST", f"/v1/sandboxes/{sb['id']}/suspend")
    equal((suspended["state"], suspended["storage"]), ("suspended", "copy"))
    call("POST", f"/v1/sandboxes/{sb['id']}/wake")
    equal(inside(sb["id"], "cat file"), "more", "after it was suspended")
finally:
    leave()
