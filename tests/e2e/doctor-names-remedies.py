# On a host that lacks something doctor says what, with the command that mends it, and its status is 1; of what is there it says so.
from t import *

def doctor(hide, *args, env=None):
    """With the files named there hidden from it, in a mount namespace of its own."""
    script = "set -e\n" + "".join(f"mount --bind /dev/null {p}\n" if os.path.isfile(p) else f"mount -t tmpfs none {p}\n" for p in hide) + 'exec "$@"'
    p = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", SPACE, "doctor", *args], capture_output=True, text=True,
                       env=env or cli_env(), timeout=60)
    return p

def program(name):
    for d in ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"):
        p = os.path.join(d, name)
        if os.path.exists(p):
            return os.path.realpath(p)
    return None

p = doctor([], "--json")
all = {f["check"]: f for f in json.loads(p.stdout)}
equal((p.returncode, [f for f in all.values() if f["verdict"] == "fail"]), (0, []), "nothing is missing here")

for what, path, remedy, verdict in (("tun", "/dev/net", "modprobe tun", "fail"), ("QEMU", program("qemu-system-x86_64"), "apt-get install qemu-system-x86", "fail"),
                                    ("nft", program("nft"), "apt-get install nftables", "fail"), ("mmdebstrap", program("mmdebstrap"), "apt-get install mmdebstrap", "fail"),
                                    ("mkfs.erofs", program("mkfs.erofs"), "apt-get install erofs-utils", "fail"), ("skopeo", program("skopeo"), "apt-get install skopeo", "warn")):
    if not path:
        print(f"{what} is not on this host anyway")
        continue
    p = doctor([path], "--json")
    f = {f["check"]: f for f in json.loads(p.stdout)}
    equal((f[what]["verdict"], f[what]["remedy"]), (verdict, remedy), f"without {path}: {f[what]}")
    equal(p.returncode, 1 if verdict == "fail" else 0, f"the status without {path}")
    # One thing missing is one thing told: the others are as they were.
    equal({k for k in f if f[k]["verdict"] != all[k]["verdict"]}, {what}, f"what changes without {path}")

# Several at once, in words for people.
p = doctor(["/dev/net", program("qemu-system-x86_64"), program("nft")])
equal(p.returncode, 1)
for w in ("fail  tun", "fail  QEMU", "fail  nft", "try: modprobe tun", "try: apt-get install qemu-system-x86", "try: apt-get install nftables", "3 missing"):
    check(w in p.stdout, f"no {w!r} in:\n{p.stdout}")
# No daemon is one more finding, with what starts it; the host is looked at all the same.
p = doctor([], "--json", env=cli_env(SPACE_SOCKET="/nonexistent/api.sock"))
f = {f["check"]: f for f in json.loads(p.stdout)} if p.stdout else {}
check(p.returncode == 1 and f.get("daemon", {}).get("verdict") == "fail" and f["daemon"]["remedy"] and f["QEMU"]["verdict"] == "ok", f"{p.returncode} {p.stdout} {p.stderr}")
# Who is not root gets an answer too, and is told what that means.
p = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", SPACE, "doctor", "--json"], capture_output=True, text=True, env=cli_env(HOME="/"), timeout=60)
f = {f["check"]: f for f in json.loads(p.stdout)} if p.stdout else {}
check(f.get("user", {}).get("verdict") == "warn" and "usermod" in f["user"]["remedy"] and f["daemon"]["verdict"] == "fail" and p.returncode == 1, f"{p.returncode} {p.stdout} {p.stderr}")
