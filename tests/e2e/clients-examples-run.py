# Each call of docs/api-examples.md is there in curl, Python and JavaScript, and does what it says with a real daemon and real guests.
# limit: 400
# needs: node jq curl
from t import *
import shutil

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(os.path.dirname(here))
page = open(os.path.join(root, "docs/api-examples.md")).read()
dir = os.path.join(DIR, "examples")
rootfs = os.path.join(dir, "rootfs")
LANGUAGES = ("sh", "python", "js")
# What some of the sections must print, in any language.
SAID = {"exec:wait": "text\nhi\n", "exec:stream": "3", "get_output": "done", "get_file:bytes": "note", "get_file:list": "/tmp/demo/notes.txt", "open_tcp": "200 OK",
        "get_operation:follow": "done", "list_templates": "mine", "get_metrics": "# TYPE"}

# What the page has: (section, {language: code}), in its order.
sections = []
for part in re.split(r"^### ", page, flags=re.M):
    name = part.split("\n", 1)[0].strip() if sections else "before"
    sections.append((name, dict(re.findall(r"^```(\w+)\n(.*?)^```$", part, re.M | re.S))))
for name, blocks in sections:
    equal(tuple(blocks), LANGUAGES, f"languages of {name}")
doc = api("GET", "/openapi.json").json
there = {re.sub(r"^proxy_port_.*", "proxy_port", op["operationId"]) for ops in doc["paths"].values() for op in ops.values()}
equal({name.split(":")[0] for name, _ in sections[1:]}, there, "operations of the page, and those that are served")


def program(language, say):
    """All blocks of a language as one program that says which section comes next."""
    text = ""
    for name, blocks in sections:
        text += say(name) + "\n" + blocks[language].replace("/run/space/api.sock", SOCKET).replace("/srv/rootfs", rootfs)
    return text.replace("./space.mjs", os.path.join(root, "clients/js/space.mjs"))


def run(language, argv, text):
    path = os.path.join(dir, f"program.{'mjs' if language == 'js' else language}")
    with open(path, "w") as f:
        f.write(text)
    env = {**os.environ, "SPACE_SOCKET": SOCKET, "PYTHONPATH": os.path.join(root, "clients/python")}
    began = time.monotonic()
    p = subprocess.run([*argv, path], cwd=dir, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180)
    said = p.stdout.decode(errors="replace")
    check(p.returncode == 0, f"{language}: status {p.returncode}: {said[-3000:]}")
    equal(re.findall(r"^=== (\S+)$", said, re.M), [name for name, _ in sections], f"sections that ran in {language}")
    parts = dict(re.findall(r"^=== (\S+)$(.*?)(?=^=== |\Z)", said, re.M | re.S))
    for name, what in SAID.items():
        check(what in parts[name], f"{language}: {name} says {parts[name]!r}, no {what!r}")
    print(f"{language}: {len(sections)} sections, {time.monotonic() - began:.0f} s")


def tidy():
    """What a program that failed left behind."""
    for x in api("GET", "/v1/sandboxes").json["sandboxes"]:
        if x["name"] == "demo" or x["timeout"] == 60:
            api("DELETE", f"/v1/sandboxes/{x['id']}")
    for c in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]:
        if c["kind"] in ("checkpoint", "snapshot") and c["id"] not in before:
            api("DELETE", f"/v1/checkpoints/{c['id']}", status=(204, 404))
    for noun in ("templates", "images"):
        api("DELETE", f"/v1/{noun}/mine", status=(204, 404))
    for k in api("GET", "/v1/keys").json["keys"]:
        if k["name"] == "ci":
            api("DELETE", f"/v1/keys/{k['id']}")


before = {c["id"] for c in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]}
os.makedirs(os.path.join(rootfs, "etc"))
with open(os.path.join(rootfs, "etc/hostname"), "w") as f:
    f.write("x\n")
try:
    run("python", [sys.executable], program("python", lambda name: f'print("\\n=== {name}", flush=True)'))
    run("js", ["node"], program("js", lambda name: f'console.log("\\n=== {name}");'))
    run("sh", ["bash"], "set -eu -o pipefail\n" + program("sh", lambda name: f'printf "\\n=== %s\\n" {name}'))
finally:
    tidy()
    shutil.rmtree(dir)
