# spaced is stopped, and killed, under a guest that counts: the sandbox runs on, a client that comes back sees each number once.
# serial
from t import *

d = Daemon.main()
with sandbox(timeout=120, name="counter") as id:
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "i=0; while :; do echo $((i+=1)); sleep 0.1; done"}, status=201).json
    path = f"/v1/sandboxes/{id}/processes/{a['pid']}/output"
    pid, text, last = monitor_pid(id), b"", None
    before = show(id)

    def follow(until):
        """Reads until a number is reached or the daemon is gone."""
        global text, last
        try:
            with Stream("GET", path, last_id=last, timeout=10) as s:
                for e in s:
                    check(e.event in ("start", "stdout", "error"), f"{e}")
                    if e.event == "error":
                        return
                    if e.event == "stdout":
                        equal(e.data["offset"], len(text), "offset")
                        text += e.bytes
                    last = e.id or last
                    if text.count(b"\n") >= until:
                        return
        except (OSError, http.client.HTTPException):
            return

    follow(10)
    for n, sig in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)):
        t0 = threading.Thread(target=follow, args=(10 ** 9,))
        t0.start()
        time.sleep(0.7)
        d.stop(sig)
        t0.join(15)
        check(monitor_pid(id) == pid and alive(pid), f"the guest's process lives through signal {sig}")
        d.start()
        j = show(id)
        equal((j["state"], j["created_at"], j["deadline_at"], j["name"]), ("running", before["created_at"], before["deadline_at"], "counter"))
        follow(text.count(b"\n") + 10)
    numbers = text.decode().split("\n")[:-1]
    equal(numbers, [str(i) for i in range(1, len(numbers) + 1)], "each number once")
    check(len(numbers) > 40, f"only {len(numbers)} numbers")
    equal(out(id, "echo still here"), "still here")
    seqs = [e["seq"] for e in events_of(id)]
    equal(seqs, sorted(set(seqs)), "events in order, once")
equal(show(id)["state"], "stopped")
