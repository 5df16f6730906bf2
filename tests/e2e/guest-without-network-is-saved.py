# A guest whose network is down cannot be asked to stand still: its checkpoint is taken all the same, in bounded time, and it runs on; and it can be rolled back to when it had one.
from t import *


def take_down(id, then):
    """eth0 goes down a second from now, when the command that does it has been answered; then THEN."""
    sh(id, f"setsid sh -c 'sleep 1; ip link set eth0 down; {then}' > /dev/null 2>&1 < /dev/null &", user="root")
    wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=(200, 502)).status == 502, 20, "eth0 is down")


def bounded(id, path, body, status):
    t0 = time.monotonic()
    a = api("POST", f"/v1/sandboxes/{id}/{path}", body, status=status, timeout=60).json
    took = time.monotonic() - t0
    check(took < 15, f"{path} took {took:.1f} s")
    return a


nodes = []
try:
    with sandbox(timeout=300) as id:
        sh(id, "echo before > /home/user/mark; sync")
        nodes.append(api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "network"}, status=201, timeout=60).json["id"])
        take_down(id, "sleep 12; ip link set eth0 up; sleep 1000")
        nodes.append(bounded(id, "checkpoints", {"label": "no-network"}, 201)["id"])
        equal(show(id)["state"], "running", "its state")
        wait_for(lambda: api("POST", f"/v1/sandboxes/{id}/exec?wait=1", {"shell": "true"}, status=range(200, 600)).status == 200, 60,
                 "it is back when its network is")
        equal(out(id, "cat /home/user/mark"), "before", "what it had")
        sh(id, "echo after > /home/user/mark; sync")
        # The machine that is given up need not be asked anything, and the one of then has its network.
        take_down(id, "sleep 1000")
        equal(bounded(id, "rollback", {"checkpoint": "network"}, 200)["state"], "running", "rolled back")
        drop_caches(id)
        equal(out(id, "cat /home/user/mark; cat /sys/class/net/eth0/operstate"), "before\nup", "rolled back")
finally:
    for n in nodes:
        api("DELETE", f"/v1/checkpoints/{n}", status=204)
