// The JavaScript client against a real daemon and real guests; run by tests/e2e/clients-js.py. Ends with a status other than 0 if anything is not as it must be.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { createReadStream } from "node:fs";
import { readFile, rm } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Space, SpaceError } from "../../clients/js/space.mjs";

const { SPACE_SOCKET, TCP, SCRATCH } = process.env;
const equal = assert.deepEqual;

async function fails(code, fn, status) {
  try {
    await fn();
  } catch (e) {
    if (!(e instanceof SpaceError)) throw e;
    equal(e.code, code, `code of ${e.message}`);
    assert(e.message && e.remedy, "message and remedy");
    if (status !== undefined) {
      equal(e.status, status);
      assert(e.request_id, "request_id");
    }
    return;
  }
  assert.fail(`no ${code}`);
}

async function all(iterator) {
  const items = [];
  for await (const item of await iterator) items.push(item);
  return items;
}

/** Lies between client and daemon, and cuts every connection after so many bytes of answers. */
class Cutter {
  cuts = 0;

  constructor(after) {
    this.path = join(SCRATCH, "cutter-js.sock");
    this.server = net.createServer((c) => {
      const s = net.connect(SPACE_SOCKET);
      let sent = 0;
      const end = () => (c.destroy(), s.destroy());
      for (const x of [c, s]) x.on("error", end).on("close", end);
      c.on("data", (data) => s.write(data));
      s.on("data", (data) => {
        sent += data.length;
        if (sent > after) {
          this.cuts++;
          end();
        } else c.write(data);
      });
    });
  }

  listen() {
    return new Promise((resolve) => this.server.listen(this.path, resolve));
  }
}

const s = new Space();
assert((await s.healthy()) && (await s.ready()));
assert(!(await new Space({ url: "/nowhere.sock" }).healthy()));
await fails("daemon_down", () => new Space({ url: "/nowhere.sock" }).host());
await fails("sandbox_not_found", () => s.get("i" + "0".repeat(20)), 404);
await fails("bad_request", () => s.create({ rootfs: "sideways" }), 400);

