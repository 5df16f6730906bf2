# Malformed, oversized and wrongly typed bodies, unknown and repeated fields: a clear error each, and the daemon goes on.
from t import *

with sandbox() as id:
    ex = f"/v1/sandboxes/{id}/exec"
    for path, body, code, word in (
            ("/v1/sandboxes", "{", "bad_json", None),
            ("/v1/sandboxes", "", None, None),
            ("/v1/sandboxes", "[]", None, None),
            ("/v1/sandboxes", "null x", "bad_json", None),
            ("/v1/sandboxes", '{"a":' * 60 + "1" + "}" * 60, "bad_json", None),
            ("/v1/sandboxes", '{"template":"base","template":"base"}', "bad_json", None),
            ("/v1/sandboxes", b'{"name":"\xff\xfe"}', "bad_json", None),
            ("/v1/sandboxes", '{"name":"a\\u0000b"}', "bad_json", None),
            ("/v1/sandboxes", '{"tempalte":"base"}', "bad_request", "tempalte"),
            ("/v1/sandboxes", '{"vcpu":"two"}', "bad_request", "vcpu"),
            ("/v1/sandboxes", '{"vcpu":1.5}', "bad_request", "vcpu"),
            ("/v1/sandboxes", '{"vcpu":0}', "bad_request", "vcpu"),
            ("/v1/sandboxes", '{"vcpu":100000}', "bad_request", "vcpu"),
            ("/v1/sandboxes", '{"memory":-1}', "bad_request", "memory"),
            ("/v1/sandboxes", '{"memory":99999999999999999999}', ("bad_request", "bad_json"), None),
            ("/v1/sandboxes", '{"memory":"lots"}', "bad_request", "memory"),
            ("/v1/sandboxes", '{"timeout":-5}', "bad_request", "timeout"),
            ("/v1/sandboxes", '{"env":[]}', "bad_request", "env"),
            ("/v1/sandboxes", '{"env":{"A":1}}', "bad_request", "env"),
            ("/v1/sandboxes", '{"env":{"A=B":"x"}}', "bad_request", "env"),
            ("/v1/sandboxes", '{"metadata":{"k":{}}}', "bad_request", "metadata"),
            ("/v1/sandboxes", '{"rootfs":"sometimes"}', "bad_request", "rootfs"),
            ("/v1/sandboxes", '{"on_timeout":"panic"}', "bad_request", "on_timeout"),
            ("/v1/sandboxes", '{"tmpfs":{"work":"1M"}}', "bad_request", "tmpfs"),
            ("/v1/sandboxes", '{"tmpfs":{"/proc":"1M"}}', "bad_request", "tmpfs./proc"),
            ("/v1/sandboxes", '{"name":"Not A Name"}', "bad_request", "name"),
            ("/v1/sandboxes", '{"template":"no-such-template"}', "template_not_found", "no-such-template"),
            (ex, "{}", "bad_request", None),
            (ex, '{"cmd":[]}', "bad_request", "cmd"),
            (ex, '{"cmd":"ls"}', "bad_request", "cmd"),
            (ex, '{"cmd":["ls",1]}', "bad_request", "cmd"),
            (ex, '{"cmd":["ls"],"shell":"ls"}', "bad_request", None),
            (ex, '{"shell":"ls","pty":true}', "bad_request", "pty"),
            (ex, '{"shell":"ls","timeout":"soon"}', "bad_request", "timeout"),
            (ex, '{"shell":"ls","nope":1}', "bad_request", "nope"),
            (f"/v1/sandboxes/{id}/timeout", "{}", "bad_request", "timeout"),
            (f"/v1/sandboxes/{id}/timeout", '{"timeout":"x"}', "bad_request", "timeout"),
            ("/v1/templates", '{"image":"base"}', "bad_request", "name"),
            ("/v1/images", '{"name":"x"}', "bad_request", "from"),
            ("/v1/images", '{"name":"x","from":"floppy"}', "bad_request", "from"),
            ("/v1/keys", '{"name":"k","scope":"god"}', "bad_request", "scope")):
        if body == "":
            continue
        j = error("POST", path, body, status=(400, 404), code=code)
        check(not word or word in j["message"], f"{body!r}: the message names {word}: {j['message']}")
    # Larger than any JSON body may be: refused by its length, and while it comes.
    r = raw(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n{")
    check(b" 413 " in r.split(b"\r\n")[0] and b"too_large" in r, f"a gigabyte announced: {r[:300]!r}")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    r = raw(b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 400)
    check(not r or b" 413 " in r.split(b"\r\n")[0], f"25 MiB in chunks: {r[:300]!r}")
    # HTTP that is no HTTP.
    for what, data in (("no version", b"GET /\r\n\r\n"), ("binary", b"\x16\x03\x01\x02\0\1\0\1\xfc\3\3"), ("two lengths", b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}"),
                       ("length and chunked", b"POST /v1/sandboxes HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
                       ("head too large", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 200000 + b"\r\n\r\n"), ("a bare LF", b"GET /healthz HTTP/1.1\nHost: x\n\n"),
                       ("folded header", b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n"), ("two hosts", b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n")):
        r = raw(data)
        check(not r or re.match(rb"HTTP/1\.[01] (400|413|414|431|505) ", r), f"{what}: {r[:200]!r}")
    error("GET", "/v1/nothing", status=404, code="not_found")
    error("PATCH", "/v1/sandboxes", "{}", status=405, code="method_not_allowed")
    error("GET", "/v1/sandboxes?cursor=%21%21", status=400, code="bad_cursor")
    error("GET", "/v1/sandboxes?limit=0", status=400, code="bad_request")
    error("GET", "/v1/sandboxes?limit=9999", status=400, code="bad_request")
    equal(out(id, "echo ok"), "ok")
