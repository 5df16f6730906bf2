# Calls of one sandbox that come at the same time: what is being reached is waited for, what conflicts is busy, a kill goes first, and an ended one is gone.
# limit: 240
from t import *


class Call(threading.Thread):
    """A call under way."""

    def __init__(self, method, path, body=None):
        super().__init__(daemon=True)
        self.args = method, path, body
        self.start()

    def run(self):
        method, path, body = self.args
        self.answer = api(method, path, body, status=range(200, 600), timeout=120)

    def end(self):
        self.join(120)
        return self.answer


def under_way(id, state, path, body=None):
    """Starts a call and waits until the sandbox is in that state."""
    c = Call("POST", f"/v1/sandboxes/{id}/{path}", body)
    end = time.monotonic() + 10
    while show(id)["state"] != state:
        check(c.is_alive() and time.monotonic() < end, f"{path}: {state} was never seen, {show(id)['state']}")
    return c


def busy(id, *paths):
    for p in paths:
        body = {"checkpoint": "mark"} if p == "rollback" else {}
        error("POST", f"/v1/sandboxes/{id}/{p}", body, status=409, code="busy")


def seen(id, state, path, others, joins=None):
    """One of a few tries catches the state before it is over."""
    for attempt in range(5):
        c = under_way(id, state, path)
        try:
            busy(id, *others)
            also = Call("POST", f"/v1/sandboxes/{id}/{joins}") if joins else None
            equal(c.end().status, 200, path)
            if also:
                equal(also.end().status, 200, f"{joins} while {state}")
            return
        except AssertionError as e:
            c.end()
            last = e
        # back to where it was
        api("POST", f"/v1/sandboxes/{id}/{'wake' if path == 'suspend' else 'suspend'}", timeout=120)
    raise last


def during_a_branch(id, mark):
    """While siblings are taken everything else that would change the parent is busy, and changes nothing."""
    sh(id, "head -c 64M /dev/urandom > /dev/shm/much")  # so that it takes a moment
    for attempt in range(6):
        c = Call("POST", f"/v1/sandboxes/{id}/branch", {})
        time.sleep(0.03)
        last = None
        try:
            busy(id, "suspend", "wake", "rollback", "checkpoints", "snapshots", "branch", "pause")
        except AssertionError as e:
            last = e
        a = c.end()
        for s in a.json.get("sandboxes", []):
            api("DELETE", f"/v1/sandboxes/{s['id']}")
        if not last:
            equal((a.status, show(id)["state"]), (201, "running"), "the branch, and its parent")
            sh(id, "rm /dev/shm/much")
            return
        # Too early or too late: back to where it was.
        api("POST", f"/v1/sandboxes/{id}/wake", timeout=120)
        for k in api("GET", f"/v1/sandboxes/{id}/checkpoints").json["checkpoints"]:
            if k["id"] != mark:
                api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
    raise last


with sandbox(timeout="10m") as id:
    node = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "mark"}, status=201, timeout=60).json["id"]
    try:
        seen(id, "suspending", "suspend", ("wake",), "suspend")
        equal(show(id)["state"], "suspended")
        # It lies still: suspending again is nothing to do, a checkpoint is of what it lies in.
        equal(api("POST", f"/v1/sandboxes/{id}/suspend")["state"], "suspended")
        k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=60).json
        equal((k["kind"], show(id)["state"]), ("checkpoint", "suspended"))
        api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
        error("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=409, code="sandbox_not_running")
        seen(id, "waking", "wake", ("suspend", "checkpoints", "branch", "rollback"), "wake")
        equal(out(id, "echo alive"), "alive")
        during_a_branch(id, node)
        # A kill goes first, and whoever waited is told.
        b = Call("POST", f"/v1/sandboxes/{id}/branch", {"count": 2})
        time.sleep(0.05)
        equal(api("DELETE", f"/v1/sandboxes/{id}", timeout=60).status, 200)
        a = b.end()
        check(a.status == 410 or a.status == 201, f"a branch of one that is killed: {a.status} {a.body[:300]}")
        for s in a.json.get("sandboxes", []):
            equal(out(s["id"], "echo alive"), "alive")
            api("DELETE", f"/v1/sandboxes/{s['id']}")
        for p in ("suspend", "wake", "checkpoints", "snapshots", "branch", "pause"):
            error("POST", f"/v1/sandboxes/{id}/{p}", {}, status=410, code="sandbox_gone")
        error("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "mark"}, status=410, code="sandbox_gone")
    finally:
        api("DELETE", f"/v1/checkpoints/{node}", status=(204, 404))

# A kill while it is suspended, while it is being suspended and while it wakes.
for path in (None, "suspend", "wake"):
    with sandbox(timeout="10m") as id:
        if path != "suspend":
            api("POST", f"/v1/sandboxes/{id}/suspend", timeout=60)
        c = Call("POST", f"/v1/sandboxes/{id}/{path}") if path else None
        time.sleep(0.1)
        equal(api("DELETE", f"/v1/sandboxes/{id}", timeout=60)["state"], "stopped", f"killed during {path}")
        if c:
            check(c.end().status in (200, 410), f"{path} of one that is killed: {c.end().status}")
