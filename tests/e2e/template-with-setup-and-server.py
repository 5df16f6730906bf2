# A template runs its setup steps and start command once, waits until ready, and each sandbox of it begins with the server already up and has run the template's clone.d.
# limit: 240
from t import *

req = {"name": "served", "image": "base", "setup": ["echo from-setup > /etc/made-by-setup", "mkdir -p /srv/www && echo hello > /srv/www/index.html",
       "mkdir -p /etc/space/clone.d && printf '#!/bin/sh\\necho $SPACE_ID $(cat /etc/machine-id) >> /run/hook\\n' > /etc/space/clone.d/50-hook && chmod 755 /etc/space/clone.d/50-hook"],
       "start_cmd": "cd /srv/www && exec python3 -m http.server 8080", "ready_cmd": "python3 -c 'import urllib.request as u; u.urlopen(\"http://127.0.0.1:8080/\")'",
       "env": {"FROM_TEMPLATE": "yes"}, "workdir": "/srv/www", "user": "root"}
o = build("/v1/templates", req, 200)
try:
    tpl = api("GET", "/v1/templates/served").json
    equal((tpl["name"], tpl["env"]["FROM_TEMPLATE"], tpl["workdir"], tpl["user"]), ("served", "yes", "/srv/www", "root"))
    check(tpl["digests"]["image"].startswith("sha256:") and tpl["bytes"] > 0, f"{tpl}")
    with sandbox(template="served") as id, sandbox(template="served") as id2:
        for i in (id, id2):
            equal(api("GET", f"/v1/sandboxes/{i}/ports/8080/").body, b"hello\n")
            equal(out(i, "cat /etc/made-by-setup; echo $FROM_TEMPLATE; pwd; id -un"), "from-setup\nyes\n/srv/www\nroot")
            equal(out(i, "tail -n 1 /run/hook"), f"{i} {out(i, 'cat /etc/machine-id')}", "what its hook saw")
        equal(show(id)["template"], "served")
        # One writes, the other sees nothing of it.
        sh(id, "echo changed > /srv/www/index.html")
        equal(api("GET", f"/v1/sandboxes/{id2}/ports/8080/").body, b"hello\n")
    # Built again, it is the next version.
    build("/v1/templates", {**req, "setup": ["true"], "start_cmd": None, "ready_cmd": None}, 200)
    equal(api("GET", "/v1/templates/served").json["version"], tpl["version"] + 1)
finally:
    api("DELETE", "/v1/templates/served", status=(200, 204, 404))
error("POST", "/v1/sandboxes", {"template": "served"}, status=404, code="template_not_found")
