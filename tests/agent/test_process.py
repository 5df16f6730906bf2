"""process.Process, and the host's own calls on processes."""
import base64
import json
import os
import signal
import time

from lib import Failure, b64, check, same, until


def test_events_come_in_order_and_end_says_exit_status_0(a):
    s = a.start("echo hello; echo err >&2")
    same(s.status, 200)
    same(s.headers["content-type"], "application/connect+json")
    out, err, end = s.result()
    same(out, b"hello\n")
    same(err, b"err\n")
    check(end["exited"] and end["status"] == "exit status 0" and "error" not in end and end.get("exitCode", 0) == 0, end)
    same(end["reason"], "exited")
    same(s.last, {})


def test_exit_status_is_told(a):
    _, _, end = a.run("exit 3")
    same((end["exitCode"], end["exited"], end["status"], end["error"]), (3, True, "exit status 3", "exit status 3"))


def test_death_by_signal_is_minus_1_in_gos_words(a):
    for sig, word in ((9, "killed"), (15, "terminated"), (11, "segmentation fault"), (6, "aborted"), (1, "hangup"), (2, "interrupt")):
        _, _, end = a.run("ulimit -c 0; kill -%d $$" % sig)
        check(end["exitCode"] == -1 and not end["exited"], end)
        check(end["status"].startswith("signal: " + word) and end["error"] == end["status"], end)
        same(end["reason"], "signaled")


def test_missing_command_starts_and_exits_127(a):
    for cmd in ("no-such-command", "/no/such/command"):
        _, err, end = a.run(cmd, [])
        same(end["exitCode"], 127)
        check(b"not found" in err, err)
    _, err, end = a.run("/etc", [])
    same(end["exitCode"], 126)


def test_strict_makes_a_missing_command_an_error(a):
    for cmd, code in (("no-such-command", "not_found"), ("/etc/passwd", "invalid_argument"), ("/etc", "invalid_argument")):
        same(a.start(cmd, [], space={"strict": True}).error()["code"], code)
    same(a.run("echo", ["x"], space={"strict": True})[0], b"x\n")


def test_script_without_shebang_runs(a):
    p = os.path.join(a.home, "script")
    with open(p, "w") as f:
        f.write("echo from script $1\n")
    os.chmod(p, 0o755)
    same(a.run(p, ["x"])[0], b"from script x\n")


def test_command_is_found_in_path_of_its_environment(a):
    os.makedirs(os.path.join(a.dir, "bin"), exist_ok=True)
    p = os.path.join(a.dir, "bin", "mytool")
    with open(p, "w") as f:
        f.write("#!/bin/sh\necho mine\n")
    os.chmod(p, 0o755)
    same(a.run("mytool", [], envs={"PATH": os.path.join(a.dir, "bin") + ":/usr/bin:/bin"})[0], b"mine\n")


def test_offsets_count_each_stream(a):
    s = a.start("printf abc; printf 12345 >&2; sleep 0.2; printf def")
    s.pid()
    at = {"stdout": 0, "stderr": 0}
    for e in s.events():
        for k in at:
            if "data" in e and k in e["data"]:
                same(e["data"]["offset"], at[k])
                at[k] += len(base64.b64decode(e["data"][k]))
    same(at, {"stdout": 6, "stderr": 5})


def test_chunks_are_at_most_32_kib(a):
    s = a.start("head -c 1000000 /dev/zero")
    s.pid()
    total = 0
    for e in s.events():
        if "data" in e:
            n = len(base64.b64decode(e["data"]["stdout"]))
            check(n <= 32768, n)
            total += n
    same(total, 1000000)


def test_large_output_arrives_whole(a):
    out, _, _ = a.run("seq 300000")
    same(out, b"".join(b"%d\n" % i for i in range(1, 300001)))


def test_stdin_false_is_dev_null(a):
    same(a.run("cat; echo eof")[0], b"eof\n")


