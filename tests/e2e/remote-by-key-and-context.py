# Over TCP a key is needed, does what its scope allows, works with SPACE_URL or a context, and stops within a second of being deleted.
from t import *
import shutil, tempfile

url = f"http://127.0.0.1:{PORT}"
where = ("127.0.0.1", PORT)
keys = {s: api("POST", "/v1/keys", {"name": f"test-{s}", "scope": s}, status=201).json for s in ("read", "use", "admin")}
home = tempfile.mkdtemp(prefix="space-home.", dir="/tmp")
try:
    for k in keys.values():
        check(re.fullmatch(r"space_[0-9a-f]{40}", k["key"]), k["key"])
    listed = json.dumps(api("GET", "/v1/keys").json)
    for k in keys.values():
        check(k["id"] in listed and k["key"] not in listed, "a key is shown once")
    def h(scope):
        return {"Authorization": "Bearer " + keys[scope]["key"]}
    api("GET", "/v1/sandboxes", where=where, headers=h("read"))
    api("GET", "/v1/sandboxes", where=where, headers={"X-API-Key": keys["read"]["key"]})
    api("GET", "/v1/sandboxes", where=where, headers={"X-API-Key": keys["read"]["key"].replace("space_", "e2b_")})
    error("POST", "/v1/sandboxes", {}, where=where, headers=h("read"), status=403, code="forbidden")
    error("POST", "/v1/keys", {"name": "x", "scope": "admin"}, where=where, headers=h("use"), status=403, code="forbidden")
    error("GET", "/v1/sandboxes", where=where, headers={"Authorization": "Bearer space_" + "0" * 40}, status=401, code="unauthorized")
    error("GET", "/v1/sandboxes", where=where, headers={"Authorization": "Basic eDp5"}, status=401, code="unauthorized")
    error("POST", "/v1/images", {"name": "x", "from": "dir", "path": "/etc"}, where=where, headers=h("admin"), status=(400, 403))
    env = cli_env(SPACE_URL=url, SPACE_API_KEY=keys["use"]["key"], HOME=home, XDG_CONFIG_HOME=home)
    env.pop("SPACE_SOCKET")
    id = cli("create", "-q", env=env).out.strip()
    try:
        equal(cli("exec", id, "--", "echo", "remote", env=env).out, "remote\n")
        equal(cli("exec", id, "--", "cat", input=b"in", env=env).out, "in")
        env2 = {k: v for k, v in env.items() if k not in ("SPACE_URL", "SPACE_API_KEY")}
        cli("context", "add", "there", url, "--key", keys["use"]["key"], env=env2, code=None)
        r = cli("context", "ls", env=env2)
        check("there" in r.out and keys["use"]["key"] not in r.out, f"a context, without its key: {r.out}")
        cli("context", "use", "there", env=env2)
        check(id in cli("ls", env=env2).out, "the context is used")
        for at, _, files in os.walk(home):
            for f in files:
                if keys["use"]["key"].encode() in open(os.path.join(at, f), "rb").read():
                    equal(os.stat(os.path.join(at, f)).st_mode & 0o077, 0, "the file with the key is its owner's")
    finally:
        api("DELETE", f"/v1/sandboxes/{id}")
    api("DELETE", f"/v1/keys/{keys['use']['id']}", status=(200, 204))
    wait_for(lambda: api("GET", "/v1/sandboxes", where=where, headers=h("use"), status=(200, 401)).status == 401, 1, "the deleted key is refused")
    r = cli("ls", env=env, code=1)
    check("key" in r.err, r.err)
    del keys["use"]
finally:
    for k in keys.values():
        api("DELETE", f"/v1/keys/{k['id']}", status=(200, 204, 404))
    shutil.rmtree(home)
r = cli("ls", env={**cli_env(), "SPACE_SOCKET": "/nonexistent/api.sock"}, code=1)
check("daemon" in r.err.lower() or "spaced" in r.err, f"daemon down: {r.err}")
