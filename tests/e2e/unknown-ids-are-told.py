# An id that does not exist, in every place where one goes, is a 404 with the noun's own code.
from t import *

no = "i" + "z" * 20
for m, p, code in (("GET", f"/v1/sandboxes/{no}", "sandbox_not_found"), ("DELETE", f"/v1/sandboxes/{no}", "sandbox_not_found"),
                   ("POST", f"/v1/sandboxes/{no}/pause", "sandbox_not_found"), ("POST", f"/v1/sandboxes/{no}/wake", "sandbox_not_found"),
                   ("POST", f"/v1/sandboxes/{no}/exec", "sandbox_not_found"), ("GET", f"/v1/sandboxes/{no}/processes", "sandbox_not_found"),
                   ("GET", f"/v1/sandboxes/{no}/files/etc/passwd", "sandbox_not_found"), ("GET", f"/v1/sandboxes/{no}/events", "sandbox_not_found"),
                   ("GET", f"/v1/sandboxes/{no}/logs", "sandbox_not_found"), ("GET", f"/v1/sandboxes/{no}/metrics", "sandbox_not_found"),
                   ("GET", f"/v1/sandboxes/{no}/ports/80/", "sandbox_not_found"), ("GET", f"/v1/sandboxes/not-there", "sandbox_not_found"),
                   ("GET", "/v1/operations/o" + "z" * 20, "operation_not_found"), ("GET", "/v1/templates/nope", "template_not_found"),
                   ("DELETE", "/v1/templates/nope", "template_not_found"), ("GET", "/v1/images/nope", "image_not_found"),
                   ("DELETE", "/v1/images/nope", "image_not_found"), ("DELETE", "/v1/keys/k" + "z" * 20, "key_not_found")):
    error(m, p, {"shell": "true"} if p.endswith("exec") else ({} if m == "POST" else None), status=404, code=code)
with sandbox() as id:
    for m, p in (("GET", "processes/99999/output"), ("POST", "processes/99999/signal"), ("POST", "processes/99999/stdin"), ("POST", "processes/99999/resize")):
        body = {"signal": 15} if p.endswith("signal") else {"cols": 80, "rows": 24} if p.endswith("resize") else b"x" if p.endswith("stdin") else None
        error(m, f"/v1/sandboxes/{id}/{p}", body, status=404, code="process_not_found")
    error("GET", f"/v1/sandboxes/{id}/files/no/such/file", status=404, code="file_not_found")
    error("GET", f"/v1/sandboxes/{id}/ports/9/", status=502, code="port_closed")
    # Killing twice answers the same twice.
    a = api("DELETE", f"/v1/sandboxes/{id}").json
    b = api("DELETE", f"/v1/sandboxes/{id}").json
    equal((a["state"], a["reason"], a["ended_at"]), (b["state"], b["reason"], b["ended_at"]))
    equal((a["state"], a["reason"]), ("stopped", "killed"))
r = cli("kill", no, code=1)
check("sandbox" in r.err and "space ls" in r.err, f"the CLI says what and what to do: {r.err}")
r = cli("frobnicate", code=2)