def test_stdin_is_a_pipe_by_default_and_closes(a):
    s = a.start("cat; sleep 0.5; echo done", stdin=None)
    pid = s.pid()
    a.ok("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("hello ")}})
    a.ok("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("world\n")}})
    a.ok("CloseStdin", {"process": {"pid": pid}})
    a.ok("CloseStdin", {"process": {"pid": pid}})
    out = b""
    for e in s.events():
        if "data" in e:
            out += base64.b64decode(e["data"]["stdout"])
    same(out, b"hello world\ndone\n")


def test_input_of_a_megabyte_waits_for_the_process(a):
    s = a.start("sleep 0.5; wc -c", stdin=True)
    pid = s.pid()
    t = time.time()
    a.ok("SendInput", {"process": {"pid": pid}, "input": {"stdin": b64(b"x" * 1000000)}})
    check(time.time() - t > 0.2, "answered before the process had taken it")
    a.ok("CloseStdin", {"process": {"pid": pid}})
    same(s.result(pid=False)[0].strip(), b"1000000")


def test_input_errors(a):
    s = a.start("sleep 30")
    pid = s.pid()
    a.err("internal", "SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    a.err("internal", "SendInput", {"process": {"pid": pid}, "input": {"pty": b64("x")}})
    a.err("unimplemented", "SendInput", {"process": {"pid": pid}, "input": {}})
    a.err("internal", "Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 80, "rows": 24}}})
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    s.result(pid=False)
    a.err("not_found", "SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    s = a.start("exec 0<&-; sleep 0.3; exit 0", stdin=True)
    pid = s.pid()
    time.sleep(0.1)
    a.err("internal", "SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    s.result(pid=False)


def test_input_can_be_streamed_by_e2bs_call(a):
    import struct
    s = a.start("cat", stdin=True)
    pid = s.pid()
    body = b""
    for m in ({"start": {"process": {"pid": pid}}}, {"data": {"input": {"stdin": b64("one ")}}}, {"keepalive": {}},
              {"data": {"input": {"stdin": b64("two")}}}):
        p = json.dumps(m).encode()
        body += b"\0" + struct.pack(">I", len(p)) + p
    status, h, data = a.http("POST", "/process.Process/StreamInput", body, {"Content-Type": "application/connect+json"})
    same((status, data), (200, b"\0\0\0\0\2{}\2\0\0\0\2{}"))
    a.ok("CloseStdin", {"process": {"pid": pid}})
    same(s.result(pid=False)[0], b"one two")


def test_signals_go_to_the_one_process(a):
    s = a.start("trap 'echo got usr1' USR1; trap 'echo got term; exit 5' TERM; echo ready; while :; do sleep 0.05; done")
    pid = s.pid()
    s.next()
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": 10})
    same(base64.b64decode(s.next()["event"]["data"]["stdout"]), b"got usr1\n")
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"})
    out, _, end = s.result(pid=False)
    same((out, end["exitCode"]), (b"got term\n", 5))
    a.err("not_found", "SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    a.err("not_found", "SendSignal", {"process": {"pid": 4000000}, "signal": "SIGNAL_SIGKILL"})
    s = a.start("sleep 30")
    pid = s.pid()
    a.err("unimplemented", "SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGHUP"})
    a.err("unimplemented", "SendSignal", {"process": {"pid": pid}, "signal": 65})
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": 9})
    a.err("not_found", "SendSignal", {"process": {"pid": pid}, "signal": 9})  # at once, however long dying takes
    check(pid not in [p["pid"] for p in a.ok("List")["processes"]], "still listed")
    end = s.result(pid=False)[2]
    same((end["status"], end["reason"]), ("signal: killed", "killed"))


def test_end_waits_for_children_that_hold_the_pipes(a):
    t = time.time()
    out, _, end = a.run("(sleep 0.7; echo late) & echo early")
    same(out, b"early\nlate\n")
    same(end["exitCode"], 0)
    check(time.time() - t > 0.6, "the end came early")


def test_kill_does_not_wait_for_children_that_hold_the_pipes(a):
    s = a.start("sleep 60 & echo started; wait")
    pid = s.pid()
    s.next()
    t = time.time()
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    s.result(pid=False)
    check(time.time() - t < 2, "the end came late")
    s = a.start("sleep 60 & echo started")
    pid = s.pid()
    s.next()
    time.sleep(0.2)  # the command itself has ended
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGTERM"})
    same(s.result(pid=False)[2]["exitCode"], 0)
    for p in a.processes():
        if p["pid"] == pid:
            a.http("POST", "/space/kill", {"pid": pid, "signal": 9, "group": True})


def test_timeout_header_kills_and_ends_with_deadline_exceeded(a):
    t = time.time()
    s = a.start("echo hi; sleep 60", headers={"Connect-Timeout-Ms": "400"})
    pid = s.pid()
    same(s.error()["code"], "deadline_exceeded")
    check(0.3 < time.time() - t < 3, "took %.2f s" % (time.time() - t))
    until(lambda: not os.path.exists("/proc/%d" % pid), 2, "its death")


def test_timeout_kills_with_nobody_attached(a):
    s = a.start("sleep 60", headers={"Connect-Timeout-Ms": "400"})
    pid = s.pid()
    s.close()
    check(os.path.exists("/proc/%d" % pid), "killed by the disconnect")
    until(lambda: not os.path.exists("/proc/%d" % pid), 3, "its death")


def test_native_deadline_kills_the_whole_group(a):
    s = a.start("setsid sleep 61.5 & sleep 62.5 & wait", space={"deadlineMs": 400})
    s.pid()
    end = s.result(pid=False)[2]
    same((end["reason"], end["exitCode"]), ("deadline", -1))
    same(s.last, {})
    until(lambda: not children_named("62.5"), 3, "the child's death")
    if cgroups(a):
        until(lambda: not children_named("61.5"), 3, "the death of a child with a session of its own")


def children_named(arg):
    found = []
    for p in os.listdir("/proc"):
        try:
            if p.isdigit() and open("/proc/%s/cmdline" % p, "rb").read() == b"sleep\0" + arg.encode() + b"\0":
                found.append(int(p))
        except OSError:
            pass
    return found


def cgroups(a):
    for root in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
        if os.path.isdir("%s/space-agent-%d" % (root, a.proc.pid)):
            return "%s/space-agent-%d" % (root, a.proc.pid)
    return None


def test_disconnecting_does_not_kill(a):
    s = a.start("sleep 0.5; echo x > %s/survived" % a.home)
    s.pid()
    s.close()
    until(lambda: os.path.exists(a.home + "/survived"), 3, "the command's end")


def test_connect_gets_what_comes_from_then_on_and_the_end(a):
    s = a.start("echo one; sleep 0.4; echo two; exit 4")
    pid = s.pid()
    s.next()
    c = a.stream("Connect", {"process": {"pid": pid}})
    out, _, end = c.result()
    same((out, end["exitCode"], c.the_pid), (b"two\n", 4, pid))
    s.result(pid=False)
    c = a.stream("Connect", {"process": {"pid": pid}})  # ended within 30 s: start, then end
    out, err, end = c.result()
    same((out, err, end["exitCode"]), (b"", b"", 4))


def test_connect_by_tag_and_unknown_ones(a):
    s = a.start("sleep 0.3; echo tagged", tag="my tag")
    pid = s.pid()
    c = a.stream("Connect", {"process": {"tag": "my tag"}})
    same(c.result()[0], b"tagged\n")
    same(c.the_pid, pid)
    e = a.stream("Connect", {"process": {"pid": 3999999}}).error()
    same((e["code"], e["message"]), ("not_found", "process with pid 3999999 not found"))
    e = a.stream("Connect", {"process": {"tag": "nope"}}).error()
    same((e["code"], e["message"]), ("not_found", "process with tag nope not found"))


def test_replay_from_an_offset(a):
    s = a.start("printf 0123456789; printf abc >&2; sleep 0.5; printf X")
    pid = s.pid()
    time.sleep(0.2)
    s.close()
    c = a.stream("Connect", {"process": {"pid": pid}, "fromOffset": {"stdout": 4, "stderr": 1}})
    out, err, end = c.result()
    same((out, err), (b"456789X", b"bc"))
    c = a.stream("Connect", {"process": {"pid": pid}, "from_offset": {"stdout": "0"}})
    out, err, end = c.result()
    same((out, err, end["exitCode"]), (b"0123456789X", b"abc", 0))
    same(a.stream("Connect", {"process": {"pid": pid}, "fromOffset": {"stdout": 99}}).error()["code"], "out_of_range")


def test_what_fell_out_is_a_gap(a):
    s = a.start("head -c 300000 /dev/zero; echo end", space={"keepBytes": 1000})
    s.result()
    pid = s.the_pid
    c = a.stream("Connect", {"process": {"pid": pid}, "fromOffset": {"stdout": 0}})
    c.pid()
    e = c.next()["event"]
    same(e, {"gap": {"stream": "stdout", "from": 0, "to": 300004 - 1000}})
    out, _, end = c.result(pid=False)
    same((len(out), out[-4:], end["exitCode"]), (1000, b"end\n", 0))
    p = [p for p in a.processes() if p["pid"] == pid][0]
    same(p["stdout"], {"start": 299004, "end": 300004})


def test_default_keeps_a_mebibyte(a):
    s = a.start("head -c 3000000 /dev/zero")
    s.pid()
    s.close()
    pid = None
    until(lambda: [p for p in a.processes() if p["stdout"]["end"] == 3000000 and not p["running"]], 5, "all of the output")
    p = [p for p in a.processes() if p["stdout"]["end"] == 3000000][0]
    same(p["stdout"]["end"] - p["stdout"]["start"], 1 << 20)


def test_several_readers_each_get_everything(a):
    s = a.start("sleep 0.3; seq 20000")
    pid = s.pid()
    c = [a.stream("Connect", {"process": {"pid": pid}}) for _ in range(3)]
    want = s.result(pid=False)[0]
    for x in c:
        same(x.result()[0], want)


def test_slow_reader_holds_the_process_back_and_agent_stays_small(a):
    before = a.rss_kib()
    s = a.start("yes", rcvbuf=4096)
    pid = s.pid()
    s.next()
    io = lambda: int(open("/proc/%d/io" % pid).read().split("wchar: ")[1].split()[0])

    last = [io(), time.time()]

    def still():  # 0.5 s; the buffers on the way have to fill first, and after 1.5 s (--slow-ms) the reader is let go
        now = io()
        if now != last[0]:
            last[:] = now, time.time()
        return time.time() - last[1] > 0.5 and now

    first = until(still, 15, "half a second in which yes writes nothing while nobody reads")
    check(first < 16 << 20, "yes wrote %d bytes" % first)
    for _ in range(200):
        s.next()
    check(io() > first, "reading on did not let it go on")
    after = a.rss_kib()
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    s.close()
    a.check_grown(before, 4096, after)


def test_without_readers_output_is_dropped_and_the_process_runs(a):
    before = a.rss_kib()
    s = a.start("yes")
    pid = s.pid()
    s.close()
    io = lambda: int(open("/proc/%d/io" % pid).read().split("wchar: ")[1].split()[0])
    time.sleep(0.3)
    first = io()
    until(lambda: io() > first + (8 << 20), 5, "progress of yes with nobody attached")
    a.check_grown(before, 2048)
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})


def test_reader_that_takes_nothing_is_let_go_with_its_offset(a):
    s = a.start("yes", rcvbuf=4096)  # the agent under test has --slow-ms 1500
    pid = s.pid()
    time.sleep(4)
    io = lambda: int(open("/proc/%d/io" % pid).read().split("wchar: ")[1].split()[0])
    first = io()
    time.sleep(0.3)
    check(io() > first, "still held back")
    at, detached = 0, None
    for e in s.events():
        if "data" in e:
            at += len(base64.b64decode(e["data"]["stdout"]))
        if "detached" in e:
            detached = e["detached"]
    same(detached, {"reason": "slow_reader", "stdout": at, "stderr": 0})
    same(s.last["error"]["code"], "aborted")
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})


def test_keepalive_in_silence(a):
    s = a.start("sleep 2.5", headers={"Keepalive-Ping-Interval": "1"})
    s.pid()
    kinds = [list(e)[0] for e in s.events()]
    same(kinds, ["keepalive", "keepalive", "end"])


def test_list_shows_running_ones_with_their_config(a):
    s = a.start("sleep 30", envs={"A": "b"}, tag="listed")
    pid = s.pid()
    ps = [p for p in a.ok("List")["processes"] if p["pid"] == pid]
    same(ps, [{"config": {"cmd": "/bin/bash", "args": ["-c", "sleep 30"], "envs": {"A": "b"}}, "pid": pid, "tag": "listed"}])
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    s.result(pid=False)
    check(pid not in [p["pid"] for p in a.ok("List").get("processes", [])], "still listed")


def test_pty_merges_resizes_and_takes_input(a):
    s = a.start("/bin/bash", ["-i"], pty={"size": {"cols": 91, "rows": 31}}, stdin=None, envs={"TERM": "xterm", "PS1": "$ "})
    pid = s.pid()

    seen = [b""]  # what has come and was not asked for yet

    def expect(text):
        end = time.time() + 10
        while text not in seen[0]:
            check(time.time() < end, "no %r in %r" % (text, seen[0]))
            e = s.next()
            check(e, "the stream ended: got %r" % seen[0])
            if "data" in e["event"]:
                seen[0] += base64.b64decode(e["event"]["data"]["pty"])
        seen[0] = seen[0].split(text, 1)[1]

    a.ok("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("stty size; tty; echo to-err >&2\n")}})
    expect(b"31 91")
    expect(b"/dev/pts/")
    expect(b"to-err")
    a.ok("Update", {"process": {"pid": pid}, "pty": {"size": {"cols": 120, "rows": 40}}})
    a.ok("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("stty size\n")}})
    expect(b"40 120")
    a.err("internal", "SendInput", {"process": {"pid": pid}, "input": {"stdin": b64("x")}})
    a.err("unknown", "CloseStdin", {"process": {"pid": pid}})
    a.ok("SendInput", {"process": {"pid": pid}, "input": {"pty": b64("exit 6\n")}})
    same(s.result(pid=False)[2]["exitCode"], 6)


def test_pty_size_zero_is_passed_on(a):
    s = a.start("stty size", pty={"size": {}}, stdin=None)
    same(s.result()[0], b"0 0\r\n")


def test_pty_kill(a):
    s = a.start("cat", pty={"size": {"cols": 80, "rows": 24}}, stdin=None)
    pid = s.pid()
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": "SIGNAL_SIGKILL"})
    same(s.result(pid=False)[2]["status"], "signal: killed")


def test_user_groups_home_and_environment(a):
    out, _, _ = a.run("id -u; id -g; id -G; pwd; echo $HOME $USER $LOGNAME; cat /proc/self/oom_score_adj; umask")
    same(out.decode().split("\n")[:7], ["1000", "1000", "1000 27 2000", a.home, a.home + " user user", "100", "0022"])
    out, _, _ = a.run("id -u; pwd; whoami", user="root")
    same(out.decode().split(), ["0", a.dir + "/roothome", "root"])
    e = a.start("true", user="nobody-such").error()
    same((e["code"], e["message"]), ("unauthenticated", "invalid username: 'nobody-such'"))
    e = a.start("true", user="number").error()
    same(e["code"], "unauthenticated")


def test_environment_is_made_of_three_layers(a):
    a.init(generation=next_generation(), envVars={"GLOBAL": "g", "BOTH": "global", "PATH": "/usr/bin:/bin:/g"})
    out, _, _ = a.run("env", ["-0"], envs={"BOTH": "request", "OWN": "ü=\n"})
    env = dict(l.split("=", 1) for l in out.decode().split("\0") if l)
    same(env, {"PATH": "/usr/bin:/bin:/g", "HOME": a.home, "USER": "user", "LOGNAME": "user", "GLOBAL": "g", "BOTH": "request",
               "OWN": "ü=\n", "E2B_SANDBOX": "true"})
    same(json.loads(a.http("GET", "/envs")[2])["GLOBAL"], "g")
    a.init(generation=next_generation(), envVars={})


generation = [1000]


def next_generation():
    generation[0] += 1
    return generation[0]


def test_cwd_rules(a):
    os.makedirs(a.home + "/sub", exist_ok=True)
    os.chown(a.home + "/sub", 1000, 1000)
    same(a.run("pwd", cwd="sub")[0].decode().strip(), a.home + "/sub")
    same(a.run("pwd", cwd="~/sub")[0].decode().strip(), a.home + "/sub")
    same(a.run("pwd", cwd="/")[0], b"/\n")
    e = a.start("pwd", cwd="/no/such").error()
    same((e["code"], e["message"]), ("invalid_argument", "cwd '/no/such' does not exist"))
    same(a.start("pwd", cwd="~other").error()["code"], "invalid_argument")
    same(a.start("pwd", cwd="/etc/passwd").error()["code"], "invalid_argument")
    os.makedirs(a.dir + "/private", exist_ok=True)
    os.chmod(a.dir + "/private", 0o700)
    same(a.start("pwd", cwd=a.dir + "/private").error()["code"], "invalid_argument")


def test_bad_requests_are_invalid_argument_in_the_stream(a):
    for body in ({}, {"process": {}}, {"process": {"cmd": ""}}, {"process": {"cmd": "x", "args": "y"}}, {"process": {"cmd": "x", "args": [1]}},
                 {"process": {"cmd": "x", "envs": {"A": 1}}}, {"process": {"cmd": "x"}, "space": {"keepBytes": -1}},
                 {"process": {"cmd": "x"}, "pty": {"size": {"cols": 70000}}}):
        s = a.stream("Start", body)
        same((s.status, s.error()["code"]), (200, "invalid_argument"), body)


def test_connect_protocol_edges(a):
    status, h, _ = a.http("POST", "/process.Process/Start", b"", {"Content-Type": "application/proto"})
    same(status, 415)
    status, h, _ = a.http("POST", "/process.Process/List", b"{}", {"Content-Type": "application/connect+proto"})
    same(status, 415)
    status, h, data = a.http("POST", "/process.Process/List", b"{}", {"Content-Type": "application/json; charset=utf-8"})
    same((status, h["content-type"]), (200, "application/json"))
    status, _, data = a.http("POST", "/process.Process/List", b"[", {"Content-Type": "application/json"})
    same((status, json.loads(data)["code"]), (400, "invalid_argument"))
    for bad in (b"", b"\0\0\0\0\5{}", b"\1\0\0\0\2{}", b"\0\0\0\0\2{}x"):
        status, _, data = a.http("POST", "/process.Process/Start", bad, {"Content-Type": "application/connect+json"})
        check(status == 200 and data[0] == 2 and b"invalid_argument" in data, (bad, status, data))
    status, _, _ = a.http("GET", "/process.Process/List")
    same(status, 405)
    status, _, _ = a.http("POST", "/process.Process/Nope", b"{}", {"Content-Type": "application/json"})
    same(status, 404)


def test_snake_case_strings_for_numbers_and_null_are_accepted(a):
    s = a.stream("Start", {"process": {"cmd": "echo", "args": ["x"], "envs": None, "cwd": None}, "tag": None, "stdin": False,
                           "unknown": {"a": 1}, "space": {"keep_bytes": "4096", "deadline_ms": "60000"}})
    same(s.result()[0], b"x\n")
    a.err("not_found", "SendSignal", {"process": {"pid": "4000000"}, "signal": 9})


def test_processes_are_listed_natively_with_the_ended_ones(a):
    s = a.start("echo out; echo er >&2; exit 9", tag="native")
    s.result()
    p = [p for p in a.processes() if p["pid"] == s.the_pid][0]
    same((p["cmd"], p["args"], p["tag"], p["user"], p["cwd"], p["running"], p["exitCode"], p["signal"], p["reason"], p["pty"]),
         ("/bin/bash", ["-c", "echo out; echo er >&2; exit 9"], "native", "user", a.home, False, 9, None, "exited", False))
    same((p["stdout"], p["stderr"]), ({"start": 0, "end": 4}, {"start": 0, "end": 3}))
    check(p["startedAt"].endswith("Z"), p)


def test_native_kill_of_a_group(a):
    s = a.start("sleep 63.5 & setsid sleep 64.5 & echo go; wait")
    pid = s.pid()
    s.next()
    time.sleep(0.1)
    same(a.http("POST", "/space/kill", {"pid": pid, "signal": 9, "group": True})[0], 204)
    same(s.result(pid=False)[2]["reason"], "killed")
    until(lambda: not children_named("63.5"), 2, "the child's death")
    if cgroups(a):
        until(lambda: not children_named("64.5"), 2, "the death of a child with a session of its own")
    same(a.http("POST", "/space/kill", {"pid": pid, "signal": 9})[0], 404)
    same(a.http("POST", "/space/kill", {"pid": 3999998, "signal": 9})[0], 404)
    same(a.http("POST", "/space/kill", {"pid": pid, "signal": 65})[0], 400)
    same(a.http("POST", "/space/kill", {"pid": pid, "sig": 9})[0], 400)


def test_kill_reaches_what_an_ended_command_left_behind(a):
    if not cgroups(a):
        return
    s = a.start("setsid sleep 65.5 >/dev/null 2>&1 &")
    s.result()
    time.sleep(0.1)
    check(children_named("65.5"), "no child")
    same(a.http("POST", "/space/kill", {"pid": s.the_pid, "signal": 9, "group": True})[0], 204)
    until(lambda: not children_named("65.5"), 2, "the child's death")


def test_cgroups_of_ended_commands_are_removed(a):
    if not cgroups(a):
        return
    together = [a.start("sleep", ["0.3"]) for _ in range(5)]
    for s in together:
        list(s.events())
    # One is kept for the next command.
    empty = lambda: [d for d in os.listdir(cgroups(a)) if d.startswith("p") and
                     "populated 0" in open("%s/%s/cgroup.events" % (cgroups(a), d)).read()]
    until(lambda: len(empty()) <= 1, 2, "removal")
    before = empty()
    a.run("true")
    until(lambda: empty() == before, 2, "the same again")


def test_native_stdin_streams_with_back_pressure(a):
    s = a.start("sha256sum", stdin=True)
    pid = s.pid()
    piece = bytes(range(256)) * 256
    n = 160  # 10 MiB
    rss = a.rss_kib()
    status, _, _ = a.http("POST", a.q("/space/stdin", pid=pid, close=1), chunks=(piece for _ in range(n)))
    same(status, 204)
    import hashlib
    same(s.result(pid=False)[0].decode().split()[0], hashlib.sha256(piece * n).hexdigest())
    a.check_grown(rss, 1024)


def test_native_stdin_errors(a):
    same(a.http("POST", "/space/stdin?pid=3999997", b"x")[0], 404)
    same(a.http("POST", "/space/stdin", b"x")[0], 400)
    s = a.start("sleep 30")
    pid = s.pid()
    same(a.http("POST", "/space/stdin?pid=%d" % pid, b"x")[0], 409)
    a.ok("SendSignal", {"process": {"pid": pid}, "signal": 9})
    s.result(pid=False)
    same(a.http("POST", "/space/stdin?pid=%d" % pid, b"x")[0], 409)
    s = a.start("head -c 3 >/dev/null", stdin=True)
    pid = s.pid()
    same(a.http("POST", "/space/stdin?pid=%d" % pid, b"x" * 2000000)[0], 409)


def test_many_short_commands_at_once(a):
    ss = [a.start("echo %d" % i) for i in range(60)]
    for i, s in enumerate(ss):
        same(s.result()[0], b"%d\n" % i)


def test_utf8_cut_between_chunks_is_passed_on_as_bytes(a):
    s = a.start("printf '\\303'; sleep 0.2; printf '\\274\\n'")
    same(s.result()[0], "ü\n".encode())
