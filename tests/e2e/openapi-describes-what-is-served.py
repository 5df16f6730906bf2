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
# docs/api.md and it name the same calls.
md = open(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "docs/api.md")).read()


def calls_of(md):
    """(method, path) of each call in the tables of docs/api.md, names in paths as {}. `…` stands for what the row, or else a sandbox, begins with."""
    found = set()
    for row in re.findall(r"^\| (`.*?) \|", md, re.M):
        methods, base = None, None
        for call in re.findall(r"`([^`]+)`", row):
            m = re.fullmatch(r"(?:([A-Z/]+) )?(…|[/…][^?\[]*)(?:[?\[].*)?", call)
            if not m:
                continue
            methods = m[1].split("/") if m[1] else methods or ["GET"]
            path = m[2].rstrip("/")
            if path == "…":
                path = base
            elif path.startswith("…/{id}/"):
                path = "/v1/sandboxes" + path[1:]
            elif path.startswith("…/"):
                path = base.rpartition("/")[0] + path[1:] if base else "/v1/sandboxes/{id}" + path[1:]
            base = path
            found |= {(x.lower(), named(path)) for x in methods}
    return found


def named(path):
    return re.sub(r"\{\w+\}|\bPATH\b|(?<=/)…$", "{}", path).rstrip("/")


said = calls_of(md)
served = {(m, named(p)) for p, ops in doc["paths"].items() for m in ops if m in METHODS and m != "head"}
for m, p in sorted(said):
    if m == "any":
        check({x for x, q in served if q == p} >= {"get", "post", "put", "delete"}, f"{p} of docs/api.md takes any method, and openapi.json has not all")
equal(sorted(served - said - {(m, p) for m, p in served if ("any", p) in said}), [], "described in openapi.json, not in docs/api.md")
equal(sorted(x for x in said - served if x[0] != "any"), [], "in docs/api.md, not described in openapi.json")
for verb in ("suspend", "checkpoints", "snapshots", "branch", "fork", "rollback"):
    check(("post", f"/v1/sandboxes/{{}}/{verb}") in said & served, f"{verb} is missing in both")
# Paths in its sentences and examples, too.
for p in re.findall(r"/v1/[\w/{}$…-]*[\w}]", md):
    p = re.sub(r"/\$?[A-Za-z]*(ID|id)\b|/\{\w+\}", "/{}", p)
    check(any(q == p for _, q in served), f"{p} in docs/api.md is not described in openapi.json")
