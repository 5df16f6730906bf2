# The Python client takes a sandbox through suspension, checkpoints, branches, rollback, snapshots, export and import.
# limit: 300
from t import *

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
from space import Space, SpaceError  # noqa: E402

s = Space(SOCKET)
BEFORE, DISK = f"before-{os.getpid()}", f"disk-{os.getpid()}"  # labels that nobody else has
made = []
try:
    with s.create(metadata={"who": "state"}) as sb:
        # Suspended and awake again: the same process goes on, and its stream is taken up by the same object.
        p = sb.start("for i in 1 2 3 4 5; do echo $i; read x; done", stdin=True)
        pieces = iter(p)
        equal(next(pieces).text, "1\n")
        equal(sb.suspend().state, "suspended")
        equal(sb.suspend(background=True).wait().state, "suspended", "again: the same")
        equal(sb.wake().state, "running")
        for _ in range(4):
            p.write("\n")
        p.close_stdin()
        equal("".join(x.text for x in pieces), "2\n3\n4\n5\n", "what the command said since")
        # Checkpoints go on, and are found.
        sb.write("/tmp/f", "before")
        c = sb.checkpoint(BEFORE, idempotency_key="once")
        made.append(c)
        equal(sb.checkpoint(BEFORE, idempotency_key="once").id, c.id, "the same key gives the same checkpoint")
        equal((c.kind, c.label, c.sandbox), ("checkpoint", BEFORE, sb.id))
        equal(sb.refresh().info.checkpoint, c.id)
        sb.write("/tmp/f", "after")
        c2 = sb.checkpoint(background=True).wait()
        made.append(c2)
        equal(c2.parent, c.id)
        equal({x.id for x in sb.checkpoints(limit=1)}, {c.id, c2.id})
        equal({x.id for x in s.checkpoints(kind=["checkpoint", "snapshot"], sandbox=sb)}, {c.id, c2.id})
        equal(s.checkpoint(BEFORE).id, c.id, "by its label")
        # Siblings.
        b = sb.branch(2, label="siblings", timeout=120, metadata={"is": "sibling"})
        made.append(b.checkpoint)
        equal(b.failed, [])
        for x in b:
            equal((x.read_text("/tmp/f"), x.info.metadata["is"], x.state), ("after", "sibling", "running"))
            x.kill()
        f = sb.fork(background=True).wait()
        equal((len(f), f.checkpoint.kind), (1, "branch"))  # without a label it goes when nothing needs it
        f.sandboxes[0].kill()
        # Back.
        equal(sb.rollback(c).id, sb.id)
        equal(sb.read_text("/tmp/f"), "before")
        # A sandbox from a checkpoint, one from a snapshot.
        with s.create(checkpoint=c2, timeout=120) as other:
            equal(other.read_text("/tmp/f"), "after")
        snap = sb.snapshot(DISK)
        made.append(snap)
        equal((snap.kind, snap.label), ("snapshot", DISK))
        equal([x.id for x in s.snapshots(sandbox=sb)], [snap.id])
        with s.create(snapshot=DISK, timeout=120) as booted:
            equal(booted.info.start, "boot")
            equal(booted.read_text("/tmp/f"), "before")
        # Out and in.
        path = os.path.join(DIR, "exported.space")
        n = s.export_checkpoint(c).save(path)
        equal(os.path.getsize(path), n)
        with open(path, "rb") as f:
            again = s.import_checkpoint(f)
        made.append(again)
        os.unlink(path)
        check(again.id != c.id and again.parent is None, f"imported: {again}")
        with s.create(checkpoint=again, timeout=120) as other:
            equal(other.read_text("/tmp/f"), "before")
        # What there is.
        nodes = {x.id: x for x in s.tree(limit=2)}
        check({x.id for x in made} <= set(nodes), "all in the tree")
        check(any(x.id == sb.id for n in nodes.values() for x in n.sandboxes), "the sandbox hangs on the tree")
        u = s.usage()
        check(u.pool.total > u.pool.free > 0 and u.rows, f"usage: {u}")
        r = s.prune(0, kinds=["snapshot"], dry_run=True)
        check(snap.id in r.removed, f"prune: {r}")
        equal(s.checkpoint(snap).id, snap.id, "a dry run removes nothing")
        result = s.fsck().wait()
        check(result.checked > 0 and result.damaged == [], f"fsck: {result}")
finally:
    for x in made:
        s.delete_checkpoint(x)
for x in made:
    try:
        s.checkpoint(x)
        fail(f"{x.id} is still there")
    except SpaceError as e:
        equal((e.code, e.status), ("checkpoint_not_found", 404))
