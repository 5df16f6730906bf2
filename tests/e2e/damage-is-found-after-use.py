# A byte that changed on the disk before a checkpoint was used is found by the comparison that follows its first use: an event says file and offset, and nothing more starts from it.
# serial
# limit: 120
from t import *
import sqlite3

d = Daemon.main()
WORD = b"a word that is nowhere else: " + os.urandom(12).hex().encode()


def flip_byte(path):
    """One of the word's block: what no process has open."""
    with open(path, "r+b") as f:
        at, size = 0, os.fstat(f.fileno()).st_size
        while at < size:
            at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            end = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            f.seek(at)
            i = f.read(end - at).find(WORD)
            if i >= 0:
                f.seek(at + i)
                f.write(b"A")
                os.fsync(f.fileno())
                return at + i
            at = end
    fail(f"{path} does not hold the word")


def as_if_never_compared(node):
    """fsck makes the digests at once, where the background waits for half a minute; it compares them, too."""
    with contextlib.closing(sqlite3.connect(os.path.join(d.state, "space.db"))) as db, db:
        body = json.loads(db.execute("SELECT body FROM record WHERE tbl = 'node' AND key = ?", (node,)).fetchone()[0])
        check(body["digested"] and body["verified"], f"{body}")
        body["verified"] = False
        db.execute("UPDATE record SET body = ? WHERE tbl = 'node' AND key = ?", (json.dumps(body), node))


with sandbox(timeout=110) as id:
    put(id, "/home/user/word", WORD)
    sh(id, "sync")
    k = api("POST", f"/v1/sandboxes/{id}/checkpoints", {}, status=201, timeout=60).json["id"]
    try:
        equal(wait_op(op_of(api("POST", "/v1/fsck", status=202)))["result"]["damaged"], [], "whole as yet")
        d.stop()
        as_if_never_compared(k)
        at = flip_byte(os.path.join(d.state, "pool/nodes", k, "disk"))
        d.start()
        with sandbox(checkpoint=k, timeout=100) as first:
            equal(out(first, "echo runs"), "runs", "the first use does not wait for the comparison")
            e = wait_for(lambda: [e for e in events_of(id) if e["type"] == "damaged"], 40, "it is found")[0]
            equal(e["checkpoint"], k, "the event")
            where = re.match(r"disk at offset (\d+)", e["where"])
            check(where and at - (1 << 20) < int(where[1]) <= at, f"{e}, the byte is at {at}")
            equal(api("GET", f"/v1/checkpoints/{k}").json["damaged"], e["where"])
            error("POST", "/v1/sandboxes", {"checkpoint": k}, status=500, code="checkpoint_damaged")
            equal(out(first, "echo runs on"), "runs on", "what was started goes on")
        d.restart()
        error("POST", "/v1/sandboxes", {"checkpoint": k}, status=500, code="checkpoint_damaged")
    finally:
        api("DELETE", f"/v1/checkpoints/{k}", status=204)