await s.use({ name: "jsclient", metadata: { who: "js" }, env: { GREETING: "hi" } }, async (sb) => {
  // run
  equal((await sb.run("echo hi")).stdout, "hi\n");
  let r = await sb.run(["sh", "-c", "cat; echo $GREETING $X >&2; exit 3"], { input: "in", env: { X: "y" } });
  equal([r.stdout, r.stderr, r.exit_code, r.ok, r.reason], ["in", "hi y\n", 3, false, "exited"]);
  equal([...(await sb.run("printf '\\377'")).stdout_bytes], [255]);
  equal((await sb.run("sleep 20", { timeout: 0.5 })).reason, "deadline");
  await fails("bad_request", () => sb.run("true", { user: "nobody-at-all" }), 400);
  // the list, by state and metadata; a page of one
  assert((await all(s.sandboxes({ state: "running", metadata: { who: "js" }, limit: 1 }))).some((x) => x.id === sb.id));
  equal((await s.get("jsclient")).id, sb.id);
  // a stream as it comes, left in the middle and gone on with
  let p = await sb.start("echo one; sleep 1.5; echo two; echo err >&2");
  const began = performance.now();
  for await (const piece of p) {
    equal([piece.stream, piece.text, piece.offset], ["stdout", "one\n", 0]);
    break;
  }
  assert(performance.now() - began < 1300, "the first piece came before the end");
  r = await p.wait();
  equal([r.stdout, r.stderr, r.exit_code], ["two\n", "err\n", 0]);
  // stdin
  p = await sb.start("tr a-z A-Z", { stdin: true });
  await p.write("ab");
  await p.write([Buffer.from("c"), Buffer.from("d\n")], { close: true });
  equal((await p.wait()).stdout, "ABCD\n");
  // a terminal
  p = await sb.start("stty size; read x; stty size; tty", { pty: { cols: 90, rows: 30 } });
  await p.resize(100, 40);
  await p.write("\n");
  assert((await p.wait()).stdout.replaceAll("\r", "").endsWith("40 100\n/dev/pts/0\n"));
  // signals
  p = await sb.start("sleep 100 & sleep 100");
  await p.signal("TERM", { group: true });
  r = await p.wait();
  equal([r.signal, r.exit_code, r.reason], ["SIGTERM", 143, "signaled"]);
  // detach, attach by the token alone over TCP, offsets
  p = await sb.detach("for i in 1 2 3; do echo line $i; sleep 0.2; done", { tag: "three" });
  equal((await new Space({ url: TCP }).attach(sb.id, p.pid, p.attach_token).wait()).stdout, "line 1\nline 2\nline 3\n");
  await fails("unauthorized", () => new Space({ url: TCP }).attach(sb.id, p.pid, "x".repeat(40)).wait(), 401);
  equal((await p.output({ stdout: 7 }).wait()).stdout, "line 2\nline 3\n");
  assert((await sb.processes()).some((x) => x.pid === p.pid && x.tag === "three" && x.exit.code === 0));
  // the token in a URL, as a browser has it
  p = await new Space({ url: TCP }).attach(sb.id, p.pid, p.attach_token);
  const text = await (await fetch(p.outputUrl(), { headers: { Accept: "text/event-stream" } })).text();
  assert(text.includes("event: exit"), text);
  // cut again and again
  const cutter = new Cutter(4000);
  await cutter.listen();
  const n = 3000;
  const through = await new Space({ url: cutter.path, resume: 10 }).get(sb.id);
  p = await through.start(`for i in $(seq ${n}); do echo out $i; [ $((i % 10)) = 0 ] && echo err $i >&2; [ $((i % 300)) = 0 ] && sleep 0.05; done; exit 5`);
  r = await p.wait();
  const numbers = Array.from({ length: n }, (_, i) => i + 1);
  assert(r.stdout === numbers.map((i) => `out ${i}\n`).join(""), "every byte once");
  assert(r.stderr === numbers.filter((i) => i % 10 === 0).map((i) => `err ${i}\n`).join(""), "every byte of stderr once");
  equal(r.exit_code, 5);
  assert(cutter.cuts > 3, `only ${cutter.cuts} cuts`);
  // one that is cut for good gives up, and says so
  p = await sb.start("sleep 30");
  cutter.server.close();
  await fails("daemon_down", () => {
    const other = new Space({ url: cutter.path, resume: 0.3 });
    return other.attach(sb.id, p.pid).wait();
  });
  // closed while it is read
  setTimeout(() => p.close(), 300);
  equal(await all(p), []);
  await p.kill();
  equal((await p.wait()).signal, "SIGKILL");
  // wait() with a limit says what is left
  r = await (await sb.start("head -c 100000 /dev/zero")).wait({ limit: 1000 });
  equal([r.stdout_bytes.length, r.truncated.stdout, r.next.stdout], [1000, true, 1000]);
  // files
  const data = randomBytes(3 << 20);
  const w = await sb.write("/tmp/a b/ü", data, { mode: "0750" });
  equal([w.size, w.sha256], [data.length, createHash("sha256").update(data).digest("hex")]);
  assert(data.equals(await sb.read("/tmp/a b/ü")));
  equal((await sb.stat("/tmp/a b/ü")).mode, "0750");
  const part = await sb.open("/tmp/a b/ü", { offset: 5, length: 10 });
  equal([part.status, part.mode], [206, "0750"]);
  assert(data.subarray(5, 15).equals(await part.bytes()));
  const here = join(SCRATCH, "jsclient.bin");
  await (await sb.open("/tmp/a b/ü")).save(here);
  assert(data.equals(await readFile(here)));
  equal((await sb.write("/tmp/copy", createReadStream(here))).size, data.length);
  await rm(here);
  await sb.write("/tmp/text", "grüße");
  equal(await sb.readText("/tmp/text"), "grüße");
  await sb.mkdir("/tmp/dir/sub");
  await sb.mkdir("/tmp/dir/sub");
  await sb.move("/tmp/text", "/tmp/dir/sub/text");
  equal((await sb.list("/tmp/dir", { depth: 2 })).map((e) => e.path).sort(), ["/tmp/dir/sub", "/tmp/dir/sub/text"]);
  await fails("file_not_found", () => sb.read("/tmp/text"), 404);
  await sb.remove("/tmp/text");
  // a download that is cut is an error, and leaves no file
  const cutDownload = new Cutter(1 << 20);
  await cutDownload.listen();
  const cut = await new Space({ url: cutDownload.path }).get(sb.id);
  await fails("daemon_down", () => cut.read("/tmp/copy"));
  await fails("daemon_down", async () => (await cut.open("/tmp/copy")).save(here));
  await fails("daemon_down", async () => (await cut.getTar("/tmp/copy")).bytes());
  await assert.rejects(readFile(here), { code: "ENOENT" });
  await assert.rejects(readFile(`${here}.${process.pid}.part`), { code: "ENOENT" });
  cutDownload.server.close();
  // an upload that is refused at once says why, however much is left to send
  await fails("bad_request", () => sb.write("/tmp/x", (async function* () {
    for (let i = 0; i < 200; i++) yield Buffer.alloc(65536);
  })(), { mode: "rwx" }), 400);
  await assert.rejects(sb.write("/tmp/x", (async function* () {
    yield "a";
    throw new Error("mine");
  })()), /mine/);
  // tar, down and up
  const tar = await (await sb.getTar("/tmp/dir")).bytes();
  assert(tar.includes("dir/sub/text"));
  assert((await sb.putTar("/tmp/again", tar)).files >= 1);
  equal(await sb.readText("/tmp/again/dir/sub/text"), "grüße");
  // watch
  const events = await sb.watch("/tmp/dir", { recursive: true });
  equal((await events.next()).value.type, "start");
  await sb.run("touch /tmp/dir/sub/new");
  equal((await events.next()).value, { type: "create", name: "sub/new", path: "/tmp/dir/sub/new" });
  events.close();
  await fails("file_not_found", () => sb.watch("/no/such/place"), 404);
  // ports: by path, by header, raw
  await sb.write("/tmp/www/index.html", "<p>served</p>");
  const server = await sb.detach("cd /tmp/www && exec python3 -m http.server 8000");
  for (let i = 0; ; i++) {
    const a = await sb.request(8000, "GET", "/index.html");
    if ((await a.text()) === "<p>served</p>" && a.status === 200) break;
    assert(i < 300, "the server");
    await sleep(100);
  }
  equal((await sb.request(8000, "GET", "/none")).status, 404);
  equal(await (await fetch(TCP + "/index.html", { headers: sb.portHeaders(8000) })).text(), "<p>served</p>");
  const c = await sb.connect(8000);
  c.write("GET /index.html HTTP/1.0\r\n\r\n");
  assert(Buffer.concat(await all(c)).toString().endsWith("<p>served</p>"));
  await fails("port_closed", () => sb.connect(9), 502);
  await server.kill();
  // over TCP with a key; what a key may not do
  const key = await s.createKey({ name: "js", scope: "use" });
  try {
    const remote = new Space({ url: TCP, key: key.key });
    equal((await (await remote.get(sb.id)).run("echo far")).stdout, "far\n");
    equal((await remote.get(sb.id)).portUrl(8000, "/x"), `${TCP}/v1/sandboxes/${sb.id}/ports/8000/x`);
    await fails("forbidden", () => remote.createKey(), 403);
    await fails("unauthorized", () => all(new Space({ url: TCP }).sandboxes()), 401);
  } finally {
    await s.deleteKey(key);
  }
  // pause, wake, deadline, events, logs, metrics
  equal((await sb.pause()).state, "paused");
  await fails("sandbox_not_running", () => sb.run("true"), 409);
  equal((await (await sb.wake({ background: true })).wait()).state, "running");
  equal((await sb.setTimeout("5m")).info.timeout, 300);
  assert((await sb.metrics()).mem_total > 0);
  assert((await sb.logs({ tail: 1000 })) !== "");
  const types = (await all(sb.events({ limit: 2 }))).map((e) => e.type);
  assert(types.length > 2);
  const seen = [];
  for await (const e of await sb.followEvents({ after: 0 })) if (seen.push(e.type) === types.length) break;
  equal(seen, types);
  assert((await s.host()).memory.limit > 0 && (await s.configYaml()).includes("listen") && (await s.config()).listen);
  assert((await s.metrics()).includes("space_"));
  // operations
  const op = await s.create({ background: true, timeout: 60 });
  equal((await all(op.follow())).at(-1).state, "done");
  const other = await op.wait();
  equal((await s.operation(op.id)).state, "done");
  equal((await (await other.kill({ background: true })).wait()).state, "stopped");
});
const ended = await s.get("jsclient").catch((e) => e);
assert(ended instanceof SpaceError || ended.state === "stopped");
console.log("all as it must be");
