# An image is built from a directory, found by name and digest, used by a template, and is not removed while that template needs it.
# limit: 240
from t import *
import shutil, tempfile

tmp = tempfile.mkdtemp(prefix="space-dir.", dir="/tmp")
try:
    with sandbox() as id:
        # A whole system out of a running sandbox: what `space cp` brings is a directory like any other.
        sh(id, "mkdir -p /tmp/r/etc /tmp/r/usr/bin /tmp/r/tmp /tmp/r/proc /tmp/r/sys /tmp/r/dev /tmp/r/root; cp -a /etc/passwd /etc/group /tmp/r/etc/;"
               "for p in bash cat ls id; do cp /usr/bin/$p /tmp/r/usr/bin/; ldd /usr/bin/$p | grep -o '/[^ ]*'; done | sort -u |"
               "while read l; do mkdir -p /tmp/r/usr/$(dirname ${l#/usr}); cp -L $l /tmp/r/usr/${l#/usr}; done;"
               "for d in bin lib lib64; do ln -s usr/$d /tmp/r/$d; done; ln -s bash /tmp/r/usr/bin/sh; echo by-hand > /tmp/r/etc/marker", user="root")
        cli("cp", "-r", f"{id}:/tmp/r", tmp)
    root = os.path.join(tmp, "r")
    build("/v1/images", {"name": "dir-test", "from": "dir", "path": root}, 100)
    i = api("GET", "/v1/images/dir-test").json
    check(re.fullmatch(r"sha256:[0-9a-f]{64}", i["digest"]), i["digest"])
    build("/v1/templates", {"name": "dir-test", "image": i["digest"]}, 120)
    error("DELETE", "/v1/images/dir-test", status=409)
    r = cli("run", "-t", "dir-test", "--user", "root", "--", "/bin/bash", "-c", "cat /etc/marker")
    equal(r.out, "by-hand\n")
    # Built from the same bytes it is the same image.
    build("/v1/images", {"name": "dir-test2", "from": "dir", "path": root}, 100)
    equal(api("GET", "/v1/images/dir-test2").json["digest"], i["digest"])
finally:
    api("DELETE", "/v1/templates/dir-test", status=(200, 204, 404))
    for n in ("dir-test2", "dir-test"):
        api("DELETE", f"/v1/images/{n}", status=(200, 204, 404))
    shutil.rmtree(tmp)
