# A detached command can be handed to somebody else: its token opens that one command's stream and nothing more.
from t import *

where = ("127.0.0.1", PORT)
key = api("POST", "/v1/keys", {"name": "attach-test", "scope": "use"}, status=201).json
try:
    with sandbox() as id:
        a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "for i in 1 2 3; do echo line $i; sleep 0.3; done"}, status=201).json
        b = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "echo other; sleep 30"}, status=201).json
        path = f"/v1/sandboxes/{id}/processes/{a['pid']}/output"
        equal(a["output"], path)
        token = a["attach_token"]
        check(len(token) >= 32, "a token that cannot be guessed")
        o, _, end = collect(Stream("GET", path + "?attach_token=" + token, where=where))
        equal(o, b"line 1\nline 2\nline 3\n")
        equal(end.data["code"], 0)
        o, _, end = collect(Stream("GET", path, headers={"X-Attach-Token": token}, where=where))
        equal(o, b"line 1\nline 2\nline 3\n", "again, from the start, by the header")
        # Nothing else opens with it.
        h = {"X-Attach-Token": token}
        for m, p in (("GET", f"/v1/sandboxes/{id}/processes/{b['pid']}/output"), ("GET", f"/v1/sandboxes/{id}"), ("GET", "/v1/sandboxes"),
                     ("POST", f"/v1/sandboxes/{id}/exec"), ("DELETE", f"/v1/sandboxes/{id}"), ("GET", f"/v1/sandboxes/{id}/files/etc/passwd"),
                     ("POST", f"/v1/sandboxes/{id}/processes/{a['pid']}/signal"), ("POST", f"/v1/sandboxes/{id}/processes/{a['pid']}/stdin")):
            error(m, p, {} if m == "POST" else None, status=(401, 403), where=where, headers=h)
            error(m, p + ("&" if "?" in p else "?") + "attach_token=" + token, {} if m == "POST" else None, status=(401, 403), where=where)
        error("GET", path, where=where, status=401, code="unauthorized")
        error("GET", path + "?attach_token=" + token[:-1] + ("0" if token[-1] != "0" else "1"), where=where, status=(401, 403))
        # A key does what keys do.
        api("GET", f"/v1/sandboxes/{id}", where=where, headers={"Authorization": "Bearer " + key["key"]})
finally:
    api("DELETE", f"/v1/keys/{key['id']}", status=(200, 204))
