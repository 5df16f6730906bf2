# An idle sandbox uses at most 2 % of a core, alone and among ten; idle spaced stays under 12 MiB; the tenth adds at most 60 % of the first one's memory.
# serial
# limit: 300
from t import *

N = 10

def pss(pids):
    """What these processes hold together: pages that several share are counted once, as long as nobody else has them."""
    return sum(int(re.search(r"^Pss:\s+(\d+)", open(f"/proc/{p}/smaps_rollup").read(), re.M)[1]) for p in pids) << 10

def cpu(pids, enough, seconds=10, tries=4):
    """Percent of a core that each uses, in the quietest of some windows: what else a host does makes the same work take longer, never shorter.
    Stops at the first window that satisfies `enough`."""
    best = None
    for _ in range(tries):
        c0, t0 = [cpu_seconds(p) for p in pids], time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - t0
        used = [(b - a) / took * 100 for a, b in zip(c0, [cpu_seconds(p) for p in pids])]
        best = used if best is None else [min(x, y) for x, y in zip(best, used)]
        if enough(best):
            break
    return best

# Without ready monitors, so that the first has the template's memory to itself.
with main_with(ready_monitors=0) as d:
    ids, pids, total = [], [], []
    try:
        rss0 = rss(d.pid)
        check(rss0 < 12 << 20, f"spaced has {rss0 >> 10} KiB resident")
        for i in range(N):
            ids.append(api("POST", "/v1/sandboxes", {"timeout": 250}, status=201).json["id"])
            equal(out(ids[-1], "echo ok"), "ok")
            pids.append(monitor_pid(ids[-1]))
            check(pids[-1], "the monitor is found")
            if i == 0:
                time.sleep(4)
                alone = cpu(pids + [d.pid], lambda u: max(u) <= 2)
                print(f"alone: {alone[0]:.2f} % of a core, spaced {alone[1]:.2f} %")
                check(alone[0] <= 2 and alone[1] <= 2, f"a sandbox alone uses {alone[0]:.2f} %, spaced {alone[1]:.2f} % of a core")
            total.append(pss(pids))
        first, tenth = total[0], total[-1] - total[-2]
        print(f"memory: the first {first >> 20} MiB, the tenth adds {tenth / (1 << 20):.1f} MiB, all {total[-1] >> 20} MiB")
        check(tenth <= 0.6 * first, f"the tenth adds {tenth >> 20} MiB, the first had {first >> 20} MiB alone")
        per = (rss(d.pid) - rss0) / N
        check(per < 64 << 10, f"{per / 1024:.0f} KiB of spaced a sandbox")
        time.sleep(4)
        used = cpu(pids + [d.pid], lambda u: sum(u[:N]) / N <= 2 and u[N] <= 2)
        print("among ten, percent of a core: " + " ".join(f"{u:.2f}" for u in used))
        mean = sum(used[:N]) / N
        check(mean <= 2, f"an idle sandbox among {N} uses {mean:.2f} % of a core")
        check(used[N] <= 2, f"spaced uses {used[N]:.2f} %")
    finally:
        for i in ids:
            api("DELETE", f"/v1/sandboxes/{i}")
