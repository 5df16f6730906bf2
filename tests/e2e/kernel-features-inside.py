# Inside a sandbox root can use FUSE, tun, loop devices, overlay, bridges and iptables-nft, and the tools of the base image are there.
# limit: 200
from t import *

# A file system served by this very script, in the kernel's own protocol: INIT, GETATTR, LOOKUP, OPEN, READ, STATFS; one file, "hello".
FUSE = r'''
import ctypes, errno, os, struct, sys, threading
at = sys.argv[1]
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"test", at.encode(), b"fuse", 0, f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()):
    sys.exit("mount: " + os.strerror(ctypes.get_errno()))
TEXT, seen = b"served from user space\n", set()

def attr(ino):
    mode, size = (0o40755, 0) if ino == 1 else (0o100444, len(TEXT))
    return struct.pack("<QQQQQQIIIIIIIIII", ino, size, 1, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

def answer(op, node, body):
    if op == 26:  # INIT
        return struct.pack("<IIIIHHIIHHI", 7, 31, 0, 0, 16, 8, 4096, 1, 0, 0, 0) + bytes(28)
    if op == 1:  # LOOKUP
        return struct.pack("<QQQQII", 2, 0, 1, 1, 0, 0) + attr(2) if body.rstrip(b"\0") == b"hello" else -errno.ENOENT
    if op == 3:  # GETATTR
        return struct.pack("<QII", 1, 0, 0) + attr(node)
    if op == 14:  # OPEN
        return struct.pack("<QII", 1, 0, 0)
    if op == 15:  # READ
        at, n = struct.unpack("<QI", body[8:20])
        return TEXT[at:at + n]
    if op == 17:  # STATFS
        return struct.pack("<QQQQQIIII", 1000, 500, 500, 10, 5, 4096, 255, 4096, 0) + bytes(24)
    return b"" if op in (18, 25) else -errno.ENOSYS

def serve():
    while True:
        try:
            m = os.read(fd, 1 << 17)
        except OSError as e:
            return  # ENODEV: unmounted
        n, op, unique, node = struct.unpack("<IIQQ", m[:24])
        seen.add(op)
        if op in (2, 42):  # FORGET: wants no answer
            continue
        a = answer(op, node, m[40:n])
        err, a = (a, b"") if isinstance(a, int) else (0, a)
        os.write(fd, struct.pack("<IiQ", 16 + len(a), err, unique) + a)

t = threading.Thread(target=serve, daemon=True)
t.start()
v = os.statvfs(at)
assert (v.f_blocks, v.f_bfree) == (1000, 500), v
assert open(at + "/hello", "rb").read() == TEXT
assert {26, 1, 14, 15, 17} <= seen, seen
try:
    open(at + "/other")
    raise AssertionError("there is no such file")
except FileNotFoundError:
    pass
# Another process sees it too.
assert os.popen(f"cat {at}/hello").read().encode() == TEXT
assert libc.umount2(at.encode(), 0) == 0, os.strerror(ctypes.get_errno())
t.join(5)
print("fuse works")
'''

with sandbox() as id:
    def root(script):
        return sh(id, "set -e; " + script, user="root")
    root("modprobe fuse 2>/dev/null || true; test -c /dev/fuse; grep -q fuse /proc/filesystems")
    put(id, "/tmp/fuse.py", FUSE)
    equal(out(id, "mkdir /tmp/fuse && python3 /tmp/fuse.py /tmp/fuse", user="root", timeout=60), "fuse works")
    root("modprobe tun 2>/dev/null || true; ip tuntap add t9 mode tun; ip link show t9; ip link del t9")
    root("modprobe loop 2>/dev/null || true; truncate -s 8M /tmp/img; mke2fs -q /tmp/img; mkdir -p /tmp/mnt; mount -o loop /tmp/img /tmp/mnt; echo x > /tmp/mnt/x; umount /tmp/mnt")
    root("mkdir -p /run/o/l /run/o/u /run/o/w /run/o/m; echo low > /run/o/l/f; mount -t overlay overlay -o lowerdir=/run/o/l,upperdir=/run/o/u,workdir=/run/o/w /run/o/m && cat /run/o/m/f && umount /run/o/m"
         " || { mount -t tmpfs none /run/o && mkdir -p /run/o/l /run/o/u /run/o/w /run/o/m && mount -t overlay overlay -o lowerdir=/run/o/l,upperdir=/run/o/u,workdir=/run/o/w /run/o/m; }")
    root("ip link add br9 type bridge; ip link add v9 type veth peer name v8; ip link set v9 master br9; ip link set br9 up; ip link del br9; ip link del v9")
    root("iptables --version | grep -q nf_tables; iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE; iptables -A INPUT -p tcp -m multiport --dports 1,2 -m conntrack --ctstate NEW -m comment --comment x -j REJECT;"
         "iptables -t nat -S POSTROUTING | grep -q MASQUERADE; iptables -F; iptables -t nat -F; ip6tables -A INPUT -p tcp --dport 1 -j REJECT; ip6tables -F")
    equal(out(id, "python -c 'print(1)'; python3 -m venv --help >/dev/null && node -e 'console.log(2)'; git --version >/dev/null; curl --version >/dev/null; sudo -n id -u; ps -e >/dev/null; ip -br link >/dev/null; echo ok"), "1\n2\n0\nok")
    equal(out(id, "id -u; id -un"), "1000\nuser")
    equal(out(id, "test -s /etc/ssl/certs/ca-certificates.crt && echo certs; tput -T xterm colors"), "certs\n8")
    out(id, "python3 -m pip --version >/dev/null; python3 -m venv --without-pip /tmp/v && /tmp/v/bin/python -c 'import sys; assert sys.prefix == \"/tmp/v\"'", timeout=60)
