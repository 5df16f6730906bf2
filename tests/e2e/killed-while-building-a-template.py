# spaced is killed in the middle of building a template: afterwards there is no such template, no guest, no file, and it can be built again.
# serial
# limit: 240
from t import *

d = Daemon.main()
req = {"name": "interrupted", "image": "base", "setup": ["echo one > /one", "sleep 2"]}
for delay in (1.0, 4.0):
    api("POST", "/v1/templates", req, status=202)
    time.sleep(delay)
    d.stop(signal.SIGKILL)
    d.start()
    error("GET", "/v1/templates/interrupted", status=404, code="template_not_found")
build("/v1/templates", req, 120)
try:
    with sandbox(template="interrupted") as id:
        equal(out(id, "cat /one"), "one")
finally:
    api("DELETE", "/v1/templates/interrupted", status=(200, 204))
