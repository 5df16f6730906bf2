"""What SPACE is compared with: the same guest booted by hand, and other ways to run the same command on this host."""
import glob, json, os, re, select, shutil, socket, stat, struct, subprocess, tempfile, time


class NotHere(Exception):
    """This machine lacks it, or it does not work here; the words say which."""


# --- a cold boot of the same guest ---

def files_of_template(b, name="base"):
    """The files of the pool that a template was made of."""
    tpl = b.t.api("GET", f"/v1/templates/{name}").json
    pool = os.path.join(b.info["state"], "pool")
    node = json.load(open(os.path.join(pool, "nodes", tpl["node"], "node.json")))
    bare = lambda d: d.removeprefix("sha256:")
    return {
        "kernel": os.path.join(pool, "kernels", bare(node["kernel"]), "vmlinux"),
        "initrd": os.path.join(pool, "initrds", bare(node["initrd"]) + ".cpio"),
        "image": os.path.join(pool, "images", bare(node["image"]) + ".erofs"),
        "memory": tpl["memory"], "vcpu": tpl["vcpu"], "disk": tpl["disk"],
    }


def envelope(obj):
    d = json.dumps(obj).encode()
    return struct.pack("!BI", 0, len(d)) + d


class Http:
    """Just enough HTTP over one socket to a guest's agent."""

    def __init__(self, port):
        self.s = socket.create_connection(("127.0.0.1", port), 5)
        self.s.settimeout(60)
        self.f = self.s.makefile("rb")

    def head(self, path, body, kind):
        self.s.sendall(f"POST {path} HTTP/1.1\r\nHost: guest\r\nContent-Type: {kind}\r\nConnect-Protocol-Version: 1\r\n"
                       f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        line = self.f.readline()
        if not line:
            raise ConnectionError("closed")
        status, headers = int(line.split()[1]), {}
        for line in iter(self.f.readline, b"\r\n"):
            k, _, v = line.decode().partition(":")
            headers[k.lower()] = v.strip()
        return status, headers

    def body(self, headers):
        if "content-length" in headers:
            yield self.f.read(int(headers["content-length"]))
            return
        while n := int(self.f.readline().split(b";")[0] or b"0", 16):
            yield self.f.read(n)
            self.f.readline()
        self.f.readline()


# The driver's own CPU and words (src/driver/qemu_args.c) without what only a template needs (init_on_free) and without a console: the fastest
# boot of this guest that we know.
CPU_TCG = ("EPYC,-rdseed,-sha-ni,-fxsr-opt,-misalignsse,-3dnowprefetch,-osvw,-topoext,-perfctr-core,-clzero,-xsaveerptr,"
           "-ibpb,-nrip-save,-xsavec,-xsaves,-svm,-npt")
WORDS = "quiet panic=-1 reboot=t random.trust_cpu=on cryptomgr.notests nowatchdog space.root=rw"


def accel_args(b):
    """Options of QEMU and words for the kernel: as spaced itself runs its guests here."""
    h = b.t.api("GET", "/v1/host").json
    if h["isolation"] == "kvm":
        return ["-accel", "kvm", "-cpu", "host"], WORDS
    mhz = re.search(r"tsc\D*(\d+)", h["driver_version"])
    # Without these a guest under TCG may hang in early calibration; see docs/driver.md.
    return ["-accel", "tcg,tb-size=256", "-cpu", CPU_TCG], WORDS + " tsc=reliable no_timer_check mitigations=off norandmaps psi=0 lsm=landlock" + (f" tsc_early_khz={mhz[1]}000" if mhz else "")


def wait_up(q, port, t0):
    """Until the agent answers. QEMU's user network takes a connection at once and knocks at the guest at growing intervals, which would count
    as boot time: so every 30 ms another connection knocks anew, and the first that is answered ends it."""
    knocks = []
    try:
        while True:
            if q.poll() is not None:
                raise SystemExit(f"QEMU ended: {q.stderr.read().decode()[-500:]}")
            if time.monotonic() - t0 > 90:
                raise SystemExit("the guest did not boot within 90 s")
            s = socket.socket()
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", port))
            knocks.append(s)
            end = time.monotonic() + 0.03
            while (left := end - time.monotonic()) > 0:
                readable, writable, _ = select.select(knocks, [s] if s else [], [], left)
                if s in writable:
                    try:
                        s.send(b"GET /health HTTP/1.1\r\nHost: guest\r\n\r\n")
                    except OSError:
                        pass
                    s = None
                for r in readable:
                    try:
                        if r.recv(4096).startswith(b"HTTP/1.1 2"):
                            return
                    except OSError:
                        pass
                    knocks.remove(r)
                    r.close()
                    if r is s:
                        s = None
            for old in knocks[:-60]:
                old.close()
            del knocks[:-60]
    finally:
        for s in knocks:
            s.close()


def cold_boot(b):
    """ms from QEMU's start to the first byte that `echo` printed, through the agent, over QEMU's own user network."""
    f = files_of_template(b)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    accel, words = accel_args(b)
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="space-boot.") as tmp:
        disk = os.path.join(tmp, "disk")
        subprocess.run(["truncate", "-s", str(f["disk"]), disk], check=True)
        subprocess.run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-E", "lazy_itable_init=1,nodiscard", disk], check=True)
        argv = ["qemu-system-x86_64", "-M", "microvm,acpi=on,pit=off,pic=off,rtc=on,isa-serial=off,auto-kernel-cmdline=off,x-option-roms=off,mem-merge=off", *accel, "-no-user-config", "-nodefaults",
                "-display", "none", "-m", str(f["memory"] >> 20), "-smp", str(f["vcpu"]), "-kernel", f["kernel"], "-initrd", f["initrd"],
                "-append", words, "-global", "virtio-mmio.force-legacy=off",
                "-drive", f"if=none,id=a,file={f['image']},format=raw,readonly=on", "-device", "virtio-blk-device,bus=virtio-mmio-bus.3,drive=a",
                "-drive", f"if=none,id=b,file={disk},format=raw,cache=unsafe", "-device", "virtio-blk-device,bus=virtio-mmio-bus.2,drive=b",
                "-netdev", f"user,id=n,restrict=on,net=100.64.0.0/24,host=100.64.0.1,dns=100.64.0.3,dhcpstart=100.64.0.9,hostfwd=tcp:127.0.0.1:{port}-100.64.0.2:49983",
                "-device", "virtio-net-device,bus=virtio-mmio-bus.1,netdev=n,mac=02:00:00:00:00:02",
                "-object", "rng-builtin,id=r", "-device", "virtio-rng-device,bus=virtio-mmio-bus.0,rng=r"]
        t0 = time.monotonic()
        q = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            wait_up(q, port, t0)
            h = Http(port)
            status, headers = h.head("/init", b'{"generation":1}', "application/json")
            list(h.body(headers))
            if status >= 300:
                raise SystemExit(f"/init: {status}")
            status, headers = h.head("/process.Process/Start", envelope({"process": {"cmd": "/bin/echo", "args": ["x"]}}), "application/connect+json")
            data = b""
            for part in h.body(headers):
                data += part
                if b'"data"' in data and b"stdout" in data:
                    return (time.monotonic() - t0) * 1000
            raise SystemExit(f"echo: {status} {data[:300]!r}")
        finally:
            q.kill()
            q.wait()
            q.stderr.close()


