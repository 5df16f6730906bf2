"""Every method of clients/python/space.py that calls the API: its name, what it reaches, and a call with all that it takes.

What is reached: the operationId, and after a colon its mode where one call of the API does several things. `also`: a convenience of another
method, or the same call in the background.
"""
import io, os, sys, tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../clients/python"))
import space as client  # noqa: E402

S, B, P, O = "Space.", "Sandbox.", "Process.", "Operation."
COMMAND = dict(cwd="/", env={"A": "b"}, user="root", timeout=5, stdin=True, pty={"cols": 80, "rows": 24}, tag="t")
CREATE = dict(name="n", timeout=60, idle_timeout="1m", on_timeout="kill", auto_wake=True, env={"A": "b"}, metadata={"k": "v"}, vcpu=1,
              memory="512M", disk=1 << 30, rootfs="writable", tmpfs={"/work": "1M"}, idempotency_key="k")
TEMPLATE = dict(vcpu=1, memory=1 << 29, disk="5G", setup=["true"], env={"A": "b"}, start_cmd="x", ready_cmd="y", user="root", workdir="/")
PAGE = dict(limit=2, cursor=None)
BRANCH = dict(label="l", timeout=5, metadata={"k": "v"})
# Methods that call nothing.
LOCAL = {S + "attach", S + "url", B + "id", B + "name", B + "state", B + "process", B + "port_url", B + "port_headers", P + "output",
         P + "output_url", P + "last_event_id", P + "close", O + "id", O + "state"}


