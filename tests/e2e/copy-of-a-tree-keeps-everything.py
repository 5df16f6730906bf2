# `space cp -r` carries a tree both ways with modes, links, times, long and odd names, and says what it cannot do.
from t import *
import shutil, tempfile

tmp = tempfile.mkdtemp(prefix="space-tree.", dir="/tmp")
try:
    src = os.path.join(tmp, "tree")
    os.makedirs(src + "/sub/" + "deep/" * 20)
    names = ["plain", "with space", "ümläut", "-dash", "new\nline", "q'uote\"", "n" * 200]
    for i, n in enumerate(names):
        with open(os.path.join(src, n), "wb") as f:
            f.write(os.urandom(1000 * i))
        os.chmod(os.path.join(src, n), 0o400 | i << 3)
        os.utime(os.path.join(src, n), (10 ** 9 + i, 10 ** 9 + i))
    for i in range(400):
        open(f"{src}/sub/f{i}", "w").write(str(i))
    os.symlink("../plain", src + "/sub/rel")
    os.symlink("/etc/passwd", src + "/abs")
    os.symlink("nowhere", src + "/dangling")
    os.link(src + "/plain", src + "/hard")
    os.mkdir(src + "/empty")

    def picture(top):
        p = {}
        for at, dirs, files in os.walk(top):
            for n in dirs + files:
                f = os.path.join(at, n)
                st = os.lstat(f)
                kind = "l" + os.readlink(f) if os.path.islink(f) else "d" if os.path.isdir(f) else "f"
                p[os.path.relpath(f, top)] = (kind, st.st_mode & 0o7777 if kind[0] != "l" else 0, int(st.st_mtime) if kind == "f" else 0,
                                              open(f, "rb").read() if kind == "f" else None)
        return p

    with sandbox() as id:
        cli("cp", "-r", src, f"{id}:/home/user/")
        equal(out(id, "cd tree && find . -mindepth 1 -printf x | wc -c; ls -l --time-style=+%s -- -dash | cut -d' ' -f6; readlink sub/rel abs dangling"),
              f"{sum(len(d) + len(f) for _, d, f in os.walk(src))}\n{10 ** 9 + 3}\n../plain\n/etc/passwd\nnowhere".replace("\n" + str(10 ** 9 + 3), "\n" + out(id, "stat -c %Y -- tree/-dash")))
        cli("cp", "-r", f"{id}:/home/user/tree", os.path.join(tmp, "back"))
        back = os.path.join(tmp, "back")
        if os.path.isdir(back + "/tree"):
            back += "/tree"
        a, b = picture(src), picture(back)
        equal(sorted(b), sorted(a), "names")
        for n in a:
            equal(b[n], a[n], f"{n!r}")
        # Onto a file, from something that is not there, a directory without -r.
        for args in ((f"{id}:/no/such", tmp), (src, f"{id}:/home/user/x"), (os.path.join(tmp, "none"), f"{id}:/tmp/")):
            r = cli("cp", *args, code=None)
            check(r.code in (1, 2) and r.err.strip(), f"cp {args}: {r.code} {r.err}")
        # Pipes: `-` is stdin and stdout.
        cli("cp", "-", f"{id}:/tmp/piped", input=b"through a pipe")
        equal(cli("cp", f"{id}:/tmp/piped", "-").out, "through a pipe")
finally:
    shutil.rmtree(tmp)
