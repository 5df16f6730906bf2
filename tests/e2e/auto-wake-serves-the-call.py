# A call or a connection to a suspended or paused sandbox that has auto_wake wakes it and is then served; without auto_wake it is refused; who only looks wakes nobody.
# limit: 240
from t import *


def suspend(id):
    equal(api("POST", f"/v1/sandboxes/{id}/suspend", timeout=120)["state"], "suspended")


with sandbox(timeout=230, auto_wake=True) as id:
    sh(id, "echo kept > /tmp/f; cd /tmp && (setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &)")
    wait_for(lambda: api("GET", f"/v1/sandboxes/{id}/ports/8000/f", status=(200, 502)).status == 200, 30, "the server answers")
    boot = out(id, "cat /proc/sys/kernel/random/boot_id")

    calls = {
        "exec": lambda: equal(out(id, "cat /tmp/f"), "kept"),
        "a file": lambda: equal(get(id, "/tmp/f").body, b"kept\n"),
        "a port by path": lambda: equal(api("GET", f"/v1/sandboxes/{id}/ports/8000/f").body, b"kept\n"),
        "a port by header": lambda: equal(api("GET", "/f", headers={"E2b-Sandbox-Id": id, "E2b-Sandbox-Port": "8000"}).body, b"kept\n"),
        "an upload": lambda: put(id, "/tmp/g", b"x" * 300000),
    }
    for name, call in calls.items():
        suspend(id)
        # Nobody is woken by looking.
        equal(show(id)["state"], "suspended")
        error("GET", f"/v1/sandboxes/{id}/metrics", status=409, code="sandbox_not_running")
        error("GET", f"/v1/sandboxes/{id}/processes", status=409, code="sandbox_not_running")
        equal(show(id)["state"], "suspended")
        t0 = time.monotonic()
        call()
        j = show(id)
        equal(j["state"], "running", f"{name}: woken in {time.monotonic() - t0:.1f} s")
        check(j["deadline_at"] > j["last_active_at"], f"{name}: a deadline from now on: {j}")
    equal(out(id, "cat /proc/sys/kernel/random/boot_id"), boot, "the same kernel, not another boot")

    # Many at once wake it once, and all are served.
    suspend(id)
    answers = []
    ts = [threading.Thread(target=lambda i=i: answers.append(out(id, f"echo {i}"))) for i in range(8)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    equal(sorted(answers), [str(i) for i in range(8)])
    wakes = [e for e in events_of(id) if e["type"] in ("running", "woken", "woke", "wake")]
    check(wakes, f"{[e['type'] for e in events_of(id)]}")

    # One that is just being suspended is waited for.
    t = threading.Thread(target=suspend, args=(id,))
    t.start()
    wait_for(lambda: show(id)["state"] != "running", 30, "being suspended")
    equal(out(id, "cat /tmp/f"), "kept")
    t.join()
    equal(show(id)["state"], "running")

    # A pause, likewise.
    api("POST", f"/v1/sandboxes/{id}/pause")
    equal(out(id, "cat /tmp/f"), "kept")

with sandbox(timeout=100) as id:
    sh(id, "true")
    suspend(id)
    error("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=409, code="sandbox_not_running")
    error("GET", f"/v1/sandboxes/{id}/files/etc/hostname", status=409, code="sandbox_not_running")
    equal(show(id)["state"], "suspended")
    suspend(id)
    equal(api("POST", f"/v1/sandboxes/{id}/wake", timeout=120)["state"], "running")
    equal(api("POST", f"/v1/sandboxes/{id}/wake", timeout=120)["state"], "running")
    sh(id, "true")
    suspend(id)
equal(show(id)["state"], "stopped")

# Asked for with respond-async, and at the deadline.
with sandbox(timeout=8, on_timeout="suspend", auto_wake=True) as id:
    sh(id, "echo later > /tmp/f")
    wait_state(id, "suspended", 60)
    api("POST", f"/v1/sandboxes/{id}/timeout", {"timeout": 60}, status=(200, 409))
    equal(out(id, "cat /tmp/f"), "later")
    op = wait_op(op_of(api("POST", f"/v1/sandboxes/{id}/suspend", status=202, headers={"Prefer": "respond-async"})))
    equal((op["kind"], op["result"]["sandbox"]["state"]), ("suspend", "suspended"))
