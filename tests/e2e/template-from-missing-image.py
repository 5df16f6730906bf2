# A template from an image that does not exist is an error, at once or as the operation's end, and leaves no template.
# limit: 200
from t import *

a = api("POST", "/v1/templates", {"name": "from-nothing", "image": "no-such-image"}, status=(202, 404))
if a.status == 404:
    equal(a.json["code"], "image_not_found")
else:
    o = wait_op(op_of(a), 60)
    equal((o["state"], o["error"]["code"]), ("failed", "image_not_found"))
    check(o["error"]["remedy"], "a remedy")
error("GET", "/v1/templates/from-nothing", status=404, code="template_not_found")
r = cli("template", "build", "from-nothing", "--image", "no-such-image", code=1)
check("image" in r.err, r.err)
error("POST", "/v1/sandboxes", {"template": "from-nothing"}, status=404, code="template_not_found")
# A directory and an OCI layout that are not there, likewise.
for body in ({"name": "x1", "from": "dir", "path": "/no/such/dir"}, {"name": "x2", "from": "oci", "ref": "oci:/no/such/layout:tag"},
             {"name": "x3", "from": "dir", "path": "relative"}):
    a = api("POST", "/v1/images", body, status=(202, 400, 404))
    if a.status == 202:
        equal(wait_op(op_of(a), 60)["state"], "failed", str(body))
    error("GET", f"/v1/images/{body['name']}", status=404, code="image_not_found")
# A setup step that fails says which, and leaves no template.
o = wait_op(op_of(api("POST", "/v1/templates", {"name": "bad-setup", "image": "base", "setup": ["true", "echo broken >&2; exit 7"]}, status=202)), 120)
equal(o["state"], "failed")
check("7" in o["error"]["message"] or "broken" in o["error"]["message"], f"{o['error']}")
error("GET", "/v1/templates/bad-setup", status=404, code="template_not_found")
