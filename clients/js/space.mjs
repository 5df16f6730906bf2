// SPDX-License-Identifier: Apache-2.0
/**
 * A client of the SPACE API in one file; needs nothing but Node.js 18 or newer.
 *
 *     import { Space } from "./space.mjs";
 *
 *     const sb = await new Space().create();
 *     console.log((await sb.run("echo hi")).stdout);
 *     await sb.kill();
 *
 * new Space() finds the API as the program `space` does: an address that is given, else SPACE_URL, else SPACE_SOCKET, else the socket of
 * this machine, /run/space/api.sock. Over TCP a key is needed: `key`, or SPACE_API_KEY. A certificate of one's own: `caFile`, or
 * SPACE_CA_FILE.
 *
 * What the API answers comes as the JSON object that it is, and options are named as in docs/api.md, with its units and defaults: sizes are
 * bytes or texts ("512M"), durations seconds or texts ("10m"). What goes wrong is a SpaceError, with the code to branch on and the remedy
 * to show. Lists and streams are async iterators. Streams (a command's output, events, an operation) are taken up where they were when a
 * connection is cut or the daemon is restarted; nothing is lost and nothing comes twice.
 */
import { createWriteStream, promises as fs, readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { pipeline } from "node:stream/promises";
import { setTimeout as sleep } from "node:timers/promises";

export const VERSION = "0.1.0";

const DEFAULT_SOCKET = "/run/space/api.sock";
const DEFAULT_PORT = 7070;
const SILENCE_MS = 45_000; // the server says something on every event stream each 15 s: after this long it is cut
const EVENT_MAX = 16 << 20; // characters of one event
const ERROR_MAX = 1 << 20; // bytes of an answer that is an error
const WAIT_MAX = 64 << 20; // what Process.wait() keeps of each stream unless it is told otherwise
const EVENTS = { Accept: "text/event-stream" };
const CHECKPOINT_TYPE = "application/vnd.space.checkpoint";

/**
 * Anything that failed.
 *
 * code: what programs branch on, listed in docs/errors.md. `daemon_down` also says that no connection could be made or that it was cut; an
 * answer that is not SPACE's, a proxy's for example, has `http_STATUS`.
 * status: the HTTP status; 0 without an answer. retry_after: seconds, where the server named them.
 */
export class SpaceError extends Error {
  constructor({ code, message, remedy = "", status = 0, request_id = null, retry_after = null }, options) {
    super(message || code, options);
    this.name = "SpaceError";
    this.code = code;
    this.remedy = remedy;
    this.status = status;
    this.request_id = request_id;
    this.retry_after = retry_after;
  }
}

/**
 * A piece of a command's output. stream: "stdout", "stderr", or "pty" for a terminal. data: a Buffer. offset: where in that stream it
 * begins. lost: bytes that were no longer kept when they were asked for; then data is empty.
 */
export class Output {
  constructor(stream, data, offset, lost = 0) {
    this.stream = stream;
    this.data = data;
    this.offset = offset;
    this.lost = lost;
  }

  get text() {
    return this.data.toString("utf8");
  }
}

/**
 * A command that has ended. exit_code: 128 + its number after a signal; signal: its name or null; reason: "exited", "signaled" or
 * "deadline". truncated: {stdout, stderr}; next: the offsets from which Process.output() reads on.
 */
export class Result {
  constructor(pid, stdout, stderr, exit, truncated, next) {
    this.pid = pid;
    this.stdout_bytes = stdout;
    this.stderr_bytes = stderr;
    this.exit_code = exit.code;
    this.signal = exit.signal;
    this.reason = exit.reason;
    this.truncated = truncated;
    this.next = next;
  }

  get stdout() {
    return this.stdout_bytes.toString("utf8");
  }

  get stderr() {
    return this.stderr_bytes.toString("utf8");
  }

  get ok() {
    return this.exit_code === 0;
  }
}

// --- HTTP ---

function cut(where, why) {
  const said = why instanceof Error ? why.message : why;
  return new SpaceError({ code: "daemon_down", message: `the connection to ${where} broke: ${said}`,
    remedy: "try again; what runs in a sandbox goes on" }, why instanceof Error ? { cause: why } : undefined);
}

function errorFrom(status, headers, text, where) {
  const retry_after = headers["retry-after"] === undefined ? null : Number(headers["retry-after"]);
  try {
    const value = JSON.parse(text);
    if (typeof value?.code === "string") return new SpaceError({ ...value, status, retry_after });
  } catch {
    // not ours
  }
  return new SpaceError({ code: `http_${status}`, message: `${where} answers ${status}: ${text.slice(0, 200)}`,
    remedy: "is that the address of SPACE?", status, request_id: headers["x-request-id"] ?? null, retry_after });
}

/** "?a=1&b=2" of those that are there; flags are 1 and 0. */
function queryOf(parameters) {
  const given = Object.entries(parameters ?? {}).filter(([, v]) => v !== undefined && v !== null);
  const text = given.map(([k, v]) => `${encodeURIComponent(k)}=${encodeURIComponent(typeof v === "boolean" ? Number(v) : v)}`);
  return text.length ? "?" + text.join("&") : "";
}

const segment = (text) => encodeURIComponent(String(text));
const guestPath = (path) => (path.startsWith("/") ? path.slice(1) : path).split("/").map(encodeURIComponent).join("/");
/** Where an id is asked for, what has one will do. */
const idOf = (thing) => (typeof thing === "string" ? thing : thing?.id);
const listOf = (value) => (Array.isArray(value) ? value.join(",") : value);
const commandOf = (command) => (typeof command === "string" ? { shell: command } : { cmd: [...command] });
const prefer = (background) => (background ? { Prefer: "respond-async" } : {});

/** Where the API is, taken apart as the program `space` does. */
class Place {
  constructor(url, caFile) {
    this.where = url;
    this.prefix = "";
    if (url.startsWith("/") || url.startsWith("unix:/")) {
      this.where = "/" + url.slice(url.indexOf("/")).replace(/^\/+/, "");
      this.options = { socketPath: this.where, host: "localhost" };
      this.base = "http://localhost";
      this.module = http;
      return;
    }
    let u;
    try {
      u = new URL(url.includes("://") || url.startsWith("unix:") ? url : "http://" + url);
    } catch {
      u = null;
    }
    if (!u || !["http:", "https:"].includes(u.protocol))
      throw new TypeError(`"${url}": unix:/PATH, an absolute path, or http[s]://HOST[:PORT]`);
    const tls = u.protocol === "https:";
    // URL leaves the scheme's own port away, also where it was written.
    const port = u.port || (tls ? 443 : /:80(\/|$)/.test(url) ? 80 : DEFAULT_PORT);
    this.prefix = u.pathname.replace(/\/+$/, "");
    this.base = `${u.protocol}//${u.hostname}:${port}${this.prefix}`;
    this.options = { host: u.hostname.replace(/^\[|\]$/g, ""), port };
    if (tls && caFile) this.options.ca = readFileSync(caFile);
    this.module = tls ? https : http;
  }
}

/** How long a stream that is cut tries to come back: `ms` without hearing anything. */
class Patience {
  constructor(ms) {
    this.ms = ms;
    this.heard();
  }

  heard() {
    this.delay = 50;
    this.since = null;
  }

  /** Waits before the next attempt, or gives up. */
  async again(error) {
    const now = performance.now();
    this.since ??= now;
    if (now - this.since + this.delay > this.ms) throw error;
    await sleep(this.delay);
    this.delay = Math.min(this.delay * 2, 2000);
  }
}

/** The chunks of a body, no faster than they are taken; until there is an answer, which may come before the end and say why not. */
async function send(request, body, answer) {
  let over = false;
  const answered = answer.then(() => (over = true), () => (over = true));
  try {
    for await (const chunk of body) {
      if (over) break;
      if (!request.write(chunk)) await Promise.race([new Promise((resolve) => request.once("drain", resolve)), answered]);
    }
  } catch (e) {
    request.destroy();
    throw e;
  }
  request.end();
}

/** Server-sent events of an answer as {id, event, data}. */
async function* sse(message, where) {
  let rest = "", id, event = "message", data = [];
  try {
    for await (const chunk of message.setEncoding("utf8")) {
      const lines = (rest + chunk).split("\n");
      rest = lines.pop();
      if (rest.length > EVENT_MAX) throw new Error("an event without end");
      for (const raw of lines) {
        const line = raw.endsWith("\r") ? raw.slice(0, -1) : raw;
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
        if (line === "") {
          if (data.length) yield { id, event, data: JSON.parse(data.join("\n")) };
          event = "message";
          data = [];
        } else if (field === "id") id = value;
        else if (field === "event") event = value;
        else if (field === "data") data.push(value);
      }
    }
  } catch (e) {
    throw cut(where, e);
  }
}

/**
 * Bytes that arrive: an async iterator of Buffers; bytes(), text(), or save(path). To be read to its end, or close()d. `body` is the
 * stream itself, status and headers are the answer's. Of a file: size, mode ("0644"), owner, mtime.
 */
export class Download {
  constructor(message, where) {
    this.body = message;
    this.where = where;
    this.status = message.statusCode;
    this.headers = message.headers;
    this.size = this.headers["content-length"] === undefined ? null : Number(this.headers["content-length"]);
    this.mode = this.headers["x-space-mode"] ?? null;
    this.owner = this.headers["x-space-owner"] ?? null;
    this.mtime = this.headers["x-space-mtime"] ?? null;
  }

  async *[Symbol.asyncIterator]() {
    try {
      yield* this.body;
    } catch (e) {
      throw cut(this.where, e);
    }
    // An answer that ends too early is an error, never a short success.
    if (!this.body.complete) throw cut(this.where, "it was closed");
  }

  async bytes() {
    const chunks = [];
    for await (const chunk of this) chunks.push(chunk);
    return Buffer.concat(chunks);
  }

  async text() {
    return (await this.bytes()).toString("utf8");
  }

  async json() {
    return JSON.parse(await this.text());
  }

  /** Into a file, which has all of it or is not there. */
  async save(path) {
    const part = `${path}.${process.pid}.part`;
    try {
      await pipeline(this, createWriteStream(part));
      await fs.rename(part, path);
    } catch (e) {
      await fs.rm(part, { force: true });
      throw e;
    }
  }

  close() {
    this.body.destroy();
  }
}

/** Events as they come: an async iterator; close() ends it. */
export class Stream {
  #space;
  #path;
  #query;
  #lastId;
  #resumes;
  #message = null;
  #closed = false;
  #events = null;

  constructor(space, path, query, lastId, resumes) {
    this.#space = space;
    this.#path = path;
    this.#query = query;
    this.#lastId = lastId;
    this.#resumes = resumes;
  }

  /** Resolves when the server has begun to answer. */
  async open() {
    const headers = { ...EVENTS };
    if (this.#lastId !== undefined) headers["Last-Event-ID"] = this.#lastId;
    this.#message = await this.#space._openEvents("GET", this.#path + queryOf(this.#query), headers);
    return this;
  }

  async *#read() {
    const patience = new Patience(this.#space.resume * 1000);
    while (!this.#closed) {
      try {
        if (!this.#message) await this.open();
        for await (const { id, event, data } of sse(this.#message, this.#space._where)) {
          if (event === "error") throw new SpaceError(data);
          patience.heard();
          this.#lastId = id ?? this.#lastId;
          yield { type: event, ...data };
        }
        throw cut(this.#space._where, "it was closed");
      } catch (e) {
        this.#message?.destroy();
        this.#message = null;
        if (this.#closed) return;
        if (e.code !== "daemon_down" || !this.#resumes) throw e;
        await patience.again(e);
      }
    }
  }

  async next() {
    this.#events ??= this.#read();
    return this.#events.next();
  }

  /** What leaving a loop calls. */
  async return() {
    this.close();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator]() {
    return this;
  }

  close() {
    this.#closed = true;
    this.#message?.destroy();
  }
}

// --- the API ---

/** One SPACE, and everything that is not about one sandbox. */
export class Space {
  /**
   * @param {object} [options]
   * @param {string} [options.url] unix:/PATH, /PATH, http[s]://HOST[:PORT]
   * @param {string} [options.key]
   * @param {string} [options.caFile]
   * @param {number} [options.timeout] seconds that an answer may take to begin and each of its parts to follow; calls that wait for a
   *   command or a sandbox wait as long as that takes
   * @param {number} [options.resume] seconds that a stream that is cut tries to come back
   */
  constructor({ url, key, caFile, timeout = 60, resume = 30 } = {}) {
    const env = process.env;
    this._place = new Place(url || env.SPACE_URL || env.SPACE_SOCKET || DEFAULT_SOCKET, caFile || env.SPACE_CA_FILE);
    this._where = this._place.where;
    this.key = key || env.SPACE_API_KEY;
    this.timeout = timeout;
    this.resume = resume;
  }

  /** The API's address, for other HTTP clients; over a Unix socket its host means nothing. */
  get url() {
    return this._place.base;
  }

  _headers(headers) {
    const h = { "User-Agent": `space-js/${VERSION}`, Accept: "application/json" };
    if (this.key) h.Authorization = `Bearer ${this.key}`;
    return { ...h, ...headers };
  }

  /**
   * One request on a connection of its own; resolves when the answer's head has come, whatever it says. body: a text, bytes, or something
   * that is iterated for bytes. silence: ms without a byte after which it is cut; 0: never. on101: what an upgraded connection resolves with.
   */
  async _request(method, path, { body, headers, silence = this.timeout * 1000, on101 } = {}) {
    const whole = body === undefined || typeof body === "string" || body instanceof Uint8Array;
    const h = this._headers(headers);
    if (typeof body === "string") body = Buffer.from(body);
    if (whole && method !== "GET" && method !== "HEAD") h["Content-Length"] = body?.length ?? 0;
    const request = this._place.module.request({ ...this._place.options, method, path: this._place.prefix + path, headers: h, agent: false });
    const answer = new Promise((resolve, reject) => {
      request.on("response", (message) => {
        message.on("error", () => {}); // whoever reads it hears of it
        resolve(message);
      });
      if (on101) request.on("upgrade", (message, socket, head) => resolve(on101(socket, head)));
      request.on("error", (e) => {
        const never = ["ECONNREFUSED", "ENOENT", "EACCES", "ENOTFOUND"].includes(e.code);
        reject(never ? new SpaceError({ code: "daemon_down", message: `no connection to ${this._where}: ${e.message}`,
          remedy: "is spaced running there? SPACE_URL says where it is" }, { cause: e }) : cut(this._where, e));
      });
      request.on("timeout", () => request.destroy(new Error("nothing came for too long")));
    });
    answer.catch(() => {}); // whoever called hears of it after the body has gone
    request.setTimeout(silence);
    request.on("socket", (socket) => socket.setKeepAlive(true, 30_000)); // a call without a time limit ends with its host
    if (whole) request.end(body);
    else await send(request, body, answer);
    return answer;
  }

  /** A request that must succeed; the answer's body has yet to be read. */
  async _open(method, path, options) {
    const message = await this._request(method, path, options);
    if (message.statusCode < 400) return message;
    const chunks = [];
    let size = 0;
    try {
      for await (const chunk of message) {
        chunks.push(chunk);
        size += chunk.length;
        if (size > ERROR_MAX) break;
      }
    } catch {
      // what came is enough
    }
    throw errorFrom(message.statusCode, message.headers, Buffer.concat(chunks).toString("utf8"), this._where);
  }

  /** An event stream. It may take its time to begin (a sandbox wakes); then silence means that it was cut. */
  async _openEvents(method, path, headers, body) {
    const message = await this._open(method, path, { headers, body, silence: 0 });
    message.setTimeout(SILENCE_MS, () => message.destroy(new Error("nothing came for too long")));
    return message;
  }

  /** A request whose whole answer is JSON (or nothing). slow: as long as it takes. */
  async _call(method, path, { query, json, body, headers = {}, slow = false } = {}) {
    let h = headers;
    if (json !== undefined) {
      body = JSON.stringify(json);
      h = { ...h, "Content-Type": "application/json" };
    } else if (body !== undefined) {
      h = { "Content-Type": "application/octet-stream", ...h };
    }
    const message = await this._open(method, path + queryOf(query), { body, headers: h, silence: slow ? 0 : undefined });
    const text = await new Download(message, this._where).text();
    try {
      return text ? JSON.parse(text) : undefined;
    } catch (e) {
      throw new SpaceError({ code: `http_${message.statusCode}`, message: `${this._where}: the answer is no JSON`,
        remedy: "is that the address of SPACE?", status: message.statusCode }, { cause: e });
    }
  }

  async _download(method, path, options) {
    return new Download(await this._open(method, path, options), this._where);
  }

  async _text(path, accept = "text/plain") {
    return (await this._download("GET", path, { headers: { Accept: accept } })).text();
  }

  /** Every item of a list, page by page. */
  async *_pages(path, noun, query) {
    let cursor = query.cursor;
    do {
      const page = await this._call("GET", path, { query: { ...query, cursor } });
      yield* page[noun];
      cursor = page.next_cursor;
    } while (cursor);
  }

  // --- sandboxes ---

  /**
   * A new sandbox, from a template, a checkpoint or a snapshot.
   *
   * @param {object} [options] template, checkpoint, snapshot, name, timeout, idle_timeout, on_timeout, auto_wake, env, metadata, vcpu,
   *   memory, disk, rootfs, tmpfs; idempotency_key: the same key gives the same sandbox; background: an Operation at once instead of the
   *   Sandbox when it is there
   */
  async create({ idempotency_key, background, checkpoint, snapshot, ...body } = {}) {
    const headers = prefer(background);
    if (idempotency_key !== undefined) headers["Idempotency-Key"] = idempotency_key;
    const json = { ...body, checkpoint: idOf(checkpoint), snapshot: idOf(snapshot) };
    const answer = await this._call("POST", "/v1/sandboxes", { json, headers, slow: true });
    return background ? new Operation(this, answer.operation) : new Sandbox(this, answer);
  }

  /** A sandbox for the time of a function, which is killed at its end: await space.use({template: "base"}, async (sb) => …). */
  async use(options, fn) {
    const sb = await this.create(options);
    try {
      return await fn(sb);
    } finally {
      await sb.kill();
    }
  }

  /** Sandboxes, newest first. state: a text or a list; all: those that have ended too; metadata; limit: how many at a time; cursor. */
  async *sandboxes({ state, all, metadata, limit, cursor } = {}) {
    const query = { state: listOf(state), all, limit, cursor };
    for (const [k, v] of Object.entries(metadata ?? {})) query[`metadata.${k}`] = v;
    for await (const info of this._pages("/v1/sandboxes", "sandboxes", query)) yield new Sandbox(this, info);
  }

  /** One sandbox, by its id or its name. */
  async get(sandbox) {
    return new Sandbox(this, await this._call("GET", `/v1/sandboxes/${segment(sandbox)}`));
  }

  /** A command by the token that detach() gave: its output can be read, without a key, and nothing else. */
  attach(sandbox, pid, attach_token) {
    return new Process(this, idOf(sandbox), pid, { attach_token });
  }

  // --- checkpoints and snapshots ---

  /** Checkpoints and snapshots, newest first. kind: a text or a list; sandbox: those of one. */
  checkpoints({ kind, sandbox, limit, cursor } = {}) {
    return this._pages("/v1/checkpoints", "checkpoints", { kind: listOf(kind), sandbox: idOf(sandbox), limit, cursor });
  }

  /** Snapshots (disk only), newest first. */
  snapshots({ sandbox, limit, cursor } = {}) {
    return this._pages("/v1/snapshots", "checkpoints", { sandbox: idOf(sandbox), limit, cursor });
  }

  /** One checkpoint or snapshot, by its id or label. */
  async checkpoint(checkpoint) {
    return this._call("GET", `/v1/checkpoints/${segment(idOf(checkpoint))}`);
  }

  /** Removes it; what others need of it stays. */
  async deleteCheckpoint(checkpoint) {
    await this._call("DELETE", `/v1/checkpoints/${segment(idOf(checkpoint))}`, { slow: true });
  }

  /** All of it as one stream, for importCheckpoint() on any other machine: (await …).save("work.space"). */
  async exportCheckpoint(checkpoint) {
    const path = `/v1/checkpoints/${segment(idOf(checkpoint))}/export`;
    return this._download("GET", path, { headers: { Accept: CHECKPOINT_TYPE }, silence: 0 });
  }

  /** The checkpoint in such a stream (bytes, or something that is iterated for bytes), under a new id. */
  async importCheckpoint(data) {
    return this._call("POST", "/v1/checkpoints/import", { body: data, headers: { "Content-Type": CHECKPOINT_TYPE }, slow: true });
  }

  /** Every node, with the sandboxes that hang on it; parents come before children. */
  tree({ limit, cursor } = {}) {
    return this._pages("/v1/tree", "nodes", { limit, cursor });
  }

  /** What takes the room on the host's disk. */
  async usage() {
    return this._call("GET", "/v1/usage");
  }

  /** Removes checkpoints and snapshots ("checkpoint", "snapshot") of that age that nothing needs: {removed: [id…], bytes}. */
  async prune(older_than, { kinds, dry_run, background } = {}) {
    const json = { older_than, kinds, dry_run };
    const answer = await this._call("POST", "/v1/prune", { json, headers: prefer(background), slow: true });
    return background ? new Operation(this, answer.operation) : answer;
  }

  /** Compares every file of the pool with its digest; the result has `checked` and `damaged`. */
  async fsck() {
    return new Operation(this, (await this._call("POST", "/v1/fsck")).operation);
  }

  // --- events and operations ---

  /** What happened so far, oldest first. after: the number (`seq`) of an event that is known. */
  events({ after, limit, cursor } = {}) {
    return this._pages("/v1/events", "events", { after, limit, cursor });
  }

  /** What happened after that event (0, the default: all there is), and what happens from now on. */
  async followEvents({ after, last_event_id } = {}) {
    return new Stream(this, "/v1/events", { after }, last_event_id, true).open();
  }

  /** Slow calls, newest first. */
  async *operations({ limit, cursor } = {}) {
    for await (const info of this._pages("/v1/operations", "operations", { limit, cursor })) yield new Operation(this, info);
  }

  async operation(id) {
    return new Operation(this, await this._call("GET", `/v1/operations/${segment(id)}`));
  }

  // --- templates and images ---

  templates({ limit, cursor } = {}) {
    return this._pages("/v1/templates", "templates", { limit, cursor });
  }

  async template(name) {
    return this._call("GET", `/v1/templates/${segment(name)}`);
  }

  /**
   * A template from an image: boots it, runs the setup, starts start_cmd, waits for ready_cmd, saves.
   *
   * @param {object} options name, image; vcpu, memory, disk, setup, env, start_cmd, ready_cmd, user, workdir
   * @returns {Promise<Operation>}
   */
  async buildTemplate(options) {
    return new Operation(this, (await this._call("POST", "/v1/templates", { json: options })).operation);
  }

  async deleteTemplate(name) {
    await this._call("DELETE", `/v1/templates/${segment(name)}`);
  }

  images({ limit, cursor } = {}) {
    return this._pages("/v1/images", "images", { limit, cursor });
  }

  /** One image, by its name or digest. */
  async image(name) {
    return this._call("GET", `/v1/images/${segment(name)}`);
  }

  /** An image from Debian packages (an empty list: those of `base`), a directory of the host, or an OCI image. */
  async buildImage({ name, packages, directory, ref } = {}) {
    const given = [packages, directory, ref].filter((x) => x !== undefined);
    if (given.length !== 1) throw new TypeError("one of packages, directory and ref");
    const from = packages ? "packages" : directory !== undefined ? "dir" : "oci";
    return new Operation(this, (await this._call("POST", "/v1/images", { json: { from, name, packages, path: directory, ref } })).operation);
  }

  async deleteImage(name) {
    await this._call("DELETE", `/v1/images/${segment(name)}`);
  }

  // --- keys and the host ---

  keys({ limit, cursor } = {}) {
    return this._pages("/v1/keys", "keys", { limit, cursor });
  }

  /** A key with the scope read, use or admin; its text, `key`, is shown this once. */
  async createKey({ name, scope } = {}) {
    return this._call("POST", "/v1/keys", { json: { name, scope } });
  }

  async deleteKey(key) {
    await this._call("DELETE", `/v1/keys/${segment(idOf(key))}`);
  }

  /** The configuration in force. */
  async config() {
    return this._call("GET", "/v1/config");
  }

  /** The same as YAML, with comments. */
  async configYaml() {
    return this._text("/v1/config", "application/yaml");
  }

  async host() {
    return this._call("GET", "/v1/host");
  }

  /** The daemon's numbers in Prometheus' text format. */
  async metrics() {
    return this._text("/metrics");
  }

  /** Does the daemon answer? */
  async healthy() {
    return this.#is200("/healthz");
  }

  /** Can it create sandboxes? */
  async ready() {
    return this.#is200("/readyz");
  }

  async #is200(path) {
    try {
      const message = await this._request("GET", path);
      message.destroy();
      return message.statusCode === 200;
    } catch {
      return false;
    }
  }

  /** The description of the API that this daemon serves. */
  async openapi() {
    return this._call("GET", "/openapi.json");
  }
}

/** What branch() gives. */
const branches = (space, answer) => ({
  checkpoint: answer.checkpoint,
  sandboxes: answer.sandboxes.map((info) => new Sandbox(space, info)),
  failed: answer.failed.map((error) => new SpaceError(error)),
});

/** A slow call that is under way: id, kind, target, state (running, done, failed), step, progress, result, error are in `info`. */
export class Operation {
  constructor(space, info) {
    this._space = space;
    this.info = info;
  }

  get id() {
    return this.info.id;
  }

  get state() {
    return this.info.state;
  }

  async refresh() {
    this.info = await this._space._call("GET", `/v1/operations/${segment(this.id)}`);
    return this;
  }

  /** What it says of itself each time that changes; the last one is done or failed. */
  async *follow() {
    const stream = await new Stream(this._space, `/v1/operations/${segment(this.id)}`, {}, undefined, true).open();
    for await (const { type, ...info } of stream) {
      this.info = info;
      yield info;
      if (this.state !== "running") return;
    }
  }

  /** What the call itself would have given: a Sandbox, its branches, a checkpoint, a template… Throws what it failed of. */
  async wait() {
    if (this.state === "running") for await (const _ of this.follow());
    if (this.state === "failed") throw new SpaceError(this.info.error);
    const result = this.info.result;
    if (result?.sandboxes) return branches(this._space, result);
    if (result?.sandbox) return new Sandbox(this._space, result.sandbox);
    return result?.checkpoint ?? result?.template ?? result?.image ?? result;
  }
}

/** One microVM. `info` is its record as it was last seen; refresh() looks again. */
export class Sandbox {
  #path;

  constructor(space, info) {
    this._space = space;
    this.info = info;
    this.#path = `/v1/sandboxes/${segment(info.id)}`;
  }

  get id() {
    return this.info.id;
  }

  get name() {
    return this.info.name;
  }

  get state() {
    return this.info.state;
  }

  async refresh() {
    this.info = await this._space._call("GET", this.#path);
    return this;
  }

  // --- its life ---

  async #change(method, what, background, json) {
    const answer = await this._space._call(method, this.#path + what, { json, headers: prefer(background), slow: true });
    if (background) return new Operation(this._space, answer.operation);
    this.info = answer;
    return this;
  }

  /** Ends it. Again: the same. With background, as all of these: an Operation at once. */
  async kill({ background } = {}) {
    return this.#change("DELETE", "", background);
  }

  /** Lets it stand still, in memory. */
  async pause({ background } = {}) {
    return this.#change("POST", "/pause", background);
  }

  /** Undoes a pause or a suspension. */
  async wake({ background } = {}) {
    return this.#change("POST", "/wake", background);
  }

  /** Puts it on disk and gives its memory back. */
  async suspend({ background } = {}) {
    return this.#change("POST", "/suspend", background);
  }

  /** A new deadline, from now on; 0: none. */
  async setTimeout(timeout, { background } = {}) {
    return this.#change("POST", "/timeout", background, { timeout });
  }

  // --- its state as a whole ---

  async #save(what, { label, idempotency_key, background }) {
    const headers = prefer(background);
    if (idempotency_key !== undefined) headers["Idempotency-Key"] = idempotency_key;
    const answer = await this._space._call("POST", this.#path + what, { json: { label }, headers, slow: true });
    return background ? new Operation(this._space, answer.operation) : answer;
  }

  /** Disk, memory and devices at this instant; the sandbox goes on. label, idempotency_key, background. */
  async checkpoint(options = {}) {
    return this.#save("/checkpoints", options);
  }

  /** The disk alone at this instant: what is created from it boots. label, idempotency_key, background. */
  async snapshot(options = {}) {
    return this.#save("/snapshots", options);
  }

  /** Those of this sandbox, snapshots too. */
  checkpoints({ limit, cursor } = {}) {
    return this._space._pages(this.#path + "/checkpoints", "checkpoints", { limit, cursor });
  }

  async #siblings(what, { background, ...json }) {
    const answer = await this._space._call("POST", this.#path + what, { json, headers: prefer(background), slow: true });
    return background ? new Operation(this._space, answer.operation) : branches(this._space, answer);
  }

  /**
   * New sandboxes that go on from where this one is, which is untouched. count (1), label, timeout, metadata, background.
   * The answer: the `checkpoint` they were taken from, the `sandboxes`, and the errors of those that `failed` to start.
   */
  async branch(options = {}) {
    return this.#siblings("/branch", options);
  }

  /** Another name of branch. */
  async fork(options = {}) {
    return this.#siblings("/fork", options);
  }

  /** Back to a checkpoint, by its id or label: the same sandbox, its earlier state. */
  async rollback(checkpoint, { background } = {}) {
    return this.#change("POST", "/rollback", background, { checkpoint: idOf(checkpoint) });
  }

  // --- commands ---

  /**
   * Runs a command and waits for its end. A text is a line for bash, a list is a program and its arguments.
   * At most 1 MiB of each stream; start() has no such limit and outlives a connection that is cut.
   *
   * @param {string|string[]} command
   * @param {object} [options] input, cwd, env, user, timeout, stdin, pty, tag
   * @returns {Promise<Result>}
   */
  async run(command, options = {}) {
    const json = { ...commandOf(command), ...options };
    const a = await this._space._call("POST", this.#path + "/exec?wait=1", { json, slow: true });
    const bytes = (s) => (a[s + "_base64"] === undefined ? Buffer.from(a[s]) : Buffer.from(a[s + "_base64"], "base64"));
    return new Result(a.pid, bytes("stdout"), bytes("stderr"), a.exit, a.truncated, a.next);
  }

  /**
   * Starts a command; the Process is iterated for its output, or waited for. It goes on when nobody looks.
   *
   * @param {string|string[]} command
   * @param {object} [options] cwd, env, user, timeout, tag; stdin: it reads what Process.write() sends, otherwise /dev/null;
   *   pty: {cols, rows}, a terminal
   * @returns {Promise<Process>}
   */
  async start(command, options = {}) {
    const body = JSON.stringify({ ...commandOf(command), ...options });
    const headers = { ...EVENTS, "Content-Type": "application/json" };
    const message = await this._space._openEvents("POST", this.#path + "/exec", headers, body);
    const events = sse(message, this._space._where);
    let first;
    try {
      first = await events.next();
    } catch {
      first = { done: true };
    }
    if (first.value?.event === "start")
      return new Process(this._space, this.id, first.value.data.pid, { message, events, lastId: first.value.id });
    message.destroy();
    if (first.value?.event === "error") throw new SpaceError(first.value.data);
    throw new SpaceError({ code: "daemon_down", message: "the connection broke before the command was known to run",
      remedy: "processes() shows whether it does, by its tag" });
  }

  /** Starts a command and leaves it alone; options as for start(). The Process has an attach_token, for Space.attach(). */
  async detach(command, options = {}) {
    const json = { ...commandOf(command), ...options };
    const a = await this._space._call("POST", this.#path + "/exec?detach=1", { json });
    return new Process(this._space, this.id, a.pid, { attach_token: a.attach_token });
  }

  /** Commands that run, and those that ended within the hour. */
  async processes() {
    return (await this._space._call("GET", this.#path + "/processes")).processes;
  }

  /** A command by its pid. */
  process(pid) {
    return new Process(this._space, this.id, pid);
  }

  // --- files ---

  #file(path) {
    return `${this.#path}/files/${guestPath(path)}`;
  }

  /** A file as a stream, or a part of it. */
  async open(path, { offset = 0, length, user } = {}) {
    const headers = { Accept: "application/octet-stream" };
    if (offset < 0 || length < 1) throw new RangeError("offset and length: from 0, and from 1");
    if (offset || length !== undefined) headers.Range = `bytes=${offset}-${length === undefined ? "" : offset + length - 1}`;
    return this._space._download("GET", this.#file(path) + queryOf({ user }), { headers });
  }

  /** A whole file, as a Buffer. */
  async read(path, { user } = {}) {
    return (await this.open(path, { user })).bytes();
  }

  async readText(path, { user } = {}) {
    return (await this.read(path, { user })).toString("utf8");
  }

  /** A whole file, or nothing of it: a text, bytes, or something that is iterated for bytes. {path, size, sha256}. mode: "0755"; user. */
  async write(path, data, { mode, user } = {}) {
    return this._space._call("PUT", this.#file(path), { query: { mode, user }, body: data, slow: true });
  }

  /** A directory, and those above it. If it is there already, so much the better. */
  async mkdir(path, { user } = {}) {
    return this._space._call("PUT", this.#file(path), { query: { dir: true, user }, body: "" });
  }

  async stat(path, { user } = {}) {
    return this._space._call("GET", this.#file(path), { query: { stat: true, user } });
  }

  /** What is in a directory; depth: so many levels. */
  async list(path, { depth, user } = {}) {
    return (await this._space._call("GET", this.#file(path), { query: { list: true, depth, user } })).entries;
  }

  /** A file or a whole tree; one that is absent is fine. */
  async remove(path) {
    await this._space._call("DELETE", this.#file(path), { slow: true });
  }

  async move(path, to, { user } = {}) {
    return this._space._call("POST", this.#file(path), { query: { move: to, user } });
  }

  /** A tree as a tar; names in it begin with the path's last part. */
  async getTar(path, { user } = {}) {
    return this._space._download("GET", `${this.#path}/tar/${guestPath(path)}` + queryOf({ user }), { headers: { Accept: "application/x-tar" } });
  }

  /** Unpacks a tar into a directory: {files, bytes}. */
  async putTar(path, data, { user } = {}) {
    return this._space._call("PUT", `${this.#path}/tar/${guestPath(path)}`,
      { query: { user }, body: data, headers: { "Content-Type": "application/x-tar" }, slow: true });
  }

  /**
   * What changes under a directory from now on: {type, path, name}; type: create, write, remove, rename, chmod. The first is `start`: what
   * happens after it is told. A watch that is cut is not taken up again; look, and watch anew.
   */
  async watch(path, { recursive } = {}) {
    return new Stream(this._space, this.#path + "/watch", { path, recursive }, undefined, false).open();
  }

  // --- what it does and says ---

  /** Processor, memory and disk that it uses. */
  async metrics() {
    return this._space._call("GET", this.#path + "/metrics");
  }

  /** What happened to it so far, oldest first. */
  events({ after, limit, cursor } = {}) {
    return this._space._pages(this.#path + "/events", "events", { after, limit, cursor });
  }

  /** What happened after that event, and what happens from now on. */
  async followEvents({ after, last_event_id } = {}) {
    return new Stream(this._space, this.#path + "/events", { after }, last_event_id, true).open();
  }

  /** The end of its console; tail: so many bytes. */
  async logs({ tail } = {}) {
    return this._space._text(this.#path + "/logs" + queryOf({ tail }));
  }

  // --- its ports ---

  /** The URL of a port on the API's address; requests to it need the key. */
  portUrl(port, path = "/") {
    return `${this._space.url}${this.#path}/ports/${port}/${path.replace(/^\/+/, "")}`;
  }

  /** Headers with which any path on the API's address leads to the port; no key is needed then. */
  portHeaders(port) {
    return { "E2b-Sandbox-Id": this.id, "E2b-Sandbox-Port": String(port) };
  }

  /** An HTTP request to a server in the sandbox. Its answer comes as it is: status, headers, and the bytes to read. */
  async request(port, method = "GET", path = "/", { body, headers } = {}) {
    const url = `${this.#path}/ports/${port}/${path.replace(/^\/+/, "")}`;
    return new Download(await this._space._request(method, url, { body, headers: { Accept: "*/*", ...headers } }), this._space._where);
  }

  /** A connection to any TCP port in the sandbox, as a net.Socket. */
  async connect(port) {
    const answer = await this._space._open("GET", `${this.#path}/tcp/${port}`, {
      headers: { Connection: "upgrade", Upgrade: "tcp" },
      on101: (socket, head) => {
        socket.setTimeout(0);
        if (head.length) socket.unshift(head);
        return { statusCode: 101, socket };
      },
    });
    if (!answer.socket || answer.statusCode !== 101) throw cut(this._space._where, `${answer.statusCode} instead of a connection`);
    return answer.socket;
  }
}

// Where the language has it: await using sb = await space.create().
if (Symbol.asyncDispose)
  Sandbox.prototype[Symbol.asyncDispose] = async function () {
    await this.kill();
  };

/**
 * A command in a sandbox. Iterated, it gives its output as it comes (Output), and ends when the command has; then `exit` is there
 * ({code, signal, reason}). A connection that is cut is made again, from exactly where the output was.
 */
export class Process {
  #path;
  #message;
  #events;
  #lastId;
  #asked = {};
  #closed = false;

  constructor(space, sandbox, pid, { attach_token = null, message = null, events = null, lastId, asked = {} } = {}) {
    this._space = space;
    this.sandbox_id = sandbox;
    this.pid = pid;
    this.attach_token = attach_token;
    this.exit = null;
    this.#path = `/v1/sandboxes/${segment(sandbox)}/processes/${pid}`;
    this.#message = message;
    this.#events = events;
    this.#lastId = lastId;
    this.#asked = asked;
  }

  /** The same command with its output read anew: from the start, from offsets in its streams, or from the id of an event. */
  output({ stdout, stderr, offset, last_event_id } = {}) {
    const { attach_token } = this;
    return new Process(this._space, this.sandbox_id, this.pid, { attach_token, lastId: last_event_id, asked: { stdout, stderr, offset } });
  }

  /** Where its output can be followed with the token, by a browser's EventSource for example. */
  outputUrl() {
    return `${this._space.url}${this.#path}/output${queryOf({ attach_token: this.attach_token })}`;
  }

  /** How far it was read: output({last_event_id}) goes on there, in another program too. */
  get last_event_id() {
    return this.#lastId ?? null;
  }

  async #open() {
    const headers = { ...EVENTS };
    if (this.attach_token) headers["X-Attach-Token"] = this.attach_token;
    if (this.#lastId !== undefined) headers["Last-Event-ID"] = this.#lastId;
    const query = this.#lastId === undefined ? queryOf(this.#asked) : "";
    this.#message = await this._space._openEvents("GET", `${this.#path}/output${query}`, headers);
    this.#events = sse(this.#message, this._space._where);
  }

  async *[Symbol.asyncIterator]() {
    const patience = new Patience(this._space.resume * 1000);
    this.#closed = false;
    try {
      while (!this.exit) {
        try {
          yield* this.#pieces(patience);
        } catch (e) {
          this.#drop();
          if (this.#closed) return;
          if (e.code !== "daemon_down") throw e;
          await patience.again(e);
        }
      }
    } finally {
      this.#drop(); // whoever leaves and comes back goes on from the last id
    }
  }

  /** Those of one connection; the command's end, or an error. */
  async *#pieces(patience) {
    if (!this.#events) await this.#open();
    for await (const { id, event, data } of this.#events) {
      patience.heard();
      this.#lastId = id ?? this.#lastId;
      if (event === "exit") {
        this.exit = data;
        return;
      }
      if (event === "error") throw new SpaceError(data);
      if (event === "gap") yield new Output(data.stream, Buffer.alloc(0), data.from, data.to - data.from);
      else if (event !== "start")
        yield new Output(event, data.base64 === undefined ? Buffer.from(data.data) : Buffer.from(data.base64, "base64"), data.offset);
    }
    throw cut(this._space._where, "it was closed");
  }

  /** Reads to the end. limit: bytes that are kept of each stream. */
  async wait({ limit = WAIT_MAX } = {}) {
    const chunks = { stdout: [], stderr: [] };
    const kept = { stdout: 0, stderr: 0 };
    const truncated = { stdout: false, stderr: false };
    const next = { stdout: 0, stderr: 0 };
    for await (const piece of this) {
      const name = piece.stream === "stderr" ? "stderr" : "stdout";
      const data = truncated[name] ? piece.data.subarray(0, 0) : piece.data.subarray(0, limit - kept[name]);
      if (data.length < piece.data.length || piece.lost) truncated[name] = true;
      if (!data.length) continue;
      chunks[name].push(data);
      kept[name] += data.length;
      next[name] = piece.offset + data.length;
    }
    if (!this.exit) throw cut(this._space._where, "close() was called");
    return new Result(this.pid, Buffer.concat(chunks.stdout), Buffer.concat(chunks.stderr), this.exit, truncated, next);
  }

  /** Bytes for its standard input or terminal; resolves when the command has taken them. close: and no more. */
  async write(data, { close } = {}) {
    await this._space._call("POST", this.#path + "/stdin", { query: { close }, body: data, slow: true });
  }

  async closeStdin() {
    await this.write("", { close: true });
  }

  /** A signal by its number or name; group: to every process that the command started. */
  async signal(signal, { group } = {}) {
    await this._space._call("POST", this.#path + "/signal", { json: { signal, group } });
  }

  /** Kills it and every process that it started. */
  async kill() {
    await this.signal("KILL", { group: true });
  }

  /** The size of its terminal. */
  async resize(cols, rows) {
    await this._space._call("POST", this.#path + "/resize", { json: { cols, rows } });
  }

  #drop() {
    this.#message?.destroy();
    this.#message = null;
    this.#events = null;
  }

  /** Stops reading; the command goes on, and so does a later iteration. */
  close() {
    this.#closed = true;
    this.#message?.destroy();
  }
}
