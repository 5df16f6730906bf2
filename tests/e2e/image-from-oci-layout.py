# An image built from an OCI layout keeps its files, ENV, WORKDIR, USER and CMD, and whiteouts of its layers.
# needs: umoci skopeo
# limit: 240
from t import *
import shutil, tempfile

def run(*argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    check(p.returncode == 0, f"{argv}: {p.stderr[-500:]}")

tmp = tempfile.mkdtemp(prefix="space-oci.", dir="/tmp")
try:
    lay, ref = os.path.join(tmp, "layout"), os.path.join(tmp, "layout") + ":v1"
    run("umoci", "init", "--layout", lay)
    run("umoci", "new", "--image", ref)
    run("umoci", "unpack", "--image", ref, os.path.join(tmp, "b"))
    root = os.path.join(tmp, "b/rootfs")
    # Just enough of a system: one static program under many names is not in Debian's base, so the host's own dash and its libraries.
    def take(path):
        real = os.path.realpath(path)
        dest = root + real
        os.makedirs(os.path.dirname(dest), exist_ok=True)
        if not os.path.exists(dest):
            shutil.copy2(real, dest)
        if path != real and not os.path.lexists(root + path):
            os.makedirs(os.path.dirname(root + path), exist_ok=True)
            os.symlink(real, root + path)
    for d in ("usr/bin", "usr/lib", "usr/lib64", "usr/sbin", "etc", "tmp", "proc", "sys", "dev", "srv/app", "root"):
        os.makedirs(os.path.join(root, d), exist_ok=True)
    for d in ("bin", "lib", "lib64", "sbin"):
        os.symlink("usr/" + d, os.path.join(root, d))
    for prog in ("sh", "cat", "id", "pwd", "env", "ls", "sleep"):
        path = shutil.which(prog)
        take("/usr/bin/" + os.path.basename(os.path.realpath(path)))
        for lib in re.findall(r"(/\S+)", subprocess.run(["ldd", os.path.realpath(path)], capture_output=True, text=True).stdout):
            take(os.path.realpath(lib))
            name = root + "/usr" + lib.removeprefix("/usr")
            if not os.path.lexists(name):
                os.makedirs(os.path.dirname(name), exist_ok=True)
                os.symlink(os.path.realpath(lib), name)
    if not os.path.exists(root + "/usr/bin/sh"):
        os.symlink("dash", root + "/usr/bin/sh")
    open(root + "/etc/passwd", "w").write("root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/srv/app:/bin/sh\n")
    open(root + "/etc/group", "w").write("root:x:0:\napp:x:1234:\n")
    open(root + "/srv/app/first", "w").write("first\n")
    open(root + "/srv/app/gone", "w").write("gone\n")
    os.chmod(root + "/srv/app/first", 0o640)
    os.chown(root + "/srv/app/first", 1234, 1234)
    run("umoci", "repack", "--refresh-bundle", "--image", ref, os.path.join(tmp, "b"))
    os.unlink(root + "/srv/app/gone")
    open(root + "/srv/app/second", "w").write("second\n")
    run("umoci", "repack", "--image", ref, os.path.join(tmp, "b"))
    run("umoci", "config", "--image", ref, "--config.env", "GREETING=hello oci", "--config.workingdir", "/srv/app", "--config.user", "app", "--config.cmd", "sleep", "--config.cmd", "5")
    o = build("/v1/images", {"name": "oci-test", "from": "oci", "ref": "oci:" + ref}, 120)
    i = api("GET", "/v1/images/oci-test").json
    equal((i["user"], i["workdir"], i["env"]["GREETING"], i["cmd"]), ("app", "/srv/app", "hello oci", ["sleep", "5"]))
    build("/v1/templates", {"name": "oci-test", "image": "oci-test"}, 120)
    with sandbox(template="oci-test") as id:
        a = api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"cmd": ["sh", "-c", "cat first second; ls; pwd; id -u; echo $GREETING"]}).json
        equal(a["stdout"], "first\nsecond\nfirst\nsecond\n/srv/app\n1234\nhello oci\n", f"{a}")
        equal(show(id)["digests"]["image"], i["digest"])
finally:
    api("DELETE", "/v1/templates/oci-test", status=(200, 204, 404))
    api("DELETE", "/v1/images/oci-test", status=(200, 204, 404))
    shutil.rmtree(tmp)
