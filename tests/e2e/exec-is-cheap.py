# exec of /bin/true over the local API takes at most twice the same fork and exec timed inside the guest.
# serial
from t import *

INSIDE = "import subprocess,time,statistics\nr=[]\nfor i in range(40):\n t=time.monotonic(); subprocess.run(['/bin/true']); r.append(time.monotonic()-t)\nprint(statistics.median(r)*1000)"
with sandbox() as id:
    put(id, "/tmp/t.py", INSIDE)
    out(id, "python3 /tmp/t.py")
    inside = float(out(id, "python3 /tmp/t.py"))
    c = Connection()
    def once():
        t = time.monotonic()
        c.request("POST", f"/v1/sandboxes/{id}/exec?wait=1", b'{"cmd":["/bin/true"]}')
        r = c.getresponse()
        body = r.read()
        equal(json.loads(body)["exit"]["code"], 0)
        return (time.monotonic() - t) * 1000
    for _ in range(10):
        once()
    times = sorted(once() for _ in range(60))
    med = times[30]
    print(f"inside {inside:.1f} ms, through the API {med:.1f} ms")
    check(med <= 2 * inside, f"{med:.1f} ms is {med / inside:.2f} of {inside:.1f} ms inside")
