# Every operation of openapi.json is reached by exactly one method of each client (one for each thing it does), with every parameter and field there is.
# needs: node
from t import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clients"))
import calls, recorder  # noqa: E402

doc = api("GET", "/openapi.json").json
# Parameters that no client sends itself: the token in a query is for browsers, see output_url().
ELSEWHERE = {("get_output", "query", "attach_token")}


def expand(reached):
    """The operations behind what a table says: those of a port are one call with any method."""
    return {id for one in reached.split() for id in
            ([f"proxy_port_{m}" for m in ("get", "head", "post", "put", "patch", "delete", "options")] if one == "proxy_port" else [one.split(":")[0]])}


def judge(language, r, table, methods, local):
    check(not r.problems, f"{language}:\n" + "\n".join(r.problems))
    names = {name for name, _ in table}
    equal(names & set(local), set(), f"{language}: methods that call and do not")
    equal(names | set(local), set(methods), f"{language}: methods that the table of calls has, and those that there are")
    primary = {}
    for name, reached in table:
        also, what = reached.startswith("also "), reached.removeprefix("also ")
        equal(set(r.reached[f"{name} {reached}"]), expand(what), f"{language}: what {name} reaches")
        if not also:
            check(what not in primary, f"{language}: {what} is reached by {name} and {primary.get(what)}")
            primary[what] = name
    plain = {w for w in primary if ":" not in w}
    for w in primary:
        check(w.split(":")[0] not in plain or w in plain, f"{language}: {w} and the same without a mode")
    equal(set().union(*map(expand, primary)), set(r.operations()), f"{language}: operations that are reached, and those that there are")
    for id, op in r.operations().items():
        used = r.used[id]
        for p in op.get("parameters", []):
            if p["in"] != "path" and (id, p["in"], p["name"]) not in ELSEWHERE:
                check(p["name"] in used[p["in"]], f"{language}: no method sends the {p['in']} {p['name']} of {id}")
        schema = op.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if schema:
            equal(used["body"], set(r.resolve(schema)["properties"]), f"{language}: fields of {id}")
    return primary


r = recorder.Recorder(doc)
table = calls.calls(r.url)
for name, reached, fn in table:
    r.mark(f"{name} {reached}")
    fn()
python = judge("python", r, [(n, w) for n, w, _ in table], calls.methods(), calls.LOCAL)
r.close()

r = recorder.Recorder(doc)
p = subprocess.run(["node", os.path.join(os.path.dirname(calls.__file__), "calls.mjs"), r.url], capture_output=True, text=True, timeout=60)
check(p.returncode == 0, f"calls.mjs: {p.stderr[-3000:]}\n" + "\n".join(r.problems))
said = json.loads(p.stdout)
js = judge("js", r, [tuple(x) for x in said["table"]], said["methods"], said["local"])
r.close()
equal(set(python), set(js), "what the two clients reach")

# The table of docs/clients.md says the same.
docs = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs")
told = {}
for m in re.finditer(r"^\| `([\w:]+)` \| `([^`]+)` \| `([^`]+)` \|", open(os.path.join(docs, "clients.md")).read(), re.M):
    told[m[1]] = (m[2], m[3])
equal(told, {w: (python[w], js[w]) for w in python}, "docs/clients.md's table of operations")
print(f"{len(r.operations())} operations, {len(table)} calls in Python, {len(said['table'])} in JavaScript")
