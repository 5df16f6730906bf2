"""/files, filesystem.Filesystem, watches, and the host's tar and file calls."""
import gzip
import hashlib
import http.client
import io
import json
import os
import socket
import stat
import tarfile
import threading
import time

from lib import HOST, Failure, b64, check, same, until


def multipart(parts, boundary="----formdata-undici-0123456789"):
    """PARTS: (field, filename or None, bytes)"""
    out = b""
    for field, name, data in parts:
        out += b"--" + boundary.encode() + b"\r\nContent-Disposition: form-data; name=\"" + field.encode() + b"\""
        if name is not None:
            out += b"; filename=\"" + name.encode().replace(b'"', b"%22") + b"\"\r\nContent-Type: application/octet-stream"
        out += b"\r\n\r\n" + data + b"\r\n"
    return out + b"--" + boundary.encode() + b"--\r\n", {"Content-Type": "multipart/form-data; boundary=" + boundary}


def put(a, path, data, headers=None, **query):
    h = {"Content-Type": "application/octet-stream"}
    h.update(headers or {})
    status, _, body = a.http("POST", a.q("/files", path=path, **query), data, h)
    return status, json.loads(body)


def get(a, path, headers=None, **query):
    return a.http("GET", a.q("/files", path=path, **query), headers=headers)


def owner(path):
    st = os.lstat(path)
    return st.st_uid, st.st_gid, stat.S_IMODE(st.st_mode)


# --- uploads ---

def test_raw_upload_makes_parents_and_sets_owner_and_mode(a):
    status, body = put(a, "new/dir/file.txt", b"content")
    p = a.home + "/new/dir/file.txt"
    same((status, body), (200, [{"path": p, "name": "file.txt", "type": "file"}]))
    same(open(p, "rb").read(), b"content")
    same(owner(p), (1000, 1000, 0o644))
    same(owner(a.home + "/new"), (1000, 1000, 0o755))
    same(owner(a.home + "/new/dir"), (1000, 1000, 0o755))


def test_raw_upload_needs_a_path(a):
    status, _, body = a.http("POST", "/files", b"x", {"Content-Type": "application/octet-stream"})
    same((status, json.loads(body)), (400, {"code": 400, "message": "path query parameter is required for raw body upload"}))


def test_overwriting_keeps_the_mode_and_changes_the_owner(a):
    p = a.home + "/mode"
    open(p, "w").write("long old content")
    os.chmod(p, 0o751)
    os.chown(p, 0, 0)
    same(put(a, p, b"new")[0], 200)
    same((open(p).read(), owner(p)), ("new", (1000, 1000, 0o751)))


def test_upload_writes_through_a_symlink(a):
    open(a.home + "/target", "w").write("old")
    if not os.path.islink(a.home + "/alias"):
        os.symlink("target", a.home + "/alias")
    same(put(a, "alias", b"new")[0], 200)
    check(os.path.islink(a.home + "/alias") and open(a.home + "/target").read() == "new")


def test_chunked_upload_and_empty_file(a):
    status, _, _ = a.http("POST", a.q("/files", path="chunked"), chunks=[b"a" * 100000, b"b", b"c" * 7],
                          headers={"Content-Type": "application/octet-stream"})
    same((status, open(a.home + "/chunked", "rb").read()), (200, b"a" * 100000 + b"b" + b"c" * 7))
    same(put(a, "empty", b"")[0], 200)
    same(os.path.getsize(a.home + "/empty"), 0)
    status, h, body = get(a, "empty")
    same((status, h["content-length"], body), (200, "0", b""))


def test_multipart_keeps_directories_in_file_names(a):
    body, h = multipart([("file", "multi/ä/one.txt", b"1"), ("other", "multi/skipped", b"x"), ("note", None, b"text"),
                         ("file", 'multi/quo"te?#.txt', b"2\r\n--not-the-boundary\r\n")])
    status, _, data = a.http("POST", "/files", body, h)
    same(status, 200, data)
    same([(e["path"], e["name"]) for e in json.loads(data)],
         [(a.home + "/multi/ä/one.txt", "one.txt"), (a.home + '/multi/quo"te?#.txt', 'quo"te?#.txt')])
    same(open(a.home + "/multi/ä/one.txt").read(), "1")
    same(open(a.home + '/multi/quo"te?#.txt', "rb").read(), b"2\r\n--not-the-boundary\r\n")
    check(not os.path.exists(a.home + "/multi/skipped"), "a part of another name was written")
    same(owner(a.home + "/multi/ä/one.txt"), (1000, 1000, 0o644))


def test_multipart_path_query_wins_over_file_name(a):
    body, h = multipart([("file", "ignored.txt", b"data")])
    status, _, data = a.http("POST", a.q("/files", path="mp/explicit"), body, h)
    same((status, json.loads(data)[0]["path"]), (200, a.home + "/mp/explicit"))
    check(not os.path.exists(a.home + "/ignored.txt"))


def test_multipart_in_single_bytes(a):
    body, h = multipart([("file", "slow.txt", b"\r\n\r\n--\r\n-" * 20)])
    status, _, _ = a.http("POST", "/files", chunks=[bytes([c]) for c in body], headers=h)
    same((status, open(a.home + "/slow.txt", "rb").read()), (200, b"\r\n\r\n--\r\n-" * 20))


