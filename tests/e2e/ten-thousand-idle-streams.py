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

socks = []
try:
    def opened(n):
        for _ in range(n):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(20)
            s.connect(SOCKET)
            s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nLast-Event-ID: 999999999\r\n\r\n")
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
finally:
    for s in socks:
        s.close()
wait_for(lambda: len(os.listdir(f"/proc/{d.pid}/fd")) < 500, 20, "spaced closed them all")
api("GET", "/healthz", timeout=5)
