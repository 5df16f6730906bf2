# Inside a sandbox root can use FUSE, tun, loop devices, overlay, bridges and iptables-nft, and the tools of the base image are there.
from t import *

with sandbox() as id:
    def root(script):
        return sh(id, "set -e; " + script, user="root")
    root("modprobe fuse 2>/dev/null || true; test -c /dev/fuse; grep -q fuse /proc/filesystems")
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
