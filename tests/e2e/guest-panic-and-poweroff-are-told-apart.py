# A guest that panics, powers off, or whose monitor dies ends its sandbox with that reason; streams say so and nothing is left.
from t import *

for what, script, states, reasons in (
        ("panic", "echo 1 > /proc/sys/kernel/panic_on_oops; echo c > /proc/sysrq-trigger", ("failed", "stopped"), ("guest_panic",)),
        ("poweroff", "sleep 0.2; poweroff -f || echo o > /proc/sysrq-trigger; sleep 20", ("stopped", "failed"), ("guest_shutdown",)),
        ("reboot", "echo b > /proc/sysrq-trigger; sleep 20", ("stopped", "failed"), ("guest_reset", "guest_shutdown"))):
    with sandbox() as id:
        try:
            ev = list(Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": script, "user": "root"}, timeout=40))
            check(ev[-1].event == "error" or ev[-1].event == "exit" and ev[-1].data["reason"] != "exited", f"{what}: the stream's last word {ev[-1]}")
        except (OSError, http.client.HTTPException) as e:
            fail(f"{what}: the stream broke off without a word: {e}")
        j = wait_for(lambda: (lambda s: s if s["state"] in ("stopped", "failed") else None)(show(id)), 20, f"{what}: it ended")
        check(j["state"] in states and j["reason"] in reasons, f"{what}: {j['state']}, {j['reason']}")
        error("POST", f"/v1/sandboxes/{id}/exec", {"shell": "true"}, status=410, code="sandbox_gone")
        check(any(e["type"] for e in events_of(id)), "events are kept")
        if what == "panic":
            check("panic" in api("GET", f"/v1/sandboxes/{id}/logs").body.decode(errors="replace"), "the console shows the panic")

with sandbox() as id:
    os.kill(monitor_pid(id), signal.SIGKILL)
    j = wait_for(lambda: (lambda s: s if s["state"] in ("stopped", "failed") else None)(show(id)), 20, "it ended")
    equal((j["state"], j["reason"]), ("failed", "monitor_crash"))