def test_multipart_errors(a):
    body, h = multipart([("file", "same", b"1"), ("file", "./same", b"2")])
    same(a.http("POST", "/files", body, h)[0], 400)
    body, h = multipart([("file", "cut.txt", b"1")])
    same(a.http("POST", "/files", body[:-20], h)[0], 400)
    same(a.http("POST", "/files", body, {"Content-Type": "multipart/form-data"})[0], 400)
    same(a.http("POST", "/files", body, {"Content-Type": "multipart/form-data; boundary=other"})[0], 400)
    same(a.http("POST", "/files", b"x", {"Content-Type": "text/plain"})[0], 400)
    body, h = multipart([("file", None, b"1")])
    same(a.http("POST", "/files", body, h)[0], 400)
    body, h = multipart([("file", "~other/x", b"1")])
    same(a.http("POST", "/files", body, h)[0], 400)


def test_upload_with_no_files_answers_an_empty_list(a):
    body, h = multipart([])
    same(a.http("POST", "/files", body, h)[2], b"[]")


def test_gzip_uploads(a):
    data = os.urandom(1000) * 500
    same(put(a, "gz", gzip.compress(data), {"Content-Encoding": "gzip"})[0], 200)
    same(open(a.home + "/gz", "rb").read(), data)
    same(put(a, "gz2", gzip.compress(b"one") + gzip.compress(b"two"), {"Content-Encoding": "gzip"})[0], 200)
    same(open(a.home + "/gz2", "rb").read(), b"onetwo")
    body, h = multipart([("file", "gz3", data)])
    h["Content-Encoding"] = "gzip"
    same(a.http("POST", "/files", gzip.compress(body), h)[0], 200)
    same(open(a.home + "/gz3", "rb").read(), data)
    same(put(a, "gz4", b"not gzip at all", {"Content-Encoding": "gzip"})[0], 400)
    same(put(a, "gz5", gzip.compress(data)[:-200], {"Content-Encoding": "gzip"})[0], 400)
    same(put(a, "gz6", b"x", {"Content-Encoding": "br"})[0], 400)


def test_upload_over_a_directory_is_400(a):
    os.makedirs(a.home + "/adir", exist_ok=True)
    status, body = put(a, "adir", b"x")
    same((status, body["message"]), (400, "path is a directory: %s/adir" % a.home))


def test_upload_to_a_full_disk_is_507(a):
    status, body = put(a, a.tiny + "/big", b"x" * 2000000)
    same((status, body["code"]), (507, 507))
    for i in range(100):  # inodes
        status, body = put(a, a.tiny + "/many/%d" % i, b"")
        if status != 200:
            break
    same(status, 507)
    a.ok("Remove", {"path": a.tiny + "/big"})
    a.ok("Remove", {"path": a.tiny + "/many"})


def test_upload_user_by_query(a):
    same(put(a, a.home + "/root-owned", b"x", username="root")[0], 200)
    same(owner(a.home + "/root-owned"), (0, 0, 0o644))
    status, body = put(a, "x", b"x", username="ghost")
    check(status == 401 and body["message"].startswith("error looking up user 'ghost'"), body)


def test_broken_upload_leaves_what_came(a):
    s = socket.create_connection((HOST, a.port))
    s.sendall(b"POST /files?path=broken HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\nContent-Length: 1000\r\n\r\n" + b"p" * 500)
    until(lambda: os.path.exists(a.home + "/broken"), 3, "the file")
    s.close()
    until(lambda: os.path.getsize(a.home + "/broken") == 500, 3, "its first half")


def test_metadata_becomes_xattrs_and_is_replaced(a):
    status, body = put(a, "meta", b"x", {"X-Metadata-Purpose": "test one", "X-Metadata-k2": "v2"})
    same((status, body[0].get("metadata")), (200, {"purpose": "test one", "k2": "v2"}))
    try:
        os.setxattr(a.home + "/xprobe", "user.e2b.x", b"1") if open(a.home + "/xprobe", "w").close() is None else None
    except OSError:
        return  # no extended attributes here: ignored in silence, as shown
    same(os.getxattr(a.home + "/meta", "user.e2b.purpose"), b"test one")
    same(a.ok("Stat", {"path": "meta"})["entry"]["metadata"], {"purpose": "test one", "k2": "v2"})
    same(put(a, "meta", b"x", {"X-Metadata-Other": "z"})[0], 200)
    same(a.ok("Stat", {"path": "meta"})["entry"]["metadata"], {"other": "z"})
    same(put(a, "meta", b"x")[0], 200)
    check("metadata" not in a.ok("Stat", {"path": "meta"})["entry"])


def test_metadata_limits(a):
    same(put(a, "m", b"x", {"X-Metadata-" + "k" * 247: "v"})[0], 400)
    same(put(a, "m", b"x", {"X-Metadata-k": "v" * 4096})[0], 400)
    same(put(a, "m", b"x", {"X-Metadata-k": "ä".encode().decode("latin-1")})[0], 400)
    same(put(a, "m", b"x", {"X-Metadata-k": "v" * 4095})[0], 200)


# --- downloads ---

