# Without root, /dev/net/tun or QEMU, with a port in use or a state directory of another version, spaced says so with a remedy, changes nothing and ends.
# serial
from t import *
import sqlite3, tempfile

def told(code, log, *words):
    check(code not in (0, None), f"status {code}: {log[-500:]}")
    for w in words:
        check(re.search(w, log, re.I), f"no {w!r} in what it said: {log[-800:]}")

s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
port = s.getsockname()[1]
told(*refused(config={"listen": f"127.0.0.1:{port}"}), str(port), "in use")
s.close()

told(*refused(config={"listen": f"0.0.0.0:{free_port()}"}), "key")
told(*refused(config={"no_such_key": 1}), "no_such_key")
told(*refused(config={"overcommit": "much"}), "overcommit")

with tempfile.TemporaryDirectory(dir="/tmp", prefix="space-nonroot.") as tmp:
    os.chmod(tmp, 0o777)
    told(*refused(prefix=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], state=os.path.join(tmp, "state")), "root|permitted|permission")

hide = ["unshare", "-m", "--propagation", "private", "sh", "-c"]
told(*refused(prefix=[*hide, 'mount -t tmpfs none /dev/net 2>/dev/null || { mkdir -p /dev/net; mount -t tmpfs none /dev/net; }; exec "$@"', "sh"]), "tun", "modprobe|device")
told(*refused(prefix=[*hide, 'for q in $(ls /usr/bin/qemu-system-* 2>/dev/null); do mount --bind /dev/null "$q"; done; exec "$@"', "sh"]), "qemu", "apt")

# A state directory of a newer version is not touched.
with tempfile.TemporaryDirectory(dir="/tmp", prefix="space-version.") as tmp:
    db = os.path.join(tmp, "space.db")
    c = sqlite3.connect(db)
    c.execute("create table t (x)")
    c.execute("pragma user_version = 9999")
    c.commit()
    c.close()
    before = open(db, "rb").read()
    told(*refused(state=tmp), "version")
    equal(open(db, "rb").read(), before, "the database")

# A second daemon on the same state directory.
told(*refused(state=RUN["state"]), "in use|running|lock")
subprocess.run(["sh", "-c", f"umount {DIR}/refused/state/pool 2>/dev/null; umount {DIR}/refused/run/netns 2>/dev/null; rm -rf {DIR}/refused"])
equal(api("GET", "/readyz").status, 200, "the shared one did not notice")
