// Every method of clients/js/space.mjs that calls the API, as calls.py does for Python: node calls.mjs URL makes all the calls, says to the
// recorder at URL which comes next, and prints {table: [[method, reached]…], methods: […], local: […]}.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Operation, Process, Sandbox, Space } from "../../clients/js/space.mjs";

const url = process.argv[2];
const s = new Space({ url, key: "key" });
const sb = new Sandbox(s, { id: "i1" });
const p = new Process(s, "i1", 7);
const command = { cwd: "/", env: { A: "b" }, user: "root", timeout: 5, stdin: true, pty: { cols: 80, rows: 24 }, tag: "t" };
const create = { template: "t", name: "n", timeout: 60, idle_timeout: "1m", on_timeout: "kill", auto_wake: true, env: { A: "b" },
  metadata: { k: "v" }, vcpu: 1, memory: "512M", disk: 2 ** 30, rootfs: "writable", tmpfs: { "/work": "1M" }, idempotency_key: "k" };
const template = { name: "t", image: "base", vcpu: 1, memory: 2 ** 29, disk: "5G", setup: ["true"], env: { A: "b" }, start_cmd: "x",
  ready_cmd: "y", user: "root", workdir: "/" };
const page = { limit: 2 };
const branch = { count: 3, label: "l", timeout: 5, metadata: { k: "v" } };
const local = ["Space.attach", "Space.url", "Sandbox.id", "Sandbox.name", "Sandbox.state", "Sandbox.process", "Sandbox.portUrl",
  "Sandbox.portHeaders", "Process.output", "Process.outputUrl", "Process.last_event_id", "Process.close", "Operation.id", "Operation.state"];

async function all(iterator) {
  const items = [];
  for await (const item of await iterator) items.push(item);
  return items;
}

async function first(iterator) {
  for await (const item of await iterator) return item;
}

async function* chunks(n) {
  for (let i = 0; i < n; i++) yield Buffer.alloc(100000, "x");
}

async function save() {
  const d = await mkdtemp(join(tmpdir(), "space-js."));
  await (await s.exportCheckpoint("n1")).save(join(d, "f"));
  await rm(d, { recursive: true });
}

async function tunnel() {
  const c = await sb.connect(22);
  c.write("ping");
  let got = "";
  for await (const chunk of c) if ((got += chunk).length >= 10) break;
  c.destroy();
  if (got !== "bannerping") throw new Error(got);
}

