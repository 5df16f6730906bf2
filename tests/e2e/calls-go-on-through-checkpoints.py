# Streams, uploads, downloads, tunnels and new calls of a sandbox that checkpoints and snapshots are taken of go on as if nothing were.
# limit: 240
from t import *

MB = 1 << 20
failures = []


def thread(fn):
    def run():
        try:
            fn()
        except BaseException as e:
            failures.append(f"{fn.__name__}: {e!r}")
    t = threading.Thread(target=run)
    t.start()
    return t


with sandbox(timeout=230) as id:
    sh(id, "head -c 16M /dev/urandom > /home/user/big; sha256sum /home/user/big > /home/user/sum")
    sh(id, "cd /home/user && (setsid python3 -m http.server --bind 127.0.0.1 8000 >/dev/null 2>&1 &)")
    wait_for(lambda: api("GET", f"/v1/sandboxes/{id}/ports/8000/sum", status=(200, 502)).status == 200, 30, "the server answers")
    digest = out(id, "cut -c1-64 /home/user/sum")
    done = threading.Event()
    counts = {}

    def stream():
        with Stream("POST", f"/v1/sandboxes/{id}/exec", {"shell": "i=0; while [ ! -e /tmp/stop ]; do echo $((i+=1)); sleep 0.05; done"}, timeout=60) as s:
            text, _, end = collect(s)
        check(end and end.event == "exit" and end.data["code"] == 0, f"the stream's end: {end}")
        numbers = text.decode().split()
        equal(numbers, [str(i + 1) for i in range(len(numbers))], "each number once")
        counts["numbers"] = len(numbers)

    def calls():
        n = 0
        while not done.is_set():
            equal(out(id, f"echo {n}"), str(n))
            n += 1
        counts["calls"] = n

    def files():
        n = 0
        while not done.is_set():
            put(id, "/tmp/small", f"{n}")
            equal(get(id, "/tmp/small").body, f"{n}".encode())
            n += 1
        counts["files"] = n

    def download():
        """Slowly: it is under way during every checkpoint."""
        import hashlib
        c = Connection(timeout=60)
        c.request("GET", f"/v1/sandboxes/{id}/files/home/user/big")
        r = c.getresponse()
        equal(r.status, 200)
        h, n = hashlib.sha256(), 0
        while True:
            b = r.read(MB // 4)
            if not b:
                break
            h.update(b)
            n += len(b)
            if not done.is_set():
                time.sleep(0.3)
        equal((n, h.hexdigest()), (16 * MB, digest))
        c.close()

    def upload():
        import hashlib
        c = Connection(timeout=60)
        c.putrequest("PUT", f"/v1/sandboxes/{id}/files/tmp/up")
        c.putheader("Content-Length", str(8 * MB))
        c.endheaders()
        h = hashlib.sha256()
        for i in range(32):
            b = os.urandom(MB // 4)
            h.update(b)
            c.send(b)
            if not done.is_set():
                time.sleep(0.3)
        r = c.getresponse()
        j = json.loads(r.read())
        equal((r.status, j.get("size"), j.get("sha256")), (201, 8 * MB, h.hexdigest()), f"{j}")
        c.close()

    def port():
        n = 0
        while not done.is_set():
            check(digest.encode() in api("GET", f"/v1/sandboxes/{id}/ports/8000/sum").body, "the guest's server")
            n += 1
        counts["port"] = n

    ts = [thread(f) for f in (stream, calls, files, download, upload, port)]
    nodes = []
    try:
        time.sleep(1)
        for what in ("checkpoints", "snapshots", "checkpoints", "checkpoints", "snapshots"):
            nodes.append(api("POST", f"/v1/sandboxes/{id}/{what}", {}, status=201, timeout=60).json)
            time.sleep(0.7)
    finally:
        done.set()
        sh(id, "touch /tmp/stop", code=None)
        [t.join(60) for t in ts]
        for k in nodes:
            api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
    print([f"{k['kind']} {k['paused_ms']} ms" for k in nodes], counts)
    check(not failures, "\n".join(failures))
    for k, least in (("numbers", 15), ("calls", 5), ("files", 5), ("port", 5)):
        check(counts.get(k, 0) >= least, f"{k}: only {counts}")
