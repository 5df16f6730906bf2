# spaced is killed in the middle of building an image: nothing of the programs that build it is left, no process, no file, not in /tmp either.
# serial
# limit: 200
from t import *

def temporaries():
    return {n for n in os.listdir("/tmp") if n.startswith(("mmdebstrap", "apt.", "space-image"))}

def work():
    top = os.path.join(RUN["state"], "pool/tmp")
    return {n for n in os.listdir(top) if os.path.isdir(os.path.join(top, n)) and os.listdir(os.path.join(top, n))}

def builders():
    """Our mmdebstrap, which is told where to build; another daemon's is not ours to wait for."""
    return [p for p in pids_of(RUN["state"] + "/pool/tmp/") if p in pids_of("mmdebstrap")]

d = Daemon.main()
before = temporaries()
for how in ("spaced", "builder"):
    op = op_of(api("POST", "/v1/images", {"name": "interrupted", "from": "packages", "packages": ["hello"]}, status=202))
    wait_for(builders, 60, "mmdebstrap runs")
    # Its own directory is made at once; by now it has its temporary files as well.
    time.sleep(3)
    check(builders(), "it is still at work")
    equal(temporaries(), before, "while it works, nothing lies in /tmp")
    if how == "spaced":
        d.stop(signal.SIGKILL)
        d.start()
    else:
        for p in pids_of(RUN["libexec"] + "/space-image"):
            os.kill(p, signal.SIGTERM)
        o = wait_for(lambda: (lambda o: o if o["state"] != "running" else None)(api("GET", f"/v1/operations/{op['id']}").json), 30, "the operation ended")
        equal(o["state"], "failed", f"{o}")
    wait_for(lambda: not builders(), 15, "mmdebstrap is gone")
    wait_for(lambda: not work(), 15, "the pool's work directories are gone or empty")
    equal(temporaries(), before, f"in /tmp, after the death of {how}")
    error("GET", "/v1/images/interrupted", status=404, code="image_not_found")