async function ports() {
  for (const m of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
    await (await sb.request(80, m, "/x?y=1", { body: ["POST", "PUT", "PATCH"].includes(m) ? "b" : undefined, headers: { "X-A": "b" } })).bytes();
}

const table = [
  ["Space.create", "create_sandbox", async () => [await s.create(create), await s.create({ checkpoint: "n1" }), await s.create({ snapshot: { id: "n1" } })]],
  ["Space.create", "also create_sandbox", () => s.create({ background: true })],
  ["Space.use", "also create_sandbox kill_sandbox", () => s.use({}, async () => {})],
  ["Space.sandboxes", "list_sandboxes", () => all(s.sandboxes({ state: ["running", "paused"], all: true, metadata: { k: "v" }, ...page }))],
  ["Space.get", "get_sandbox", () => s.get("name")],
  ["Space.checkpoints", "list_checkpoints", () => all(s.checkpoints({ kind: ["checkpoint", "snapshot"], sandbox: sb, ...page }))],
  ["Space.snapshots", "list_snapshots", () => all(s.snapshots({ sandbox: "i1", ...page }))],
  ["Space.checkpoint", "get_checkpoint", () => s.checkpoint("n1")],
  ["Space.deleteCheckpoint", "delete_checkpoint", () => s.deleteCheckpoint("n1")],
  ["Space.exportCheckpoint", "export_checkpoint", save],
  ["Space.importCheckpoint", "import_checkpoint", () => s.importCheckpoint(chunks(3))],
  ["Space.tree", "get_tree", () => all(s.tree(page))],
  ["Space.usage", "get_usage", () => s.usage()],
  ["Space.prune", "prune", () => s.prune("7d", { kinds: ["snapshot"], dry_run: true })],
  ["Space.prune", "also prune", () => s.prune(1, { background: true })],
  ["Space.fsck", "fsck", () => s.fsck()],
  ["Space.events", "get_events:list", () => all(s.events({ after: 1, ...page }))],
  ["Space.followEvents", "get_events:follow", () => first(s.followEvents({ after: 1, last_event_id: "4" }))],
  ["Space.operations", "list_operations", () => all(s.operations(page))],
  ["Space.operation", "get_operation:show", () => s.operation("o1")],
  ["Operation.refresh", "also get_operation", () => new Operation(s, { id: "o1" }).refresh()],
  ["Operation.follow", "get_operation:follow", () => all(new Operation(s, { id: "o1", state: "running" }).follow())],
  ["Operation.wait", "also get_operation", () => new Operation(s, { id: "o1", state: "running" }).wait()],
  ["Space.templates", "list_templates", () => all(s.templates(page))],
  ["Space.template", "get_template", () => s.template("base")],
  ["Space.buildTemplate", "build_template", () => s.buildTemplate(template)],
  ["Space.deleteTemplate", "delete_template", () => s.deleteTemplate("t")],
  ["Space.images", "list_images", () => all(s.images(page))],
  ["Space.image", "get_image", () => s.image("sha256:00")],
  ["Space.buildImage", "build_image", async () => [await s.buildImage({ name: "a", packages: [] }), await s.buildImage({ name: "b", directory: "/d" }),
    await s.buildImage({ name: "c", ref: "oci:/x" })]],
  ["Space.deleteImage", "delete_image", () => s.deleteImage("a")],
  ["Space.keys", "list_keys", () => all(s.keys(page))],
  ["Space.createKey", "create_key", () => s.createKey({ name: "k", scope: "read" })],
  ["Space.deleteKey", "delete_key", () => s.deleteKey("k1")],
  ["Space.config", "get_config:json", () => s.config()],
  ["Space.configYaml", "get_config:yaml", () => s.configYaml()],
  ["Space.host", "get_host", () => s.host()],
  ["Space.metrics", "get_metrics", () => s.metrics()],
  ["Space.healthy", "healthz", () => s.healthy()],
  ["Space.ready", "readyz", () => s.ready()],
  ["Space.openapi", "openapi", () => s.openapi()],
  ["Sandbox.refresh", "also get_sandbox", () => new Sandbox(s, { id: "i1" }).refresh()],
];
for (const [name, id, ...given] of [["kill", "kill_sandbox"], ["pause", "pause_sandbox"], ["wake", "wake_sandbox"], ["suspend", "suspend_sandbox"],
  ["setTimeout", "set_timeout", "5m"], ["rollback", "rollback_sandbox", "n1"]]) {
  const fresh = new Sandbox(s, { id: "i1" });
  table.push(["Sandbox." + name, id, () => fresh[name](...given)]);
  table.push(["Sandbox." + name, "also " + id, () => new Sandbox(s, { id: "i1" })[name](...given, { background: true })]);
}
for (const [name, id, given] of [["checkpoint", "create_checkpoint", { label: "l", idempotency_key: "k" }],
  ["snapshot", "create_snapshot", { label: "l", idempotency_key: "k" }], ["branch", "branch_sandbox", branch], ["fork", "fork_sandbox", branch]]) {
  table.push(["Sandbox." + name, id, () => sb[name](given)]);
  table.push(["Sandbox." + name, "also " + id, () => sb[name]({ background: true })]);
}
table.push(
  ["Sandbox.checkpoints", "list_sandbox_checkpoints", () => all(sb.checkpoints(page))],
  ["Sandbox.run", "exec:wait", async () => [await sb.run("true", { input: "x", ...command }), await sb.run(["a", "b"])]],
  ["Sandbox.start", "exec:stream", async () => (await sb.start("true", command)).wait()],
  ["Sandbox.detach", "exec:detach", () => sb.detach("true", command)],
  ["Sandbox.processes", "list_processes", () => sb.processes()],
  ["Process.wait", "also get_output", async () => [await sb.process(7).wait(), await s.attach("i1", 7, "token").wait()]],
  ["Process.[Symbol.asyncIterator]", "get_output", async () => [await all(sb.process(7).output({ stdout: 1, stderr: 2 })),
    await all(sb.process(7).output({ offset: 3 })), await all(sb.process(7).output({ last_event_id: "1-2" }))]],
  ["Process.write", "write_stdin", async () => [await p.write("x"), await p.write(chunks(2), { close: true })]],
  ["Process.closeStdin", "also write_stdin", () => p.closeStdin()],
  ["Process.signal", "send_signal", () => p.signal("TERM", { group: true })],
  ["Process.kill", "also send_signal", () => p.kill()],
  ["Process.resize", "resize_terminal", () => p.resize(80, 24)],
  ["Sandbox.open", "get_file:bytes", async () => (await sb.open("/a b/ü?", { offset: 1, length: 2, user: "root" })).bytes()],
  ["Sandbox.read", "also get_file", () => sb.read("/a")],
  ["Sandbox.readText", "also get_file", () => sb.readText("/a")],
  ["Sandbox.stat", "get_file:stat", () => sb.stat("/a", { user: "root" })],
  ["Sandbox.list", "get_file:list", () => sb.list("/", { depth: 2, user: "root" })],
  ["Sandbox.write", "put_file:bytes", async () => [await sb.write("/a", "text", { mode: "0755", user: "root" }), await sb.write("/a", chunks(3))]],
  ["Sandbox.mkdir", "put_file:dir", () => sb.mkdir("/d", { user: "root" })],
  ["Sandbox.remove", "delete_file", () => sb.remove("/a")],
  ["Sandbox.move", "move_file", () => sb.move("/a", "/b c", { user: "root" })],
  ["Sandbox.getTar", "get_tar", async () => (await sb.getTar("/a", { user: "root" })).bytes()],
  ["Sandbox.putTar", "put_tar", () => sb.putTar("/a", Buffer.from("tar"), { user: "root" })],
  ["Sandbox.watch", "watch", () => first(sb.watch("/tmp", { recursive: true }))],
  ["Sandbox.metrics", "get_sandbox_metrics", () => sb.metrics()],
  ["Sandbox.events", "get_sandbox_events:list", () => all(sb.events({ after: 1, ...page }))],
  ["Sandbox.followEvents", "get_sandbox_events:follow", () => first(sb.followEvents({ after: 1, last_event_id: "4" }))],
  ["Sandbox.logs", "get_logs", () => sb.logs({ tail: 10 })],
  ["Sandbox.request", "proxy_port", ports],
  ["Sandbox.connect", "open_tcp", tunnel],
);

for (const [name, reached, fn] of table) {
  await fetch(`${url}/mark/${encodeURIComponent(`${name} ${reached}`)}`, { method: "POST" });
  try {
    await fn();
  } catch (e) {
    e.message = `${name}: ${e.message}`;
    throw e;
  }
}
const methods = [Space, Sandbox, Process, Operation].flatMap((c) =>
  Object.getOwnPropertyNames(c.prototype).filter((m) => m !== "constructor" && !m.startsWith("_")).map((m) => `${c.name}.${m}`));
console.log(JSON.stringify({ table: table.map(([name, reached]) => [name, reached]), methods: [...methods, "Process.[Symbol.asyncIterator]"], local }));