def test_download_headers_and_bytes(a):
    p = a.home + "/down.txt"
    open(p, "w").write("0123456789")
    os.utime(p, (1700000000, 1700000000))
    status, h, body = get(a, "down.txt", {"Accept-Encoding": "gzip, deflate"})
    same((status, body, h["content-length"], h["accept-ranges"], h["vary"]), (200, b"0123456789", "10", "bytes", "Accept-Encoding"))
    same(h["last-modified"], "Tue, 14 Nov 2023 22:13:20 GMT")
    check(h["content-disposition"].startswith("inline; filename") and h["content-type"].startswith("text/plain"), h)


def test_download_errors(a):
    status, _, body = get(a, "nope/x")
    same((status, json.loads(body)), (404, {"code": 404, "message": "path '%s/nope/x' does not exist" % a.home}))
    status, _, body = get(a, "/etc")
    same((status, json.loads(body)["message"]), (400, "path '/etc' is a directory"))
    same(get(a, "~ghost")[0], 400)
    same(a.http("GET", "/files?path=%zz")[0], 400)
    same(a.http("GET", "/files?path=a%00b")[0], 400)
    same(get(a, "x" * 5000)[0], 400)
    os.mkfifo(a.home + "/fifo") if not os.path.exists(a.home + "/fifo") else None
    same(get(a, "fifo")[0], 400)
    for path in ("/dev/zero", "/dev/null", "/dev/tty"):  # would never end, or has nothing behind it
        status, _, body = get(a, path)
        same((status, json.loads(body)["message"]), (400, "path '%s' is not a regular file" % path))
    for path in ("/proc/self/mem", "/proc/self/attr/current", "/sys/kernel/nothing"):
        check(get(a, path)[0] < 500, path)
    status, _, body = get(a, "/proc/self/mem")
    same((status, json.loads(body)["message"]), (400, "error reading file: the kernel does not let it be read"))


def test_ranges(a):
    open(a.home + "/r", "w").write("0123456789")
    for value, status, body, cr in (("bytes=2-4", 206, b"234", "bytes 2-4/10"), ("bytes=7-", 206, b"789", "bytes 7-9/10"),
                                    ("bytes=-3", 206, b"789", "bytes 7-9/10"), ("bytes=0-99", 206, b"0123456789", "bytes 0-9/10"),
                                    ("bytes=-99", 206, b"0123456789", "bytes 0-9/10"), ("bytes=1-2,4-5", 200, b"0123456789", None),
                                    ("lines=1-2", 200, b"0123456789", None), ("bytes=5-2", 200, b"0123456789", None)):
        s, h, b = get(a, "r", {"Range": value})
        same((s, b, h.get("content-range")), (status, body, cr), value)
    s, h, _ = get(a, "r", {"Range": "bytes=10-"})
    same((s, h["content-range"]), (416, "bytes */10"))
    same(get(a, "r", {"Range": "bytes=1-2", "Accept-Encoding": "identity;q=0, gzip"})[0], 406)


def test_conditional_requests(a):
    p = a.home + "/cond"
    open(p, "w").write("0123456789")
    os.utime(p, (1700000000, 1700000000))
    same(get(a, "cond", {"If-Modified-Since": "Tue, 14 Nov 2023 22:13:20 GMT"})[0], 304)
    same(get(a, "cond", {"If-Modified-Since": "Tue, 14 Nov 2023 22:13:19 GMT"})[0], 200)
    same(get(a, "cond", {"If-Unmodified-Since": "Tue, 14 Nov 2023 22:13:19 GMT"})[0], 412)
    same(get(a, "cond", {"Range": "bytes=0-1", "If-Range": "Tue, 14 Nov 2023 22:13:20 GMT"})[0], 206)
    same(get(a, "cond", {"Range": "bytes=0-1", "If-Range": "Tue, 14 Nov 2023 22:13:19 GMT"})[0], 200)


def test_kernel_files_are_read_to_their_end(a):
    status, h, body = get(a, "/proc/version")
    same((status, body), (200, open("/proc/version", "rb").read()))
    check("content-length" not in h)
    same(get(a, "/sys/kernel/mm/transparent_hugepage/enabled")[0], 200)


def test_names_with_everything_in_them(a):
    for name in ("ü ñ 日本.txt", "a?b#c&d=e%41+f", "-rf", "new\nline", "sp ace", "'q'"):
        same(put(a, a.home + "/" + name, name.encode())[0], 200, name)
        same(get(a, a.home + "/" + name)[2], name.encode())
        same(a.ok("Stat", {"path": a.home + "/" + name})["entry"]["name"], name)


def test_64_mib_each_way_in_flat_memory(a):
    piece, n = os.urandom(1 << 16), 1024
    want = hashlib.sha256(piece * 0)
    for _ in range(n):
        want.update(piece)
    put(a, "warm", piece)
    get(a, "warm")
    rss = a.rss_kib()
    peak = [0]
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            peak[0] = max(peak[0], a.rss_kib())
            time.sleep(0.01)

    t = threading.Thread(target=watch)
    t.start()
    try:
        status, _, _ = a.http("POST", a.q("/files", path="large"), chunks=(piece for _ in range(n)),
                              headers={"Content-Type": "application/octet-stream"}, timeout=120)
        same(status, 200)
        c = http.client.HTTPConnection(HOST, a.port, timeout=120)
        c.request("GET", a.q("/files", path="large"))
        r = c.getresponse()
        got = hashlib.sha256()
        while True:
            d = r.read(1 << 16)
            if not d:
                break
            got.update(d)
    finally:
        stop.set()
        t.join()
    same(got.hexdigest(), want.hexdigest())
    a.check_grown(rss, 1024, peak[0])
    os.unlink(a.home + "/large")


