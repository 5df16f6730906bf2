# An image is built from a registry, here a small one on loopback; it is the same image as from the layout that the registry serves.
# needs: umoci skopeo
# limit: 240
from t import *
import http.server, shutil, tempfile

def run(*argv):
    p = subprocess.run(argv, capture_output=True, text=True)
    check(p.returncode == 0, f"{argv}: {p.stderr[-500:]}")

tmp = tempfile.mkdtemp(prefix="space-registry.", dir="/tmp")
lay = os.path.join(tmp, "layout")
asked, corrupt = [], set()

class Registry(http.server.BaseHTTPRequestHandler):
    """What of the distribution API a pull needs: /v2/, manifests by tag and digest, blobs by digest. Read only."""
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", type="application/json", **more):
        self.send_response(status)
        self.send_header("Content-Type", type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        for k, v in more.items():
            self.send_header(k.replace("_", "-"), v)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def blob(self, digest):
        path = os.path.join(lay, "blobs", *digest.split(":"))
        return open(path, "rb").read() if re.fullmatch("sha256:[0-9a-f]{64}", digest) and os.path.exists(path) else None

    def do_GET(self):
        asked.append((self.command, self.path))
        m = re.fullmatch(r"/v2/team/app/(manifests|blobs)/([\w.:-]+)", self.path)
        if self.path == "/v2/":
            return self.answer(200, b"{}")
        if not m:
            return self.answer(404, b'{"errors":[{"code":"NAME_UNKNOWN","message":"no such repository"}]}')
        digest = m[2]
        if m[1] == "manifests" and not digest.startswith("sha256:"):
            index = json.load(open(os.path.join(lay, "index.json")))
            digest = next((x["digest"] for x in index["manifests"] if x.get("annotations", {}).get("org.opencontainers.image.ref.name") == digest), "")
        body = self.blob(digest)
        if body is None:
            return self.answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such tag"}]}')
        if digest in corrupt:
            body = body[:-1] + bytes([body[-1] ^ 1])
        type = json.loads(body).get("mediaType", "application/vnd.oci.image.manifest.v1+json") if m[1] == "manifests" else "application/octet-stream"
        self.answer(200, body, type, Docker_Content_Digest=digest)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
threading.Thread(target=server.serve_forever, daemon=True).start()
where = f"docker://127.0.0.1:{server.server_address[1]}/team/app"
key = api("POST", "/v1/keys", {"name": "test-registry", "scope": "admin"}, status=201).json
try:
    ref = lay + ":v1"
    run("umoci", "init", "--layout", lay)
    run("umoci", "new", "--image", ref)
    run("umoci", "unpack", "--image", ref, os.path.join(tmp, "b"))
    root = os.path.join(tmp, "b/rootfs")
    for d in ("etc", "srv/app", "tmp"):
        os.makedirs(os.path.join(root, d))
    open(root + "/etc/passwd", "w").write("root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/srv/app:/bin/sh\n")
    open(root + "/srv/app/data", "wb").write(os.urandom(100000))
    run("umoci", "repack", "--refresh-bundle", "--image", ref, os.path.join(tmp, "b"))
    open(root + "/srv/app/second", "w").write("second\n")
    run("umoci", "repack", "--image", ref, os.path.join(tmp, "b"))
    run("umoci", "config", "--image", ref, "--config.env", "FROM=registry", "--config.workingdir", "/srv/app", "--config.user", "app", "--config.cmd", "serve")

    build("/v1/images", {"name": "from-registry", "from": "oci", "ref": where + ":v1"}, 120)
    i = api("GET", "/v1/images/from-registry").json
    equal((i["user"], i["workdir"], i["env"]["FROM"], i["cmd"]), ("app", "/srv/app", "registry", ["serve"]))
    check(sum("/blobs/" in p for _, p in asked) >= 3, f"configuration and layers came from the registry: {asked}")
    build("/v1/images", {"name": "from-layout", "from": "oci", "ref": f"oci:{lay}:v1"}, 120)
    equal(api("GET", "/v1/images/from-layout").json["digest"], i["digest"], "the image from the layout")
    # By digest of its manifest, too.
    manifest = json.load(open(os.path.join(lay, "index.json")))["manifests"][0]["digest"]
    build("/v1/images", {"name": "by-digest", "from": "oci", "ref": f"{where}@{manifest}"}, 120)
    equal(api("GET", "/v1/images/by-digest").json["digest"], i["digest"], "the image by its manifest's digest")

    def refused(name, ref, *words):
        o = wait_op(op_of(api("POST", "/v1/images", {"name": name, "from": "oci", "ref": ref}, status=202)), 120)
        equal((o["state"], o["error"]["code"]), ("failed", "bad_request"), f"{o}")
        check(any(w in o["error"]["message"] for w in words) and o["error"]["remedy"], f"{o['error']}")
        error("GET", f"/v1/images/{name}", status=404, code="image_not_found")
    refused("no-tag", where + ":v2", "manifest", "no such tag")
    layer = json.loads(open(os.path.join(lay, "blobs", *manifest.split(":"))).read())["layers"][-1]["digest"]
    corrupt.add(layer)
    refused("bent-layer", where + ":v1", "digest", "did not match", "checksum")
    server.shutdown()
    server.server_close()
    refused("nobody", where + ":v1", "connection refused")
    # A key from elsewhere has no business with what listens on this host.
    error("POST", "/v1/images", {"name": "x", "from": "oci", "ref": where + ":v1"}, status=403, code="forbidden", where=("127.0.0.1", PORT),
          headers={"Authorization": "Bearer " + key["key"]})
finally:
    api("DELETE", f"/v1/keys/{key['id']}", status=(200, 204))
    for n in ("from-registry", "from-layout", "by-digest", "no-tag", "bent-layer", "nobody"):
        api("DELETE", f"/v1/images/{n}", status=(200, 204, 404))
    server.server_close()
    shutil.rmtree(tmp)
