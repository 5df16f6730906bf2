# openapi.json names exactly the routes that are served: each path and method it has answers, and what it has not is 404 or 405.
from t import *

doc = api("GET", "/openapi.json").json
check(doc["openapi"].startswith("3."), "OpenAPI 3")
METHODS = ("get", "put", "post", "delete", "patch", "head")
with sandbox() as id:
    put(id, "/tmp/f", b"x")
    pid = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "sleep 60"}, status=201).json["pid"]
    n = 0
    for path, ops in doc["paths"].items():
        real = path
        for name in re.findall(r"\{(\w+)\}", path):
            real = real.replace("{" + name + "}", {"port": "9", "pid": "99999", "path": "tmp/none"}.get(name.lower(), "zzz"))
        for m in METHODS:
            if m == "head":
                continue
            a = api(m.upper(), real, b"[]" if m in ("post", "put", "patch") else None, status=range(100, 600), headers={"Connection": "close"}) if m in ops or not m == "get" else None
            if a is None:
                a = api("GET", real, status=range(100, 600))
            code = None
            try:
                code = json.loads(a.body).get("code")
            except ValueError:
                pass
            if m in ops:
                check(a.status != 405 and code != "not_found", f"{m.upper()} {path} is described and answers {a.status} {code}")
                check(ops[m].get("responses"), f"{m.upper()} {path} has no responses")
                n += 1
            else:
                check(a.status == 405 or code == "not_found", f"{m.upper()} {path} is not described and answers {a.status} {code}")
                if a.status == 405:
                    allow = {x.strip().lower() for x in a.headers["Allow"].split(",")} - {"head", "options"}
                    equal(allow, set(ops) & set(METHODS), f"Allow of {path}")
    check(n > 40, f"only {n} calls are described")
# Headers that a call looks at are described there, and nowhere else.
S = "/v1/sandboxes"
SLOW = ("pause", "wake", "timeout", "suspend", "checkpoints", "snapshots", "branch", "fork", "rollback")
WANT = {"Prefer": {("post", S), ("delete", S + "/{id}"), ("post", "/v1/prune"), *(("post", f"{S}/{{id}}/{x}") for x in SLOW)},
        "Idempotency-Key": {("post", S), ("post", S + "/{id}/checkpoints"), ("post", S + "/{id}/snapshots")},
        "Last-Event-ID": {("get", S + "/{id}/processes/{pid}/output"), ("get", S + "/{id}/events"), ("get", "/v1/events")},
        "X-Attach-Token": {("get", S + "/{id}/processes/{pid}/output")}}
found = {}
for path, ops in doc["paths"].items():
    for m, op in ops.items():
        for p in op.get("parameters", []):
            if p["in"] == "header":
                check(p["required"] is False and p["schema"]["type"] == "string", f"{m} {path}: {p}")
                found.setdefault(p["name"], set()).add((m, path))
equal(found, WANT, "header parameters")
# Every call of docs/api.md is in it.
md = open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs/api.md")).read()
served = {re.sub(r"\{\w+\}", "{}", p).rstrip("/").lower() for p in doc["paths"]}
for p in ("/v1/sandboxes", "/v1/sandboxes/{}", "/v1/sandboxes/{}/pause", "/v1/sandboxes/{}/wake", "/v1/sandboxes/{}/timeout", "/v1/sandboxes/{}/exec", "/v1/sandboxes/{}/processes",
          "/v1/sandboxes/{}/processes/{}/output", "/v1/sandboxes/{}/processes/{}/stdin", "/v1/sandboxes/{}/processes/{}/signal", "/v1/sandboxes/{}/processes/{}/resize",
          "/v1/sandboxes/{}/files/{}", "/v1/sandboxes/{}/tar/{}", "/v1/sandboxes/{}/watch", "/v1/sandboxes/{}/metrics", "/v1/sandboxes/{}/events", "/v1/sandboxes/{}/logs",
          "/v1/sandboxes/{}/tcp/{}", "/v1/operations", "/v1/operations/{}", "/v1/templates", "/v1/templates/{}", "/v1/images", "/v1/images/{}", "/v1/keys", "/v1/keys/{}",
          "/v1/events", "/v1/config", "/v1/host", "/metrics", "/healthz", "/readyz", "/openapi.json"):
    check(p in served or any(s.startswith(p) for s in served), f"{p} of docs/api.md is not described")
