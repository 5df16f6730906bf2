# An idle sandbox uses at most 2 % of a core, spaced idle stays under 12 MiB, and the tenth sandbox adds at most 60 % of the first one's memory.
# serial
# limit: 240
from t import *

def private(pid):
    m = re.search(r"Pss:\s+(\d+)", open(f"/proc/{pid}/smaps_rollup").read())
    return int(m[1]) << 10

d = Daemon.main()
ids = []
try:
    pss = []
    rss0 = rss(d.pid)
    check(rss0 < 12 << 20, f"spaced has {rss0 >> 10} KiB resident")
    for i in range(10):
        ids.append(api("POST", "/v1/sandboxes", {"timeout": 200}, status=201).json["id"])
        equal(out(ids[-1], "echo ok"), "ok")
    pids = [monitor_pid(i) for i in ids]
    check(all(pids), "monitors are found")
    # Shared pages are divided by Pss among those that share them; the first one's alone is measured when it is alone, in make bench. What the
    # tenth adds is what is its own.
    def own(pid):
        t = open(f"/proc/{pid}/smaps_rollup").read()
        return sum(int(m) for m in re.findall(r"Private_(?:Clean|Dirty):\s+(\d+)", t)) << 10
    first_total, tenth_own = rss(pids[0]), own(pids[9])
    check(tenth_own <= 0.6 * first_total, f"the tenth adds {tenth_own >> 20} MiB, the first has {first_total >> 20}")
    per = (rss(d.pid) - rss0) / 10
    check(per < 64 << 10, f"{per / 1024:.0f} KiB of spaced a sandbox")
    time.sleep(4)
    c0, t0 = [cpu_seconds(p) for p in pids + [d.pid]], time.monotonic()
    time.sleep(10)
    took = time.monotonic() - t0
    used = [(b - a) / took * 100 for a, b in zip(c0, [cpu_seconds(p) for p in pids + [d.pid]])]
    print("idle CPU, percent of a core: " + " ".join(f"{u:.2f}" for u in used))
    mean = sum(used[:10]) / 10
    check(mean <= 2, f"an idle sandbox uses {mean:.2f} % of a core")
    check(used[10] <= 2, f"spaced uses {used[10]:.2f} %")
finally:
    for i in ids:
        api("DELETE", f"/v1/sandboxes/{i}")
