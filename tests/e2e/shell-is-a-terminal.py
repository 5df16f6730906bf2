# `space shell` is a real terminal: a tty inside, its size follows, Ctrl-C reaches the program, its exit status comes back.
from t import *
import fcntl, pty, struct, termios

with sandbox() as id:
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(SPACE, [SPACE, "shell", id], cli_env(TERM="xterm"))
    buf = b""

    def resize(cols, rows):
        fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        os.kill(pid, signal.SIGWINCH)

    def until(text, seconds=15):
        global buf
        end = time.monotonic() + seconds
        while text not in buf:
            left = end - time.monotonic()
            check(left > 0, f"no {text!r} in {buf[-800:]!r}")
            if select.select([fd], [], [], left)[0]:
                try:
                    buf += os.read(fd, 65536)
                except OSError:
                    fail(f"the shell ended: {buf[-800:]!r}")
        head, _, buf = buf.partition(text)
        return head

    resize(100, 30)
    os.write(fd, b"PS1='$ '; tty; echo si''ze $(stty size)\r")
    until(b"/dev/pts/")
    until(b"size 30 100")
    resize(77, 22)
    time.sleep(0.5)
    os.write(fd, b"echo ne''w $(stty size)\r")
    until(b"new 22 77")
    os.write(fd, b"sleep 100\r")
    time.sleep(0.5)
    os.write(fd, b"\x03")
    os.write(fd, b"echo aft''er; echo $TERM\r")
    until(b"after")
    until(b"xterm")
    os.write(fd, b"exit 7\r")
    end = time.monotonic() + 10
    status = None
    while status is None and time.monotonic() < end:
        try:
            if select.select([fd], [], [], 0.1)[0]:
                os.read(fd, 65536)
        except OSError:
            pass
        p, st = os.waitpid(pid, os.WNOHANG)
        if p:
            status = os.waitstatus_to_exitcode(st)
    os.close(fd)
    equal(status, 7, "exit status")

    # Stdin that is no terminal: the shell runs what comes and ends with it.
    for given, says, code in ((b"echo h''i; tty\n", (b"hi", b"/dev/pts/"), 0), (b"(exit 5)", (), 5), (b"", (), 0)):
        p = subprocess.run([SPACE, "shell", id], input=given, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=cli_env(TERM="dumb"), timeout=30)
        equal(p.returncode, code, f"status of a shell that was given {given!r}: {p.stdout!r}")
        check(all(s in p.stdout for s in says), f"{p.stdout!r}")
    p = subprocess.run([SPACE, "shell", id], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=cli_env(), timeout=30)
    equal(p.returncode, 0, "status of a shell that was given nothing")

    # The same over the API: output comes as `pty` events and the size can be changed.
    a = api("POST", f"/v1/sandboxes/{id}/exec?detach=1", {"shell": "stty size; read x; stty size; echo got $x; exit 3", "pty": {"cols": 90, "rows": 25}}, status=201).json
    p = f"/v1/sandboxes/{id}/processes/{a['pid']}"
    wait_for(lambda: any(x["pid"] == a["pid"] and x["stdout"]["end"] > 3 for x in api("GET", f"/v1/sandboxes/{id}/processes").json["processes"]), 10, "its first line")
    api("POST", p + "/resize", {"cols": 44, "rows": 11}, status=204)
    api("POST", p + "/stdin", b"typed\r", status=204)
    ev = list(Stream("GET", p + "/output"))
    text = b"".join(e.bytes for e in ev if e.event == "pty")
    check(b"25 90" in text and b"11 44" in text and b"got typed" in text, f"{text!r}")
    equal(ev[-1].data["code"], 3)