# --- the reference: what a plain QEMU with Debian's own kernel takes ---

class Reference:
    """QEMU's microvm, the bzImage of Debian's linux-image-amd64 and an initramfs with nothing in it but /bin/echo and its libraries, which the
    kernel runs as its first process: no driver, no disk, no network, no service. Until the first byte that echo printed on the console."""

    MARK = b"SPACE-REFERENCE"

    def __init__(self, b):
        self.tmp = tempfile.TemporaryDirectory(dir="/tmp", prefix="space-reference.")
        dir = self.tmp.name
        words = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True).stdout.split()
        package = next((w for w in words if re.fullmatch(r"linux-image-[0-9].*-amd64", w)), None)
        got = package and subprocess.run(["apt-get", "download", package], cwd=dir, capture_output=True, text=True)
        debs = glob.glob(os.path.join(dir, "*.deb"))
        if not debs:
            self.tmp.cleanup()
            raise NotHere(f"apt cannot download linux-image-amd64: {got.stderr.strip()[-160:] if got else 'it is not known'}")
        self.version = os.path.basename(debs[0]).removesuffix(".deb")
        subprocess.run(f"dpkg-deb --fsys-tarfile {debs[0]} | tar -C {dir} -x --wildcards './boot/vmlinuz-*'", shell=True, check=True)
        os.unlink(debs[0])
        self.kernel = glob.glob(os.path.join(dir, "boot/vmlinuz-*"))[0]
        self.initrd = os.path.join(dir, "initrd")
        root = os.path.join(dir, "root")
        os.makedirs(os.path.join(root, "dev"))
        os.mknod(os.path.join(root, "dev/console"), 0o600 | stat.S_IFCHR, os.makedev(5, 1))
        ldd = subprocess.run(["ldd", "/bin/echo"], capture_output=True, text=True, check=True).stdout
        for f in ["/bin/echo"] + [w for w in ldd.split() if w.startswith("/")]:
            os.makedirs(root + os.path.dirname(f), exist_ok=True)
            shutil.copy(f, root + f)
        with open(self.initrd, "wb") as out:
            subprocess.run("find . | cpio -o -H newc --quiet", shell=True, cwd=root, stdout=out, check=True)
        accel, words = accel_args(b)
        clock = [w for w in words.split() if w.startswith("tsc")]  # without it a guest may hang; see docs/driver.md
        self.argv = ["qemu-system-x86_64", "-M", "microvm", *accel, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
                     "-m", "512", "-kernel", self.kernel, "-initrd", self.initrd,
                     "-append", " ".join(["console=ttyS0 quiet panic=-1", *clock, "rdinit=/bin/echo --", self.MARK.decode()])]

    def boot(self):
        t0 = time.monotonic()
        p = subprocess.Popen(self.argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        seen, t1 = b"", None
        try:
            while self.MARK not in seen and time.monotonic() - t0 < 120:
                part = p.stdout.read1(4096)
                if not part:
                    break
                seen += part
            t1 = time.monotonic()
        finally:
            p.kill()
            p.wait()
            p.stdout.close()
        if self.MARK not in seen:
            raise NotHere(f"the reference did not boot: {seen[-160:]!r}")
        return (t1 - t0) * 1000

    def close(self):
        self.tmp.cleanup()


# --- other ways to run the same command ---

def timed(argv, **kw):
    """ms until the first byte of output."""
    t0 = time.monotonic()
    p = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    first = p.stdout.read(1)
    ms = (time.monotonic() - t0) * 1000
    _, err = p.communicate(timeout=60)
    if first != b"x" or p.returncode:
        words = [w for w in err.decode(errors="replace").strip().splitlines() if w]
        raise NotHere(f"status {p.returncode}: {words[-1][:160] if words else 'no output'}")
    return ms


def need(program):
    if not shutil.which(program):
        raise NotHere("not installed")


def bwrap(b):
    need("bwrap")
    return timed(["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--unshare-all", "--die-with-parent", "/bin/echo", "x"])


def crun(b):
    need("crun")
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="space-crun.") as tmp:
        subprocess.run(["crun", "spec"], cwd=tmp, check=True, capture_output=True)
        path = os.path.join(tmp, "config.json")
        c = json.load(open(path))
        c["root"] = {"path": "/", "readonly": True}
        c["process"]["terminal"] = False
        c["process"]["args"] = ["/bin/echo", "x"]
        # Limits and control groups are not what is compared, and do not work on every host.
        c["process"].pop("rlimits", None)
        c["mounts"] = [m for m in c["mounts"] if "cgroup" not in m["type"]]
        c["linux"].pop("resources", None)
        c["linux"]["namespaces"] = [n for n in c["linux"]["namespaces"] if n["type"] != "cgroup"]
        json.dump(c, open(path, "w"))
        return timed(["crun", "--cgroup-manager=disabled", "run", f"space-bench-{os.getpid()}"], cwd=tmp)