def calls(url):
    """(method, reached, also, fn) in the order in which they are made."""
    s = client.Space(url, "key")
    sb = client.Sandbox(s, client.Record(id="i1"))
    p = client.Process(s, "i1", 7)
    op = client.Operation(s, client.Record(id="o1", state="running"))

    def every(iterator):
        return lambda: list(iterator())

    def save():
        with tempfile.TemporaryDirectory() as d:
            s.export_checkpoint("n1").save(os.path.join(d, "f"))

    def tunnel():
        c = sb.connect(22)
        c.sendall(b"ping")
        got = b""
        while len(got) < 10:
            got += c.recv(100)
        c.close()
        assert got == b"bannerping", got

    def background(call, **options):
        return lambda: call(background=True, **options)

    table = [
        (S + "create", "create_sandbox", lambda: [s.create("t", **CREATE), s.create(checkpoint="n1"), s.create(snapshot=client.Record(id="n1"))]),
        (S + "create", "also create_sandbox", background(s.create)),
        (S + "sandboxes", "list_sandboxes", every(lambda: s.sandboxes(state=["running", "paused"], all=True, metadata={"k": "v"}, **PAGE))),
        (S + "get", "get_sandbox", lambda: s.get("name")),
        (S + "checkpoints", "list_checkpoints", every(lambda: s.checkpoints(kind=["checkpoint", "snapshot"], sandbox=sb, **PAGE))),
        (S + "snapshots", "list_snapshots", every(lambda: s.snapshots(sandbox="i1", **PAGE))),
        (S + "checkpoint", "get_checkpoint", lambda: s.checkpoint("n1")),
        (S + "delete_checkpoint", "delete_checkpoint", lambda: s.delete_checkpoint("n1")),
        (S + "export_checkpoint", "export_checkpoint", save),
        (S + "import_checkpoint", "import_checkpoint", lambda: s.import_checkpoint(io.BytesIO(b"x" * 200000))),
        (S + "tree", "get_tree", every(lambda: s.tree(**PAGE))),
        (S + "usage", "get_usage", s.usage),
        (S + "prune", "prune", lambda: s.prune("7d", kinds=["snapshot"], dry_run=True)),
        (S + "prune", "also prune", background(s.prune, older_than=1)),
        (S + "fsck", "fsck", s.fsck),
        (S + "events", "get_events:list", every(lambda: s.events(after=1, **PAGE))),
        (S + "follow_events", "get_events:follow", lambda: next(s.follow_events(after=1, last_event_id="4"))),
        (S + "operations", "list_operations", every(lambda: s.operations(**PAGE))),
        (S + "operation", "get_operation:show", lambda: s.operation("o1")),
        (O + "refresh", "also get_operation", lambda: client.Operation(s, client.Record(id="o1")).refresh()),
        (O + "follow", "get_operation:follow", lambda: list(client.Operation(s, client.Record(id="o1", state="running")).follow())),
        (O + "wait", "also get_operation", op.wait),
        (S + "templates", "list_templates", every(lambda: s.templates(**PAGE))),
        (S + "template", "get_template", lambda: s.template("base")),
        (S + "build_template", "build_template", lambda: s.build_template("t", "base", **TEMPLATE)),
        (S + "delete_template", "delete_template", lambda: s.delete_template("t")),
        (S + "images", "list_images", every(lambda: s.images(**PAGE))),
        (S + "image", "get_image", lambda: s.image("sha256:00")),
        (S + "build_image", "build_image", lambda: [s.build_image("a", packages=[]), s.build_image("b", directory="/d"), s.build_image("c", ref="oci:/x")]),
        (S + "delete_image", "delete_image", lambda: s.delete_image("a")),
        (S + "keys", "list_keys", every(lambda: s.keys(**PAGE))),
        (S + "create_key", "create_key", lambda: s.create_key("k", scope="read")),
        (S + "delete_key", "delete_key", lambda: s.delete_key("k1")),
        (S + "config", "get_config:json", s.config),
        (S + "config_yaml", "get_config:yaml", s.config_yaml),
        (S + "host", "get_host", s.host),
        (S + "metrics", "get_metrics", s.metrics),
        (S + "healthy", "healthz", s.healthy),
        (S + "ready", "readyz", s.ready),
        (S + "openapi", "openapi", s.openapi),
        (B + "refresh", "also get_sandbox", lambda: client.Sandbox(s, client.Record(id="i1")).refresh()),
    ]
    for name, id, arguments in (("kill", "kill_sandbox", ()), ("pause", "pause_sandbox", ()), ("wake", "wake_sandbox", ()),
                                ("suspend", "suspend_sandbox", ()), ("set_timeout", "set_timeout", ("5m",)), ("rollback", "rollback_sandbox", ("n1",)),
                                ("checkpoint", "create_checkpoint", ("l",)), ("snapshot", "create_snapshot", ("l",))):
        fresh = client.Sandbox(s, client.Record(id="i1"))
        more = {"idempotency_key": "k"} if name in ("checkpoint", "snapshot") else {}
        table.append((B + name, id, lambda f=getattr(fresh, name), a=arguments, m=more: f(*a, **m)))
        table.append((B + name, "also " + id, lambda f=getattr(fresh, name), a=arguments: f(*a, background=True)))
    for name in ("branch", "fork"):
        table.append((B + name, name + "_sandbox", lambda f=getattr(sb, name): f(3, **BRANCH)))
        table.append((B + name, f"also {name}_sandbox", lambda f=getattr(sb, name): f(background=True)))
    return table + [
        (B + "checkpoints", "list_sandbox_checkpoints", every(lambda: sb.checkpoints(**PAGE))),
        (B + "run", "exec:wait", lambda: [sb.run("true", input="x", **COMMAND), sb.run(["a", "b"])]),
        (B + "start", "exec:stream", lambda: sb.start("true", **COMMAND).wait()),
        (B + "detach", "exec:detach", lambda: sb.detach("true", **COMMAND)),
        (B + "processes", "list_processes", sb.processes),
        (P + "wait", "also get_output", lambda: [sb.process(7).wait(), s.attach("i1", 7, "token").wait()]),
        (P + "__iter__", "get_output", lambda: [list(sb.process(7).output(stdout=1, stderr=2)), list(sb.process(7).output(offset=3)),
                                                list(sb.process(7).output(last_event_id="1-2"))]),
        (P + "write", "write_stdin", lambda: [p.write(b"x"), p.write(iter([b"a", b"b"]), close=True)]),
        (P + "close_stdin", "also write_stdin", p.close_stdin),
        (P + "signal", "send_signal", lambda: p.signal("TERM", group=True)),
        (P + "kill", "also send_signal", p.kill),
        (P + "resize", "resize_terminal", lambda: p.resize(80, 24)),
        (B + "open", "get_file:bytes", lambda: sb.open("/a b/ü?", offset=1, length=2, user="root").read()),
        (B + "read", "also get_file", lambda: sb.read("/a")),
        (B + "read_text", "also get_file", lambda: sb.read_text("/a")),
        (B + "stat", "get_file:stat", lambda: sb.stat("/a", user="root")),
        (B + "list", "get_file:list", lambda: sb.list("/", depth=2, user="root")),
        (B + "write", "put_file:bytes", lambda: [sb.write("/a", "text", mode="0755", user="root"), sb.write("/a", io.BytesIO(b"x" * 300000))]),
        (B + "mkdir", "put_file:dir", lambda: sb.mkdir("/d", user="root")),
        (B + "remove", "delete_file", lambda: sb.remove("/a")),
        (B + "move", "move_file", lambda: sb.move("/a", "/b c", user="root")),
        (B + "get_tar", "get_tar", lambda: sb.get_tar("/a", user="root").read()),
        (B + "put_tar", "put_tar", lambda: sb.put_tar("/a", b"tar", user="root")),
        (B + "watch", "watch", lambda: next(sb.watch("/tmp", recursive=True))),
        (B + "metrics", "get_sandbox_metrics", sb.metrics),
        (B + "events", "get_sandbox_events:list", every(lambda: sb.events(after=1, **PAGE))),
        (B + "follow_events", "get_sandbox_events:follow", lambda: next(sb.follow_events(after=1, last_event_id="4"))),
        (B + "logs", "get_logs", lambda: sb.logs(tail=10)),
        (B + "request", "proxy_port", lambda: [sb.request(80, m, "/x?y=1", body="b" if m in ("POST", "PUT", "PATCH") else None, headers={"X-A": "b"}).read()
                                               for m in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")]),
        (B + "connect", "open_tcp", tunnel),
    ]


def methods():
    """What the classes offer."""
    classes = (client.Space, client.Sandbox, client.Process, client.Operation)
    return {f"{c.__name__}.{m}" for c in classes for m in vars(c) if not m.startswith("_") or m == "__iter__"}
