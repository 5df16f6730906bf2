# A checkpoint that another driver, or another version of it, has made is refused with a sentence that names both; its disk boots.
# serial
# limit: 90
from t import *

KEY = "driver_version"

with sandbox(timeout=80) as id:
    sh(id, "echo of the disk > /home/user/file; sync")
    k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=60).json
    try:
        path = os.path.join(RUN["state"], "pool/nodes", k["id"], "node.json")
        node = json.load(open(path))
        equal(node[KEY], k[KEY], "both say the same")
        node[KEY] = "9.9 of another processor"
        with open(path, "w") as f:
            json.dump(node, f)
        for call in (("/v1/sandboxes", {"checkpoint": k["id"]}), (f"/v1/sandboxes/{id}/rollback", {"checkpoint": k["id"]})):
            j = error("POST", *call, status=409, code="checkpoint_mismatch")
            for word in (k["id"], "9.9 of another processor", api("GET", "/v1/host").json[KEY]):
                check(word in j["message"], f"{word!r} is not in: {j['message']}")
            check("--disk-only" in j["remedy"], f"the remedy: {j['remedy']}")
        equal(out(id, "cat /home/user/file"), "of the disk", "the sandbox that should have been rolled back")
        p = cli("run", "--from", k["id"], "--", "true", code=None)
        check(p.code != 0 and "another processor" in p.err and "--disk-only" in p.err, f"space run: {p.err}")
        equal(cli("run", "--from", k["id"], "--disk-only", "--", "cat", "/home/user/file").out, "of the disk\n", "booted from its disk")
    finally:
        api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
