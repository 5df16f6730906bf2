# Operations drawn at random over several sandboxes; a model predicts every answer, and what each sandbox holds. SPACE_SEED repeats a run.
# serial
# limit: 3000
import random

from leaks import nodes_of_pool
from t import *

LONG = bool(os.environ.get("SPACE_TEST_LONG"))
OPS = int(os.environ.get("SPACE_SOAK_OPS") or (1000 if LONG else 60))
BOXES = int(os.environ.get("SPACE_SOAK_BOXES") or (20 if LONG else 5))
seed = int(os.environ.get("SPACE_SEED") or random.randrange(1 << 32))
print(f"seed {seed}: {OPS} operations, {BOXES} sandboxes", flush=True)
rnd = random.Random(seed)
GONE = ("sandbox_gone",)


class Box:
    def __init__(self, id, memory, disk, started_from=None):
        self.id, self.state, self.memory, self.disk, self.from_ = id, "running", memory, disk, started_from


class Node:
    def __init__(self, id, kind, memory, disk, line):
        self.id, self.kind, self.memory, self.disk, self.line = id, kind, memory, disk, line


boxes, ended, nodes = [], [], []
strangers = {k["id"] for k in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]}  # of other tests
lines = {}  # sandbox -> nodes that it may go back to: its own, and those of whatever it came from
serial = 0
HOLDER = "import sys,time\nv=sys.argv[1]\nopen('/dev/shm/holds','w').write(v)\ntime.sleep(1e6)\n"


def write(b):
    """New contents, in memory (a tmpfs, and a process that has it as its argument) and on the disk."""
    global serial
    serial += 1
    b.memory = b.disk = f"v{serial}"
    sh(b.id, f"pkill -f '[h]eld.py'; echo {b.disk} > /home/user/disk && sync && printf %s {b.memory} > /dev/shm/holds && "
             f"bash /home/user/hold {b.memory}", timeout=90)


def look(b):
    """It holds what the model says, with a page cache that says nothing about the disk. One that booted has an empty memory."""
    got = out(b.id, "sync; echo 3 > /proc/sys/vm/drop_caches; cat /home/user/disk; cat /dev/shm/holds 2>/dev/null; echo; pgrep -fa '[h]eld.py' | sed -n 's/.*[h]eld.py //p'", user="root", timeout=90).split()
    equal(got, [b.disk, b.memory, b.memory] if b.memory else [b.disk], f"{b.id} holds")


def expect(b, method, path, want, body=None):
    """WANT: a status, or a code of error."""
    if isinstance(want, int):
        return api(method, path, body, status=want, timeout=120).json
    error(method, path, body, status=range(400, 500), code=want, timeout=120)
    return None


def create():
    a = api("POST", "/v1/sandboxes", {"timeout": 2900}, status=201, timeout=180).json
    b = Box(a["id"], "", "")
    put(b.id, "/home/user/held.py", HOLDER)
    put(b.id, "/home/user/hold", "setsid python3 /home/user/held.py $1 >/dev/null 2>&1 </dev/null &\n")
    boxes.append(b)
    lines[b.id] = []
    write(b)


def create_from():
    n = rnd.choice(nodes)
    a = api("POST", "/v1/sandboxes", {"checkpoint" if n.kind == "checkpoint" and rnd.random() < 0.7 else "snapshot": n.id, "timeout": 2900},
            status=201, timeout=180).json
    booted = a["start"]["kind"] == "boot" if isinstance(a.get("start"), dict) else a.get("start") == "boot"
    b = Box(a["id"], "" if booted or n.kind == "snapshot" else n.memory, n.disk)
    boxes.append(b)
    lines[b.id] = list(n.line) + [n]
    look(b)


def kill(b):
    expect(b, "DELETE", f"/v1/sandboxes/{b.id}", 200)
    boxes.remove(b)
    ended.append(b)


def pause(b):
    if b.state == "suspended":
        expect(b, "POST", f"/v1/sandboxes/{b.id}/pause", "sandbox_not_running")
        return
    expect(b, "POST", f"/v1/sandboxes/{b.id}/pause", 200)
    b.state = "paused"


def wake(b):
    equal(expect(b, "POST", f"/v1/sandboxes/{b.id}/wake", 200)["state"], "running", "woken")
    b.state = "running"
    look(b)


def suspend(b):
    equal(expect(b, "POST", f"/v1/sandboxes/{b.id}/suspend", 200)["state"], "suspended", "suspended")
    b.state = "suspended"


def take(b, kind):
    a = expect(b, "POST", f"/v1/sandboxes/{b.id}/{kind}s", 201, {})
    equal((a["kind"], a["sandbox"]), (kind, b.id), "a node")
    n = Node(a["id"], kind, b.memory if kind == "checkpoint" else "", b.disk, list(lines[b.id]))
    nodes.append(n)
    lines[b.id].append(n)


