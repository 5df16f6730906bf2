# Real guests, and kill -9 of spaced, of QEMU or of both at points drawn from those that an operation passes: what was acknowledged is there afterwards.
# serial
# limit: 900
import random

from leaks import nodes_of_pool
from t import *

if b"SPACE_FAULT_FILE" not in open(SPACED, "rb").read():
    skip("spaced was built without -Dfaults=true")

ROUNDS = int(os.environ.get("SPACE_FAULT_ROUNDS") or (150 if os.environ.get("SPACE_TEST_LONG") else 10))
seed = int(os.environ.get("SPACE_SEED") or random.randrange(1 << 32))
print("seed", seed, flush=True)
rnd = random.Random(seed)
RULES, TRACE = os.path.join(DIR, "fault-rules"), os.path.join(DIR, "fault-trace")

d = Daemon.main()
d.env = {"SPACE_FAULT_FILE": RULES}
d.restart()


def rules(text):
    for f in (RULES + ".fired", TRACE):
        if os.path.exists(f):
            os.unlink(f)
    with open(RULES + ".new", "w") as f:
        f.write(text)
    os.rename(RULES + ".new", RULES)


def calm():
    for f in (RULES, RULES + ".fired", TRACE):
        with contextlib.suppress(FileNotFoundError):  # spaced renames it when it strikes
            os.unlink(f)


def call(method, path, body=None):
    """The answer, or None when there is none: nothing was acknowledged."""
    try:
        a = api(method, path, body, status=range(100, 600), timeout=90)
        return a if a.status < 300 else None
    except (OSError, http.client.HTTPException):
        return None


def new():
    id = api("POST", "/v1/sandboxes", {"timeout": 800}, status=201, timeout=120).json["id"]
    put(id, "/home/user/mark", id)
    sh(id, "nohup sleep 100000 >/dev/null 2>&1 & sync")
    return id


def works(id, mark):
    equal(out(id, "cat /home/user/mark; echo; pgrep -c -f '[s]leep 100000'", timeout=90).split(), [mark, "1"], f"{id} is what it was")


# Operation: what state it starts from, the call, and the states that its target may be in when it was not acknowledged and when it was.
OPS = {
    "create": (None, lambda id, n: ("POST", "/v1/sandboxes", {"timeout": 800}), (), "running"),
    "pause": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/pause"), ("running", "paused"), "paused"),
    "wake": ("paused", lambda id, n: ("POST", f"/v1/sandboxes/{id}/wake"), ("running", "paused"), "running"),
    "suspend": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/suspend"), ("running", "suspended"), "suspended"),
    "wake again": ("suspended", lambda id, n: ("POST", f"/v1/sandboxes/{id}/wake"), ("running", "suspended"), "running"),
    "checkpoint": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/checkpoints", {}), ("running",), "running"),
    "snapshot": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/snapshots", {}), ("running",), "running"),
    "branch": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/branch", {"count": 2}), ("running",), "running"),
    "rollback": ("running", lambda id, n: ("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": n}), ("running", "suspended"), "running"),
    "kill": ("running", lambda id, n: ("DELETE", f"/v1/sandboxes/{id}"), ("running", "stopped"), "stopped"),
}


def prepare(state):
    id = new()
    node = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=90).json["id"]
    if state == "paused":
        api("POST", f"/v1/sandboxes/{id}/pause")
    elif state == "suspended":
        api("POST", f"/v1/sandboxes/{id}/suspend", timeout=90)
    return id, node


def listed():
    return {s["id"]: s for s in api("GET", "/v1/sandboxes?all=1&limit=1000").json["sandboxes"]}


def only_what_is_listed(what):
    """The pool has the nodes of the tree, of all kinds, and no others."""
    def same():
        return nodes_of_pool(RUN["state"]) == sorted(n["id"] for n in api("GET", "/v1/tree?limit=1000").json["nodes"])
    wait_for(same, 20, f"{what}: what the pool has is what the tree lists: {nodes_of_pool(RUN['state'])}")


passes = {}
for i in range(ROUNDS):
    name = list(OPS)[i % len(OPS)]
    start, request, maybe, after = OPS[name]
    calm()
    id, node = prepare(start)
    before = set(listed())
    if name not in passes:  # once in peace, to know how many points there are
        rules(f"trace {TRACE}\n")
        check(call(*request(id, node)), f"{name}, with nothing in its way")
        passes[name] = len(open(TRACE).read().split())
        calm()
        for x in list(listed().values()):
            if x["state"] not in ("stopped", "failed"):
                api("DELETE", f"/v1/sandboxes/{x['id']}", status=(200, 404))
        id, node = prepare(start)
        before = set(listed())
    action = rnd.choice(("kill", "kill", "monitor", "both"))
    at = rnd.randrange(passes[name]) + 1
    rules(f"* {at} {action}\n")
    a = call(*request(id, node))
    with contextlib.suppress(FileNotFoundError):
        os.unlink(RULES)  # nothing strikes from here on
    struck = os.path.exists(RULES + ".fired")
    what = f"{name}, {action} at {at} of {passes[name]}{'' if struck else ' (not reached)'}, {'acknowledged' if a else 'no answer'}"
    print(what, flush=True)
    if action != "monitor" and struck:
        d.proc.wait(30)
        calm()
        d.start()
    calm()
    loss = struck and action != "kill"
    wait_for(lambda: all(s["state"] in ("running", "paused", "suspended", "stopped", "failed") for s in listed().values()), 60, f"{what}: settled")
    if loss:
        time.sleep(1)  # the end of a monitor is seen
    now = listed()
    s = now[id]
    allowed = {after} if a and start else set(maybe) if start else {"running"}
    if loss:
        allowed |= {"failed"}
    check(s["state"] in allowed, f"{what}: {s['state']} ({s['reason']}), may be {allowed}")
    check(s["state"] != "failed" or s["reason"], f"{what}: failed without a reason")
    if s["state"] in ("paused", "suspended"):
        api("POST", f"/v1/sandboxes/{id}/wake", timeout=90)
        s = show(id)
    if s["state"] == "running":
        works(id, id)
    for x in set(now) - before:  # siblings, and what a create made
        check(now[x]["state"] in ("running", "stopped", "failed"), f"{what}: {x} is {now[x]['state']}")
        check(now[x]["state"] == "running" or now[x]["reason"], f"{what}: {x} ended without a reason")
        if now[x]["state"] == "running" and name == "branch":
            works(x, id)
    if a and name == "create":
        equal(now[a["id"]]["state"], "running", what) if not loss else None
    taken = a["id"] if a and name in ("checkpoint", "snapshot") else None
    clone = api("POST", "/v1/sandboxes", {"snapshot" if taken and name == "snapshot" else "checkpoint": taken or node, "timeout": 800},
                status=201, timeout=120).json["id"]
    if taken and name == "snapshot":  # it boots: the disk is all that there is
        equal(out(clone, "cat /home/user/mark", timeout=90), id, f"{what}: a snapshot that was acknowledged, opened")
    else:
        works(clone, id)
    for x in listed().values():
        if x["state"] not in ("stopped", "failed"):
            api("DELETE", f"/v1/sandboxes/{x['id']}", status=(200, 404), timeout=60)
    api("POST", "/v1/prune", {"older_than": "0s", "kinds": ["checkpoint", "snapshot"]})
    only_what_is_listed(what)
calm()
d.env = None
d.restart()
