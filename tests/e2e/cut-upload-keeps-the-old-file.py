# An upload cut in the middle leaves the old file as it was and no temporary one.
from t import *

with sandbox() as id:
    put(id, "/home/user/f", b"old content")
    path = f"/v1/sandboxes/{id}/files/home/user/f"
    for head in (f"PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n".encode() + b"n" * 1000000,
                 f"PUT {path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode() + b"10000\r\n" + b"n" * 65536 + b"\r\n8000\r\nabc"):
        c = Connection()
        c.connect()
        c.sock.sendall(head)
        time.sleep(0.3)
        c.sock.shutdown(socket.SHUT_RDWR)
        c.sock.close()
    time.sleep(0.5)
    equal(get(id, "/home/user/f").body, b"old content")
    wait_for(lambda: out(id, "ls -A /home/user | grep -v '^\\.\\(bash\\|profile\\)' | wc -l") == "1", 5, "only that file in its directory")
    a = put(id, "/home/user/f", b"new content").json
    import hashlib
    equal((a["size"], a["sha256"]), (11, hashlib.sha256(b"new content").hexdigest()))