def branch(b):
    a = expect(b, "POST", f"/v1/sandboxes/{b.id}/branch", 201, {"count": 2})
    equal((len(a["sandboxes"]), a["failed"]), (2, []), "siblings")
    for s in a["sandboxes"]:
        c = Box(s["id"], b.memory, b.disk)
        boxes.append(c)
        lines[c.id] = list(lines[b.id])
        look(c)


def rollback(b):
    there = [n for n in lines[b.id] if n in nodes]
    if not there:
        expect(b, "POST", f"/v1/sandboxes/{b.id}/rollback", ("checkpoint_not_found", "bad_request"), {"checkpoint": "nobody-has-this"})
        return
    n = rnd.choice(there)
    equal(expect(b, "POST", f"/v1/sandboxes/{b.id}/rollback", 200, {"checkpoint": n.id})["state"], "running", "rolled back")
    b.state, b.memory, b.disk = "running", n.memory, n.disk
    look(b)


def remove():
    n = rnd.choice(nodes)
    api("DELETE", f"/v1/checkpoints/{n.id}", status=204)
    nodes.remove(n)
    error("GET", f"/v1/checkpoints/{n.id}", status=404, code="checkpoint_not_found")


def of_the_dead():
    b = rnd.choice(ended)
    verb = rnd.choice(("pause", "wake", "suspend", "checkpoints", "branch"))
    error("POST", f"/v1/sandboxes/{b.id}/{verb}", {} if verb in ("checkpoints", "branch") else None, status=range(400, 500), code=GONE)


def exec_one(b):
    if b.state == "running":
        write(b) if rnd.random() < 0.6 else look(b)
    else:
        error("POST", f"/v1/sandboxes/{b.id}/exec?wait=1", {"shell": "true"}, status=range(400, 500), code="sandbox_not_running")


def restart():
    d = Daemon.main()
    d.restart(sig=rnd.choice((signal.SIGTERM, signal.SIGKILL)))


def compare():
    """What is listed is what the model has."""
    have = {s["id"]: s["state"] for s in api("GET", "/v1/sandboxes?limit=1000").json["sandboxes"]}
    equal(have, {b.id: b.state for b in boxes}, "the list")
    tree = {k["id"]: k["kind"] for k in api("GET", "/v1/checkpoints?limit=1000").json["checkpoints"]}
    equal({k: v for k, v in tree.items() if v in ("checkpoint", "snapshot") and k not in strangers}, {n.id: n.kind for n in nodes}, "the checkpoints")


for i in range(OPS):
    b = rnd.choice(boxes) if boxes else None
    able = [(kill, 3 if len(boxes) > BOXES // 2 else 1), (pause, 3), (wake, 6), (suspend, 5), (exec_one, 8), (rollback, 3)]
    able += [(lambda b: take(b, "checkpoint"), 4), (lambda b: take(b, "snapshot"), 2)] if len(nodes) < 2 * BOXES else []
    if len(boxes) + 2 <= BOXES:
        able.append((branch, 2))
    if not b or (len(boxes) < BOXES and rnd.random() < 0.25):
        what = create_from if nodes and rnd.random() < 0.5 else create
        args = ()
    elif rnd.random() < 0.1:
        what, args = rnd.choice([restart] + ([remove] if nodes else []) + ([of_the_dead] if ended else [])), ()
    else:
        what, args = rnd.choices([f for f, _ in able], [w for _, w in able])[0], (b,)
    try:
        what(*args)
        if i % 10 == 9:
            compare()
    except Exception as e:
        raise AssertionError(f"operation {i}, {what.__name__} of {b.id if args else '-'} ({b.state if args else '-'}), seed {seed}: {e}") from e
compare()
for b in list(boxes):
    wake(b) if b.state != "running" else look(b)
    kill(b)
for n in [n for n in nodes if n.kind == "checkpoint"][-1:]:
    with booted_from(n.id) as it:
        equal(out(it, "cat /home/user/disk", timeout=90), n.disk, f"the disk of {n.id} alone")
for n in nodes:
    api("DELETE", f"/v1/checkpoints/{n.id}", status=204)
# What is left in the pool is what the tree lists, of all kinds.
wait_for(lambda: nodes_of_pool(RUN["state"]) == sorted(n["id"] for n in api("GET", "/v1/tree?limit=1000").json["nodes"]), 20,
         f"no node but those of the tree: {nodes_of_pool(RUN['state'])}")
print(f"{OPS} operations, {serial} contents, {len(ended)} sandboxes", flush=True)
