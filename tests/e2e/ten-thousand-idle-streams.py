# 10,000 clients follow the event log at once, each gets the next event, and each costs spaced less than 1 KiB.
# serial
# limit: 180
from t import *
import resource

N = 10000
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
if hard < N + 100:
    skip(f"this process may open {hard} files only")
resource.setrlimit(resource.RLIMIT_NOFILE, (N + 100, hard))
d = Daemon.main()
limit = int(re.search(r"Max open files\s+(\d+)", open(f"/proc/{d.pid}/limits").read())[1])
if limit < N + 100:
    skip(f"spaced may open {limit} files only")

def anonymous():
    return int(re.search(r"RssAnon:\s+(\d+)", open(f"/proc/{d.pid}/status").read())[1]) << 10

# They follow from now on: a backlog that a client does not read is not what an idle stream costs.
last, page = 0, True
while page:
    page = api("GET", f"/v1/events?after={last}&limit=1000").json["events"]
    last = max([last] + [e["seq"] for e in page])

socks = []
try:
    def opened(n):
        for _ in range(n):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(20)
            s.connect(SOCKET)
            s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nLast-Event-ID: %d\r\n\r\n" % last)
            socks.append(s)
            check(s.recv(4096).startswith(b"HTTP/1.1 200"), "the stream opens")
    opened(200)
    before = anonymous()
    opened(N - 200)
    each = (anonymous() - before) / (N - 200)
    print(f"{each:.0f} bytes a client")
    check(each < 1024, f"{each:.0f} bytes of memory a client")
    start = time.monotonic()
    api("GET", "/healthz", timeout=5)
    check(time.monotonic() - start < 1, "others are served")

    # Something happens: all of them are told, the same words, and quickly.
    start = time.monotonic()
    with sandbox() as id:
        took = time.monotonic() - start
        waiting, words = {s: b"" for s in socks}, set()
        ep = select.epoll()
        by_fd = {s.fileno(): s for s in socks}
        for s in socks:
            s.setblocking(False)
            ep.register(s.fileno(), select.EPOLLIN)
        want, end = id.encode(), time.monotonic() + 40
        while waiting and time.monotonic() < end:
            for fd, _ in ep.poll(1):
                s = by_fd[fd]
                b = s.recv(65536)
                check(b, "spaced closed a stream")
                if s not in waiting:
                    continue
                waiting[s] += b
                m = re.search(rb"id: ?(\d+)\r?\nevent: ?(\S+)\r?\ndata: ?([^\n]*" + want + rb"[^\n]*)\r?\n", waiting[s])
                if m:
                    words.add(m.groups())
                    del waiting[s]
                elif len(waiting[s]) > 1 << 20:
                    fail("a megabyte, and not the event")
        ep.close()
        check(not waiting, f"{len(waiting)} of {N} were not told; one of them has {list(waiting.values())[:1]}")
        equal(len(words), 1, f"all were told the same: {list(words)[:3]}")
        print(f"create with {N} followers: {took:.2f} s; all told {time.monotonic() - start:.2f} s after the call")
finally:
    for s in socks:
        s.close()
wait_for(lambda: len(os.listdir(f"/proc/{d.pid}/fd")) < 500, 20, "spaced closed them all")
api("GET", "/healthz", timeout=5)
