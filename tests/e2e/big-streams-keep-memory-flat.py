# 256 MiB up and down leave the memory of spaced and of the agent as it was.
# limit: 300
# serial
from t import *
import hashlib

MB = 256
with sandbox(timeout=280) as id:
    agent = lambda: int(out(id, "awk '/VmRSS/{print $2}' /proc/1/status")) << 10
    peak = lambda: int(out(id, "awk '/VmHWM/{print $2}' /proc/1/status")) << 10
    d = Daemon.main()
    def up(mb):
        sent = hashlib.sha256()
        def parts():
            block = os.urandom(1 << 20)
            for i in range(mb):
                b = i.to_bytes(8, "big") + block[8:]
                sent.update(b)
                yield b
        c = Connection(timeout=200)
        c.request("PUT", f"/v1/sandboxes/{id}/files/home/user/big", parts(), {"Content-Length": str(mb << 20)})
        r = c.getresponse()
        j = json.loads(r.read())
        c.close()
        equal((r.status, j["size"], j["sha256"]), (201, mb << 20, sent.hexdigest()))
        return sent.hexdigest()
    def down():
        c = Connection(timeout=200)
        c.request("GET", f"/v1/sandboxes/{id}/files/home/user/big")
        r = c.getresponse()
        h, n = hashlib.sha256(), 0
        while b := r.read(1 << 20):
            h.update(b)
            n += len(b)
        c.close()
        return h.hexdigest()
    up(8)
    down()
    host0, agent0, peak0, most = rss(d.pid), agent(), peak(), 0
    stop = threading.Event()
    def look():
        global most
        while not stop.wait(0.05):
            most = max(most, rss(d.pid))
    x = threading.Thread(target=look)
    x.start()
    digest = up(MB)
    equal(down(), digest, "what came back")
    stop.set()
    x.join()
    grown = (most - host0) / (1 << 20)
    check(grown <= 1, f"spaced grew by {grown:.2f} MiB")
    # The most it ever had, between two looks as well.
    check(peak() - peak0 <= 1 << 20, f"the agent's peak grew from {peak0} to {peak()}")
    check(agent() - agent0 <= 1 << 20, f"the agent grew from {agent0} to {agent()}")
    check(agent() < 2 << 20, f"the agent has {agent()} bytes resident")
