# The host's clock jumps by hours, both ways: spaced goes on, numbers of events only grow, and a guest that wakes or starts has the clock that the host has then.
# serial
# needs: cc
# limit: 200
from t import *

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t c, struct timespec *t)
{
	int r = (int)syscall(SYS_clock_gettime, c, t);
	char text[32] = "";
	int fd = r == 0 && c == CLOCK_REALTIME ? open(getenv("JUMP_FILE"), O_RDONLY | O_CLOEXEC) : -1;

	if (fd >= 0) {
		(void)!read(fd, text, sizeof(text) - 1);
		close(fd);
		t->tv_sec += atol(text);
	}
	return r;
}
"""
lib, offset = os.path.join(DIR, "jump.so"), os.path.join(DIR, "jump")
subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-x", "c", "-", "-o", lib], input=SOURCE.encode(), check=True)


def jump(seconds):
    with open(offset + ".new", "w") as f:
        f.write(str(seconds))
    os.rename(offset + ".new", offset)


def guest_is_at(id, seconds):
    got = float(out(id, "date +%s.%N")) - time.time()
    check(abs(got - seconds) < 5, f"the guest is {got:.1f} s away, and the host {seconds}")


jump(0)
d = Daemon.main()
d.env = {"LD_PRELOAD": lib, "JUMP_FILE": offset}
d.restart()
try:
    with sandbox(timeout=0) as id:
        guest_is_at(id, 0)
        for seconds in (3 * 3600, -2 * 3600):
            jump(seconds)
            equal(out(id, "echo on"), "on")
            api("POST", f"/v1/sandboxes/{id}/pause")
            equal(api("POST", f"/v1/sandboxes/{id}/wake").json["state"], "running", "woken")
            guest_is_at(id, seconds)
            api("POST", f"/v1/sandboxes/{id}/suspend", timeout=90)
            equal(api("POST", f"/v1/sandboxes/{id}/wake", timeout=90).json["state"], "running", "woken from the disk")
            guest_is_at(id, seconds)
            with sandbox(timeout=600) as other:
                guest_is_at(other, seconds)
                equal(show(other)["state"], "running", "one that was created after the jump")
            d.restart(sig=signal.SIGKILL)
            equal(show(id)["state"], "running", "after a restart")
            equal(out(id, "echo on"), "on")
        numbers = [int(e["id"]) if "id" in e else int(e["seq"]) for e in events_of(id)]
        equal(numbers, sorted(set(numbers)), "numbers of events")
finally:
    d.env = None
    d.restart()
    for f in (lib, offset):
        os.unlink(f)
