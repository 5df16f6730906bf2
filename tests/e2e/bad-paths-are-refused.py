# NUL and control bytes in paths are refused, .. stays below /, and links inside a sandbox lead nowhere outside it.
from t import *

with sandbox() as id:
    base = f"/v1/sandboxes/{id}/files"
    for p in ("/tmp/a%00b", "/tmp/a%0ab", "/tmp/%01", "/tmp/%7f", "/" + "a" * 5000, "/tmp/%ff%fe%00", "/tmp/%zz"):
        for m in ("GET", "PUT", "DELETE"):
            j = error(m, base + p, b"x" if m == "PUT" else None, status=(400, 414, 404))
            check(j["code"] in ("bad_path", "bad_request") or m == "GET" and j["code"] == "file_not_found", f"{m} {p}: {j}")
    # The guest is its own world: .. ends at its root.
    secret = os.path.join(DIR, "run.json")
    for p in ("/../../../../../.." + secret, "/tmp/../../../.." + secret, "/%2e%2e/%2e%2e/%2e%2e/%2e%2e" + secret, secret):
        j = error("GET", base + p, status=(400, 404))
    sh(id, f"ln -s {secret} link; ln -s / rootlink; ln -s loop loop")
    error("GET", base + "/home/user/link", status=404, code="file_not_found")
    error("GET", base + "/home/user/rootlink" + secret, status=404, code="file_not_found")
    error("GET", base + "/home/user/loop", status=(400, 404))
    equal(get(id, "/home/user/rootlink/etc/hostname").body, get(id, "/etc/hostname").body, "a link inside leads inside")
    # A tar from outside cannot leave the directory that it is unpacked in.
    import io, tarfile
    for name, link in (("../evil", None), ("/etc/evil", None), ("l/evil", "l"), ("a/../../evil", None)):
        b = io.BytesIO()
        with tarfile.open(fileobj=b, mode="w", format=tarfile.PAX_FORMAT) as tf:
            if link:
                ti = tarfile.TarInfo(link)
                ti.type, ti.linkname = tarfile.SYMTYPE, "/etc"
                tf.addfile(ti)
            ti = tarfile.TarInfo(name)
            ti.size = 4
            tf.addfile(ti, io.BytesIO(b"evil"))
        sh(id, "rm -rf /tmp/in; mkdir /tmp/in", user="root")
        api("PUT", f"/v1/sandboxes/{id}/tar/tmp/in?user=root", b.getvalue(), status=(201, 400, 403, 404, 409, 500), headers={"Content-Type": "application/x-tar"})
        equal(out(id, "ls -d /tmp/evil /evil /etc/evil 2>/dev/null | wc -l"), "0", f"a tar with {name}")
    error("PUT", f"/v1/sandboxes/{id}/tar/tmp/in", b"this is no tar" * 100, status=(400,))
    equal(out(id, "echo ok"), "ok")
# On this side nothing either: the CLI's copy of a directory stays in its target.
with sandbox() as id:
    sh(id, "mkdir -p /tmp/d; ln -s /etc /tmp/d/up; echo x > /tmp/d/f")
    target = os.path.join(DIR, "copied")
    os.mkdir(target)
    try:
        cli("cp", "-r", f"{id}:/tmp/d", target)
        check(os.path.islink(os.path.join(target, "d/up")), "the link came as a link")
        equal(open(os.path.join(target, "d/f")).read(), "x\n")
    finally:
        subprocess.run(["rm", "-rf", target])