def test_slow_download_does_not_hold_up_others(a):
    open(a.home + "/slowdown", "wb").write(b"z" * (4 << 20))
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.connect((HOST, a.port))
    s.sendall(b"GET /files?path=slowdown HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.2)
    t = time.time()
    same(a.run("echo quick")[0], b"quick\n")
    check(time.time() - t < 2, "held up")
    s.close()


def test_compose_joins_files(a):
    put(a, "c1", b"one ")
    put(a, "c2", b"two")
    status, _, body = a.http("POST", "/files/compose", {"source_paths": ["c1", "c2"], "destination": "c/joined", "username": "user"})
    same((status, json.loads(body)["name"], open(a.home + "/c/joined").read()), (200, "joined", "one two"))
    same(a.http("POST", "/files/compose", {"source_paths": ["missing"], "destination": "c/x"})[0], 404)
    same(a.http("POST", "/files/compose", {"destination": "c/x"})[0], 400)


# --- filesystem.Filesystem ---

def test_stat_of_a_file(a):
    p = a.home + "/st"
    open(p, "w").write("12345")
    os.chmod(p, 0o640)
    os.chown(p, 1000, 2000)
    os.utime(p, (1700000000, 1700000000))
    e = a.ok("Stat", {"path": "st"})["entry"]
    e["size"] = int(e["size"])
    t = e.pop("modifiedTime")
    check(t.startswith("2023-11-14T22:13:20"), t)
    same(e, {"name": "st", "type": "FILE_TYPE_FILE", "path": p, "size": 5, "mode": 0o640, "permissions": "-rw-r-----", "owner": "user",
             "group": "team"})
    os.chown(p, 54321, 54322)
    e = a.ok("Stat", {"path": "st"})["entry"]
    same((e["owner"], e["group"]), ("54321", "54322"))


def test_stat_of_links_and_odd_files(a):
    d = a.home + "/odd"
    os.makedirs(d, exist_ok=True)
    open(d + "/f", "w").write("xyz")
    for name, to in (("l", "f"), ("dl", "."), ("dangling", "nowhere")):
        os.path.lexists(d + "/" + name) or os.symlink(to, d + "/" + name)
    e = a.ok("Stat", {"path": d + "/l"})["entry"]
    same((e["type"], e["symlinkTarget"], e["permissions"], int(e["size"]), e["mode"]), ("FILE_TYPE_FILE", d + "/f", "Lrwxrwxrwx", 1, 0o644))
    same(a.ok("Stat", {"path": d + "/dl"})["entry"]["type"], "FILE_TYPE_DIRECTORY")
    e = a.ok("Stat", {"path": d + "/dangling"})["entry"]
    same((e["type"], e["symlinkTarget"]), ("FILE_TYPE_UNSPECIFIED", d + "/dangling"))
    os.chmod(d, 0o1777)
    same(a.ok("Stat", {"path": d})["entry"]["permissions"], "dtrwxrwxrwx")
    same(a.ok("Stat", {"path": "/dev/null"})["entry"]["permissions"], "Dcrw-rw-rw-")
    same(a.ok("Stat", {"path": "/"})["entry"]["name"], "/")


def test_stat_missing(a):
    check("file not found" in a.err("not_found", "Stat", {"path": "/no/such"}))
    a.err("invalid_argument", "Stat", {"path": "~ghost/x"})
    a.err("invalid_argument", "Stat", {"path": 5})


def test_path_rules(a):
    same(a.ok("Stat", {"path": ""})["entry"]["path"], a.home)
    same(a.ok("Stat", {"path": "~"})["entry"]["path"], a.home)
    same(a.ok("Stat", {})["entry"]["path"], a.home)
    os.makedirs(a.home + "/p/q", exist_ok=True)
    same(a.ok("Stat", {"path": "~/p/./q/../q"})["entry"]["path"], a.home + "/p/q")
    same(a.ok("Stat", {"path": "p//q/"})["entry"]["path"], a.home + "/p/q")
    same(a.ok("Stat", {"path": a.home + "/p/../p"})["entry"]["path"], a.home + "/p/../p")
    same(a.ok("Stat", {"path": "~"}, user="root")["entry"]["path"], a.dir + "/roothome")
    from test_process import next_generation
    a.init(generation=next_generation(), defaultWorkdir=a.home + "/p")
    same(a.ok("Stat", {"path": ""})["entry"]["path"], a.home + "/p")
    same(a.ok("Stat", {"path": "p"})["entry"]["path"], a.home + "/p")
    same(a.run("pwd")[0].decode().strip(), a.home + "/p")
    a.init(generation=next_generation(), defaultWorkdir="")


def test_make_dir(a):
    e = a.ok("MakeDir", {"path": "mk/a/b"})["entry"]
    same((e["path"], e["type"], owner(a.home + "/mk/a")), (a.home + "/mk/a/b", "FILE_TYPE_DIRECTORY", (1000, 1000, 0o755)))
    a.err("already_exists", "MakeDir", {"path": "mk/a/b"})
    open(a.home + "/mk/file", "w").close()
    a.err("invalid_argument", "MakeDir", {"path": "mk/file"})
    a.err("invalid_argument", "MakeDir", {"path": "mk/file/below"})


def test_move(a):
    put(a, "mv/src", b"1")
    put(a, "mv/old", b"2")
    same(a.ok("Move", {"source": "mv/src", "destination": "mv/new/dir/dst"})["entry"]["path"], a.home + "/mv/new/dir/dst")
    a.ok("Move", {"source": "mv/new/dir/dst", "destination": "mv/old"})
    same(open(a.home + "/mv/old").read(), "1")
    a.err("not_found", "Move", {"source": "mv/nope", "destination": "mv/x"})
    check("into itself" in a.err("invalid_argument", "Move", {"source": "mv", "destination": "mv/new/mv"}))


def test_list_dir(a):
    for p in ("ls/b/inner", "ls/a", "ls/c/d/e"):
        put(a, p, b"")
    names = lambda r: [e["path"][len(a.home) + 4:] for e in r["entries"]]
    same(names(a.ok("ListDir", {"path": "ls"})), ["a", "b", "c"])
    same(names(a.ok("ListDir", {"path": "ls", "depth": 0})), ["a", "b", "c"])
    same(names(a.ok("ListDir", {"path": "ls", "depth": 2})), ["a", "b", "b/inner", "c", "c/d"])
    same(names(a.ok("ListDir", {"path": "ls", "depth": 9})), ["a", "b", "b/inner", "c", "c/d", "c/d/e"])
    a.err("not_found", "ListDir", {"path": "nope"})
    a.err("invalid_argument", "ListDir", {"path": "ls/a"})
    os.path.lexists(a.home + "/lsl") or os.symlink("ls", a.home + "/lsl")
    same([e["path"] for e in a.ok("ListDir", {"path": "lsl"})["entries"]], [a.home + "/lsl/" + n for n in "abc"])
    os.path.lexists(a.home + "/ls/b/loop") or os.symlink("..", a.home + "/ls/b/loop")
    same(names(a.ok("ListDir", {"path": "ls", "depth": 3})), ["a", "b", "b/inner", "b/loop", "c", "c/d", "c/d/e"])


def test_list_of_3000_entries(a):
    os.makedirs(a.home + "/lots", exist_ok=True)
    for i in range(3000):
        open(a.home + "/lots/%05d" % i, "w").close()
    same(len(a.ok("ListDir", {"path": "lots"})["entries"]), 3000)
    a.ok("Remove", {"path": "lots"})
    check(not os.path.exists(a.home + "/lots"))


def test_remove(a):
    put(a, "rm/a/b", b"")
    open(a.dir + "/outside", "w").close()
    os.symlink(a.dir, a.home + "/rm/a/link")
    same(a.ok("Remove", {"path": "rm"}), {})
    check(not os.path.exists(a.home + "/rm") and os.path.exists(a.dir + "/outside"), "left the tree, or stayed in it")
    same(a.ok("Remove", {"path": "rm"}), {})
    a.err("invalid_argument", "Remove", {"path": "/"})
    a.err("invalid_argument", "Remove", {"path": "/proc/.."})
    check("mount point" in a.err("aborted", "Remove", {"path": a.tiny}))


def test_links_of_others_in_sticky_directories_are_forbidden(a):
    if open("/proc/sys/fs/protected_symlinks").read() != "1\n":
        return
    d = a.dir + "/sticky"
    os.mkdir(d)
    os.chmod(d, 0o1777)
    os.mkdir(a.dir + "/target")
    os.symlink(a.dir + "/target", d + "/link")
    os.lchown(d + "/link", 1001, 1001)
    a.err("permission_denied", "ListDir", {"path": d + "/link"})
    same(put(a, d + "/link/file", b"x")[0], 403)
    same(a.http("PUT", a.q("/space/file", path=d + "/link/file"), b"x")[0], 403)


# --- watches ---

def collect(stream, want, seconds=5):
    """Events until all of WANT, (type, name), have come; returns them all."""
    got = []
    end = time.time() + seconds
    while not set(want) <= set(got):
        if time.time() > end:
            raise Failure("missing %r of %r" % (set(want) - set(got), got))
        try:
            m = stream.next(timeout=max(0.05, end - time.time()))
        except TimeoutError:
            continue
        check(m is not None, "the watch ended: %r" % stream.last)
        if "filesystem" in m:
            got.append((m["filesystem"]["type"].replace("EVENT_TYPE_", ""), m["filesystem"]["name"]))
    return got


def watch(a, path, **kw):
    s = a.stream("WatchDir", dict({"path": path}, **kw))
    same(s.next(), {"start": {}})
    return s


def test_watch_tells_each_kind_of_change(a):
    d = a.home + "/w1"
    os.makedirs(d)
    s = watch(a, "w1")
    with open(d + "/f", "w") as f:
        f.write("x")
    collect(s, [("CREATE", "f"), ("WRITE", "f")])
    os.chmod(d + "/f", 0o600)
    collect(s, [("CHMOD", "f")])
    os.rename(d + "/f", d + "/g")
    collect(s, [("RENAME", "f"), ("CREATE", "g")])
    os.unlink(d + "/g")
    collect(s, [("REMOVE", "g")])
    os.makedirs(d + "/sub/deep")
    got = collect(s, [("CREATE", "sub")])
    check(("CREATE", "sub/deep") not in got, "not asked to recurse")
    s.close()


def test_recursive_watch_misses_nothing_in_new_directories(a):
    d = a.home + "/w2"
    os.makedirs(d + "/there/below")
    s = watch(a, "w2", recursive=True)
    open(d + "/there/below/f", "w").close()
    collect(s, [("CREATE", "there/below/f")])
    want = []
    for i in range(40):  # each races the watch of the directory it is in
        os.makedirs(d + "/n%d/a/b" % i)
        with open(d + "/n%d/a/b/file" % i, "w") as f:
            f.write("data")
        want += [("CREATE", "n%d" % i), ("CREATE", "n%d/a" % i), ("CREATE", "n%d/a/b" % i), ("CREATE", "n%d/a/b/file" % i),
                 ("WRITE", "n%d/a/b/file" % i)]
    got = collect(s, want)
    creates = [e for e in got if e[0] == "CREATE"]
    same(len(creates), len(set(creates)), "each created once")
    open(d + "/n0/a/b/later", "w").close()
    collect(s, [("CREATE", "n0/a/b/later")])
    os.rename(d + "/n0", d + "/m0")
    collect(s, [("RENAME", "n0"), ("CREATE", "m0")])
    open(d + "/m0/a/b/after", "w").close()
    collect(s, [("CREATE", "m0/a/b/after")])
    s.close()


def test_watch_with_entries(a):
    os.makedirs(a.home + "/w3")
    s = watch(a, "w3", includeEntry=True)
    put(a, "w3/x", b"hello")
    m = s.next()["filesystem"]
    same((m["type"], m["entry"]["path"], m["entry"]["type"]), ("EVENT_TYPE_CREATE", a.home + "/w3/x", "FILE_TYPE_FILE"))
    s.close()


def test_watch_errors_and_keepalive_and_timeout(a):
    same(a.stream("WatchDir", {"path": "no-such"}).error()["code"], "not_found")
    put(a, "wf", b"")
    same(a.stream("WatchDir", {"path": "wf"}).error()["code"], "invalid_argument")
    os.makedirs(a.home + "/w4")
    s = a.stream("WatchDir", {"path": "w4"}, headers={"Keepalive-Ping-Interval": "1", "Connect-Timeout-Ms": "1600"})
    same((s.next(), s.next()), ({"start": {}}, {"keepalive": {}}))
    same(s.error()["code"], "deadline_exceeded")


def test_polled_watcher(a):
    os.makedirs(a.home + "/w5")
    w = a.ok("CreateWatcher", {"path": "w5", "recursive": True})["watcherId"]
    os.makedirs(a.home + "/w5/s")
    open(a.home + "/w5/s/f", "w").close()
    got = []
    until(lambda: got.extend(a.ok("GetWatcherEvents", {"watcherId": w}).get("events", [])) or
          {"name": "s/f", "type": "EVENT_TYPE_CREATE"} in got, 3, "the event")
    same(a.ok("GetWatcherEvents", {"watcherId": w})["events"], [])
    same(a.ok("RemoveWatcher", {"watcherId": w}), {})
    a.err("not_found", "RemoveWatcher", {"watcherId": w})
    a.err("not_found", "GetWatcherEvents", {"watcherId": w})
    a.err("not_found", "CreateWatcher", {"path": "nope"})


def test_lost_events_are_told(a):
    os.makedirs(a.home + "/w6")
    w = a.ok("CreateWatcher", {"path": "w6"})["watcherId"]
    for i in range(9000):
        p = a.home + "/w6/%d" % (i % 3)
        open(p, "w").close()
        os.unlink(p)
    time.sleep(0.3)
    a.err("data_loss", "GetWatcherEvents", {"watcherId": w})
    a.ok("RemoveWatcher", {"watcherId": w})


# --- the host's calls ---

def test_put_file_is_atomic_and_tells_its_digest(a):
    p = a.home + "/atomic/f"
    status, _, body = a.http("PUT", a.q("/space/file", path="atomic/f", mode="0750"), chunks=[b"abc", b"def"])
    same((status, json.loads(body)), (201, {"path": p, "size": 6, "sha256": hashlib.sha256(b"abcdef").hexdigest()}))
    same((open(p).read(), owner(p)), ("abcdef", (1000, 1000, 0o750)))
    a.http("PUT", a.q("/space/file", path=p, user="root"), b"2")
    same((open(p).read(), owner(p)), ("2", (0, 0, 0o750)))
    same(os.listdir(a.home + "/atomic"), ["f"])


def test_put_file_cut_in_the_middle_leaves_the_old_one(a):
    os.makedirs(a.home + "/cut", exist_ok=True)
    open(a.home + "/cut/f", "w").write("old")
    for head in (b"Content-Length: 100000\r\n\r\n" + b"x" * 70000, b"Transfer-Encoding: chunked\r\n\r\n11170\r\n" + b"x" * 70000):
        s = socket.create_connection((HOST, a.port))
        s.sendall(b"PUT /space/file?path=cut/f HTTP/1.1\r\nHost: x\r\n" + head)
        until(lambda: len(os.listdir(a.home + "/cut")) == 2, 3, "the temporary file")
        s.close()
        until(lambda: os.listdir(a.home + "/cut") == ["f"], 3, "its removal")
    same(open(a.home + "/cut/f").read(), "old")


def test_put_file_errors(a):
    os.makedirs(a.home + "/adir", exist_ok=True)
    same(a.http("PUT", a.q("/space/file", path="adir"), b"x")[0], 400)
    same(a.http("PUT", a.q("/space/file", path="adir/"), b"x")[0], 400)
    same(a.http("PUT", a.q("/space/file", path="f", mode="999"), b"x")[0], 400)
    same(a.http("PUT", a.q("/space/file", path="f", user="ghost"), b"x")[0], 401)
    same(a.http("PUT", a.q("/space/file", path=a.tiny + "/big"), b"x" * 1000000)[0], 507)
    for path in ("/proc/sys/nothing", "/proc/sys/kernel/hostname", "/proc/nothing", "/sys/kernel/nothing"):
        status, _, body = a.http("PUT", a.q("/space/file", path=path), b"x")
        check(status in (400, 403) and path in json.loads(body)["message"], (path, status, body))
        check(put(a, path + "x", b"x")[0] in (400, 403), path)
    same(os.listdir(a.tiny), [])


def test_put_file_replaces_nothing_but_files(a):
    d = a.home + "/replaced"
    os.makedirs(d)
    os.mkfifo(d + "/fifo")
    os.mknod(d + "/null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    for name, target in (("loop", "loop"), ("to-fifo", "fifo"), ("to-null", "null"), ("to-dir", ".")):
        os.symlink(target, d + "/" + name)
    open(d + "/file", "w").close()
    os.symlink("file", d + "/to-file")
    before = {n: os.lstat(d + "/" + n).st_ino for n in os.listdir(d) if n != "file"}
    for name in before:
        status, _, body = a.http("PUT", a.q("/space/file", path=d + "/" + name), b"new")
        same(status, 201 if name == "to-file" else 400, name)
        check(status == 201 or d in json.loads(body)["message"], body)
    same({n: os.lstat(d + "/" + n).st_ino for n in os.listdir(d) if n != "file"}, before)
    same(open(d + "/file").read(), "new")
    for name in ("fifo", "null"):
        body = {"source_paths": [d + "/" + name], "destination": d + "/joined"}
        same(a.http("POST", "/files/compose", body)[0], 400, name)


def make_tree(root):
    os.makedirs(root + "/sub/empty")
    for i in range(2000):
        d = root + "/d%d" % (i % 20)
        os.makedirs(d, exist_ok=True)
        with open(d + "/f%d" % i, "wb") as f:
            f.write(b"%d\n" % i * (i % 50))
        os.chmod(d + "/f%d" % i, [0o644, 0o755, 0o600, 0o4711][i % 4])
        os.utime(d + "/f%d" % i, (1600000000 + i, 1600000000 + i))
    os.symlink("d0/f0", root + "/link")
    os.symlink("x" * 150, root + "/longlink")
    os.link(root + "/d1/f1", root + "/hard")
    long = root + "/" + "/".join(["long" * 20] * 4)
    os.makedirs(long)
    open(long + "/" + "n" * 120, "w").write("long")
    os.mkfifo(root + "/pipe")
    with open(root + "/ünïcode \n", "w") as f:
        f.write("u")
    os.chmod(root + "/sub/empty", 0o711)
    os.utime(root + "/sub/empty", (1500000000, 1500000000))
    os.chmod(root + "/sub", 0o500)


def picture(root):
    out = {}
    for d, dirs, files in os.walk(root):
        for n in dirs + files:
            p = os.path.join(d, n)
            st = os.lstat(p)
            kind = stat.S_IFMT(st.st_mode)
            body = os.readlink(p) if kind == stat.S_IFLNK else open(p, "rb").read() if kind == stat.S_IFREG else None
            when = int(st.st_mtime) if kind in (stat.S_IFREG, stat.S_IFDIR) and d != root else None
            out[p[len(root):]] = (kind, stat.S_IMODE(st.st_mode), when if kind == stat.S_IFREG else None, body, st.st_nlink if kind == stat.S_IFREG else 0)
    return out


def test_tar_round_trip_of_2000_files_with_modes_links_and_times(a):
    src = a.dir + "/tree"
    make_tree(src)
    status, h, data = a.http("GET", a.q("/space/tar", path=src), timeout=60)
    same((status, h["content-type"]), (200, "application/x-tar"))
    t = tarfile.open(fileobj=io.BytesIO(data))
    names = t.getnames()
    check("tree" in names and "tree/d0/f0" in names and all(n == "tree" or n.startswith("tree/") for n in names), names[:3])
    same(sum(1 for m in t.getmembers() if m.islnk()), 1)
    status, _, body = a.http("PUT", a.q("/space/tar", path="untar/into"), data, timeout=60)
    same((status, json.loads(body)["files"]), (201, len(names)), body)
    same(picture(a.home + "/untar/into/tree"), picture(src))
    same(int(os.stat(a.home + "/untar/into/tree/sub/empty").st_mtime), 1500000000)
    same(owner(a.home + "/untar/into/tree/d1/f1")[:2], (1000, 1000))
    ino = lambda p: os.stat(a.home + "/untar/into/tree/" + p).st_ino
    same(ino("hard"), ino("d1/f1"))


def test_tar_of_other_makers(a):
    for fmt in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        b = io.BytesIO()
        t = tarfile.open(fileobj=b, mode="w", format=fmt)
        n = "dir/" + ("y" * 90 + "/") * 2 + "file" if fmt != tarfile.USTAR_FORMAT else "dir/" + "y" * 90 + "/file"
        m = tarfile.TarInfo(n)
        m.size, m.mtime, m.mode = 5, 1234567890.25 if fmt == tarfile.PAX_FORMAT else 1234567890, 0o640
        t.addfile(m, io.BytesIO(b"hello"))
        t.close()
        status, _, body = a.http("PUT", a.q("/space/tar", path="others%d" % fmt), b.getvalue())
        same(status, 201, body)
        p = a.home + "/others%d/" % fmt + n
        same((open(p).read(), owner(p)[2]), ("hello", 0o640))
        same(os.stat(p).st_mtime, m.mtime)


def tar_of(*members):
    b = io.BytesIO()
    t = tarfile.open(fileobj=b, mode="w")
    for name, kind, what in members:
        m = tarfile.TarInfo(name)
        m.type = kind
        if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            m.linkname = what
            t.addfile(m)
        else:
            m.size = len(what)
            t.addfile(m, io.BytesIO(what))
    t.close()
    return b.getvalue()


def test_tar_never_leaves_its_directory(a):
    out = a.dir + "/escape-target"
    os.makedirs(out, exist_ok=True)
    open(out + "/secret", "w").write("s")
    evil = {
        "dotdot": [("../evil", tarfile.REGTYPE, b"x")],
        "dotdot in the middle": [("a/../../evil", tarfile.REGTYPE, b"x")],
        "link to a directory": [("l", tarfile.SYMTYPE, out), ("l/evil", tarfile.REGTYPE, b"x")],
        "relative link": [("l", tarfile.SYMTYPE, "../../escape-target"), ("l/evil", tarfile.REGTYPE, b"x")],
        "link by link": [("a", tarfile.SYMTYPE, ".."), ("b", tarfile.SYMTYPE, "a/.."), ("b/escape-target/evil", tarfile.REGTYPE, b"x")],
        "hard link": [("h", tarfile.LNKTYPE, "../../escape-target/secret"), ("h", tarfile.REGTYPE, b"x")],
        "hard link through a link": [("l", tarfile.SYMTYPE, out), ("h", tarfile.LNKTYPE, "l/secret")],
    }
    for i, (what, members) in enumerate(evil.items()):
        status, _, body = a.http("PUT", a.q("/space/tar", path="esc%d" % i), tar_of(*members))
        same(status, 400, what + " " + body.decode())
        same((os.listdir(out), open(out + "/secret").read()), (["secret"], "s"), what)
    # An absolute name is taken as one below the directory; a file put where a link is replaces the link.
    same(a.http("PUT", a.q("/space/tar", path="esc"), tar_of((out + "/abs", tarfile.REGTYPE, b"x")))[0], 201)
    check(os.path.exists(a.home + "/esc" + out + "/abs") and not os.path.exists(out + "/abs"))
    same(a.http("PUT", a.q("/space/tar", path="esc"), tar_of(("s", tarfile.SYMTYPE, out + "/secret"), ("s", tarfile.REGTYPE, b"new")))[0], 201)
    same((open(out + "/secret").read(), open(a.home + "/esc/s").read()), ("s", "new"))
    # A link within the directory may be used.
    same(a.http("PUT", a.q("/space/tar", path="esc"), tar_of(("real/x", tarfile.REGTYPE, b"1"), ("in", tarfile.SYMTYPE, "real"), ("in/y", tarfile.REGTYPE, b"2")))[0], 201)
    same(open(a.home + "/esc/real/y").read(), "2")


def test_tar_errors(a):
    same(a.http("GET", a.q("/space/tar", path="/no/such"))[0], 404)
    same(a.http("PUT", a.q("/space/tar", path="bad"), b"this is no tar" * 100)[0], 400)
    good = tar_of(("f", tarfile.REGTYPE, b"x" * 5000))
    same(a.http("PUT", a.q("/space/tar", path="bad"), good[:3000])[0], 400)
    same(a.http("PUT", a.q("/space/tar", path=a.tiny + "/t"), tar_of(("f", tarfile.REGTYPE, b"x" * 900000)))[0], 507)
    a.ok("Remove", {"path": a.tiny + "/t"})
    put(a, "plainfile", b"")
    same(a.http("PUT", a.q("/space/tar", path="plainfile"), good)[0], 400)
    same(a.http("PUT", a.q("/space/tar", path="empty-tar"), b"")[0], 201)