def podman(b):
    need("podman")
    return timed(["podman", "run", "--rm", "--network=none", "--read-only", "--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024",
                  "--rootfs", "/", "/bin/echo", "x"])


def runsc(b):
    need("runsc")
    return timed(["runsc", "--network=none", "--ignore-cgroups", "do", "/bin/echo", "x"])


# --- copying a tree ---

def copy_tree(b, id):
    """20,000 small files with `space cp -r`, and the same through tar and ssh to localhost where an sshd can be started."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="space-tree.") as tmp:
        src = os.path.join(tmp, "tree")
        for d in range(200):
            os.makedirs(f"{src}/d{d}")
            for i in range(100):
                with open(f"{src}/d{d}/f{i}", "wb") as f:
                    f.write(os.urandom(300 + i))
        for i in range(100):
            os.symlink(f"../d1/f{i}", f"{src}/d0/l{i}")
        os.sync()
        t0 = time.monotonic()
        b.t.cli("cp", "-r", "-q", src, f"{id}:/home/user/tree", timeout=600)
        into = time.monotonic() - t0
        b.rep.one("space cp -r of 20,000 files, into the sandbox", into, "s")
        t0 = time.monotonic()
        b.t.cli("cp", "-r", "-q", f"{id}:/home/user/tree", os.path.join(tmp, "back"), timeout=600)
        b.rep.one("space cp -r of 20,000 files, out of it", time.monotonic() - t0, "s")
        try:
            t0 = time.monotonic()
            ssh_copy(tmp, src)
            took = time.monotonic() - t0
            b.rep.one("tar through ssh to localhost, the same files", took, "s", f"space cp takes {into / took:.2f} times as long; goal 2")
        except NotHere as e:
            b.rep.note(f"tar through ssh: not measured: {e}")


def ssh_copy(tmp, src):
    sshd = shutil.which("sshd") or next(iter(glob.glob("/usr/sbin/sshd")), None)
    if not sshd or not shutil.which("ssh"):
        raise NotHere("no sshd")
    key, host = os.path.join(tmp, "key"), os.path.join(tmp, "hostkey")
    for k in (key, host):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", k], check=True)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    os.makedirs("/run/sshd", exist_ok=True)
    p = subprocess.Popen([sshd, "-D", "-e", "-f", "/dev/null", "-h", host, "-p", str(port), "-o", f"AuthorizedKeysFile={key}.pub", "-o", "StrictModes=no",
                          "-o", "PidFile=none", "-o", "ListenAddress=127.0.0.1"], stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        os.makedirs(os.path.join(tmp, "ssh-to"))
        r = subprocess.run(f"tar -C {src} -cf - . | ssh -q -i {key} -p {port} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null 127.0.0.1 "
                           f"'tar -C {tmp}/ssh-to -xf - && sync -f {tmp}/ssh-to'", shell=True, stderr=subprocess.PIPE)
        if r.returncode:
            raise NotHere("it does not let us in")
    finally:
        p.terminate()
        p.wait()
