"""A server that looks like the API and checks what clients send against openapi.json: method, path, query, headers and body.

It answers with samples made of the described shapes, so that a client can be led through every call of the API without a guest. Whoever
drives the client says first which of its methods comes next: mark(name), or over HTTP POST /mark/NAME.
"""
import http.server, json, re, threading, urllib.parse

SSE = {
    "exec": [("0-0", "start", {"pid": 7}), ("2-0", "stdout", {"data": "hi", "offset": 0}),
             ("2-0", "exit", {"code": 0, "signal": None, "reason": "exited"})],
    "get_output": [("0-0", "start", {"pid": 7}), ("0-0", "exit", {"code": 0, "signal": None, "reason": "exited"})],
    "watch": [(None, "start", {"path": "/tmp"}), (None, "create", {"path": "/tmp/a", "name": "a"})],
}
HEADERS = ("Prefer", "Idempotency-Key", "Last-Event-ID", "X-Attach-Token")


class Recorder:
    def __init__(self, doc):
        self.doc, self.lock = doc, threading.Lock()
        self.current, self.problems = None, []
        self.reached = {}  # method of the client → [operationId]
        self.used = {}  # operationId → {"query": set, "body": set, "header": set}
        self.modes = {}  # method of the client → [mode]
        self.routes = []
        for path, methods in doc["paths"].items():
            pattern = re.sub(r"\\\{path\\\}$", ".*", re.escape(path))
            pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", pattern)
            for method, op in methods.items():
                self.routes.append((method.upper(), re.compile(pattern + "$"), path, op))
        # What is more literal goes before what has parameters.
        self.routes.sort(key=lambda r: r[2].count("{"))
        recorder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do(self):
                recorder.serve(self)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def mark(self, name):
        self.current = name
        self.reached.setdefault(name, [])

    def operations(self):
        return {op["operationId"]: op for methods in self.doc["paths"].values() for op in methods.values()}

    # --- what came ---

    def problem(self, text):
        self.problems.append(f"{self.current}: {text}")

    def body_of(self, h):
        if h.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while True:
                n = int(h.rfile.readline().split(b";")[0], 16)
                data += h.rfile.read(n)
                h.rfile.readline()
                if n == 0:
                    return data
        return h.rfile.read(int(h.headers.get("Content-Length") or 0))

    def serve(self, h):
        path, _, query = h.path.partition("?")
        body = self.body_of(h)
        if path.startswith("/mark/"):
            self.mark(urllib.parse.unquote(path[6:]))
            return self.answer(h, 204, b"")
        with self.lock:
            found = [r for r in self.routes if r[0] == h.command and r[1].match(path)]
            if not found:
                self.problem(f"{h.command} {path} is not described")
                return self.answer(h, 404, {"code": "not_found", "message": path, "remedy": "-", "request_id": "r"})
            op = found[0][3]
            id = op["operationId"]
            q = dict(urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)))
            self.check(op, q, h, body)
            self.reached.setdefault(self.current, []).append(id)
        self.reply(h, op, q)

    def check(self, op, q, h, body):
        id = op["operationId"]
        used = self.used.setdefault(id, {"query": set(), "body": set(), "header": set()})
        described = {(p["in"], p["name"]) for p in op.get("parameters", [])}
        for name in q:
            wild = name.split(".")[0] + ".*"
            name = name if ("query", name) in described else wild if ("query", wild) in described else None
            if name is None and not id.startswith("proxy_port"):  # the guest's own
                self.problem(f"{id}: a query that is not described: {h.path}")
            used["query"].add(name)
        for name in HEADERS:
            if name in h.headers:
                if ("header", name) not in described:
                    self.problem(f"{id}: the header {name} is not described")
                used["header"].add(name)
        content = op.get("requestBody", {}).get("content", {})
        if "application/json" in content:
            if not body and not op["requestBody"]["required"]:
                return
            try:
                value = json.loads(body)
            except ValueError:
                return self.problem(f"{id}: the body is no JSON: {body[:100]!r}")
            self.validate(value, content["application/json"]["schema"], id)
            used["body"] |= set(value)
        elif body and not content and not id.startswith("proxy_port"):
            self.problem(f"{id}: a body that is not described")

    def resolve(self, schema):
        return self.doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema

    def validate(self, value, schema, where):
        schema = self.resolve(schema)
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        fits = {"string": isinstance(value, str), "boolean": isinstance(value, bool), "object": isinstance(value, dict),
                "array": isinstance(value, list), "integer": isinstance(value, int) and not isinstance(value, bool),
                "number": isinstance(value, (int, float)) and not isinstance(value, bool), "null": value is None}
        if types and not any(fits[t] for t in types):
            return self.problem(f"{where}: {value!r} is no {types}")
        if isinstance(value, dict) and "properties" in schema:
            for k, v in value.items():
                if k in schema["properties"]:
                    self.validate(v, schema["properties"][k], f"{where}.{k}")
                elif schema.get("additionalProperties") is False:
                    self.problem(f"{where}: an unknown field {k}")
            for k in schema.get("required", []):
                if k not in value:
                    self.problem(f"{where}: {k} is missing")
        if isinstance(value, list):
            for v in value:
                self.validate(v, schema.get("items", {}), where + "[]")

    # --- what is answered ---

    def sample(self, schema, q, name=""):
        schema = self.resolve(schema)
        if "anyOf" in schema:
            return self.sample(schema["anyOf"][0], q, name)
        t = schema.get("type", "object")
        t = t[0] if isinstance(t, list) else t
        if name == "next_cursor":
            return None if "cursor" in q else "more"
        if name == "state":
            return "done"
        if t == "object":
            return {k: self.sample(v, q, k) for k, v in schema.get("properties", {}).items() if k != "stdout_base64" and k != "stderr_base64"}
        if t == "array":
            return [self.sample(schema.get("items", {}), q)]
        if t == "string":
            return "2026-01-01T00:00:00.000Z" if schema.get("format") == "date-time" else "x"
        return {"integer": 1, "number": 1.5, "boolean": False}.get(t)

    def answer(self, h, status, body, type="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        h.send_response(status)
        if status != 204:
            h.send_header("Content-Type", type)
            h.send_header("Content-Length", str(len(data)))
        h.send_header("Connection", "close")
        h.end_headers()
        h.close_connection = True
        if status != 204 and h.command != "HEAD":
            h.wfile.write(data)

    def reply(self, h, op, q):
        id, responses = op["operationId"], op["responses"]
        status = min(int(s) for s in responses if s.isdigit())
        content = responses[str(status)].get("content", {})
        mode = next((m for m in ("wait", "detach", "stat", "list", "dir") if m in q), None)
        if h.headers.get("Prefer"):
            status, mode = 202, "background"
        elif mode == "detach":
            status = 201
        elif "text/event-stream" in content and "text/event-stream" in h.headers.get("Accept", ""):
            mode = "follow"
        elif "yaml" in h.headers.get("Accept", ""):
            mode = "yaml"
        self.modes.setdefault(self.current, []).append(mode)
        if mode == "follow":
            return self.events(h, id, q)
        if status == 101:
            return self.upgrade(h)
        if status == 204 or h.command == "HEAD":
            return self.answer(h, status, b"")
        if id == "put_file" and mode == "dir":
            return self.answer(h, 201, self.sample({"$ref": "#/components/schemas/Entry"}, q))
        if id == "get_file" and mode == "list":
            return self.answer(h, 200, self.sample({"$ref": "#/components/schemas/EntryList"}, q))
        schema = responses[str(status)].get("content", {}).get("application/json", {}).get("schema")
        if mode == "yaml" or not schema or (id == "get_file" and mode is None):
            return self.answer(h, status, b"text: 1\n", "text/plain")
        self.answer(h, status, self.sample(schema, q))

    def events(self, h, id, q):
        schemas = self.doc["components"]["schemas"]
        events = SSE.get(id) or ([("1", "done", self.sample(schemas["Operation"], q))] if id == "get_operation" else
                                 [("5", "created", self.sample(schemas["Event"], q))])
        h.send_response(200)
        h.send_header("Content-Type", "text/event-stream")
        h.send_header("Connection", "close")
        h.end_headers()
        h.close_connection = True
        for eid, name, data in events:
            h.wfile.write((f"id: {eid}\n" if eid else "").encode() + f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())

    def upgrade(self, h):
        if h.headers.get("Upgrade") != "tcp" or "upgrade" not in h.headers.get("Connection", "").lower():
            self.problem("open_tcp without an upgrade")
        h.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: tcp\r\n\r\nbanner")
        h.close_connection = True
        data = h.connection.recv(100)
        h.wfile.write(data)
