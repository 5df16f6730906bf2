# A byte of a checkpoint's file that changed on the disk is found, with file and offset; nothing starts from it any more, and its siblings work.
# limit: 180
from t import *

NODES = os.path.join(RUN["state"], "pool/nodes")


def fsck():
    return wait_op(op_of(api("POST", "/v1/fsck", status=202)))["result"]


def some_data(path):
    """An offset in the last third of its data."""
    fd = os.open(path, os.O_RDONLY)
    try:
        at, spans = 0, []
        while True:
            try:
                at = os.lseek(fd, at, os.SEEK_DATA)
            except OSError:
                break
            end = os.lseek(fd, at, os.SEEK_HOLE)
            spans.append((at, end))
            at = end
        return spans[len(spans) * 2 // 3][0]
    finally:
        os.close(fd)


def flip(path, at):
    with open(path, "r+b") as f:
        f.seek(at)
        b = f.read(1)
        f.seek(at)
        f.write(bytes([b[0] ^ 0x40]))
        os.fsync(f.fileno())


with sandbox(timeout=300) as id:
    made = []
    try:
        sh(id, "echo one > /home/user/file")
        a = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "a"}, status=201, timeout=60).json
        made.append(a)
        b = api("POST", f"/v1/sandboxes/{id}/checkpoints", {"label": "b"}, status=201, timeout=60).json
        made.append(b)
        r = fsck()
        check(r["checked"] >= 3 and r["damaged"] == [], f"{r}")
        for name in ("memory", "disk"):
            path = os.path.join(NODES, a["id"], name)
            at = some_data(path)
            flip(path, at)
            r = fsck()
            equal([(d["checkpoint"], d["file"]) for d in r["damaged"]], [(a["id"], name)], "what is damaged")
            check(at - (1 << 20) < r["damaged"][0]["offset"] <= at, f"the offset: {r['damaged']}, not {at}")
            k = api("GET", f"/v1/checkpoints/{a['id']}").json
            check(name in (k["damaged"] or ""), f"{k}")
            j = error("POST", "/v1/sandboxes", {"checkpoint": a["id"]}, status=500, code="checkpoint_damaged")
            check(name in j["message"] and "offset" in j["message"], f"{j}")
            error("POST", f"/v1/sandboxes/{id}/rollback", {"checkpoint": "a"}, status=500, code="checkpoint_damaged")
            flip(path, at)
        equal(fsck()["damaged"], [], "once it is as it was")
        flip(os.path.join(NODES, a["id"], "memory"), some_data(os.path.join(NODES, a["id"], "memory")))
        equal(len(fsck()["damaged"]), 1, "damaged again")
        c = api("POST", "/v1/sandboxes", {"checkpoint": b["id"]}, status=201, timeout=60).json["id"]  # its sibling works
        try:
            equal(out(c, "cat /home/user/file"), "one", "the sibling")
        finally:
            api("DELETE", f"/v1/sandboxes/{c}")
        equal(out(id, "cat /home/user/file"), "one", "the sandbox that it was taken of")
    finally:
        for k in made:
            api("DELETE", f"/v1/checkpoints/{k['id']}", status=204)
