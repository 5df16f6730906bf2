# SPDX-License-Identifier: Apache-2.0
"""A client of the SPACE API in one file; needs nothing but Python 3.9 or newer.

    from space import Space

    with Space().create() as sb:
        print(sb.run("echo hi").stdout)

Space() finds the API as the program `space` does: an address that is given, else SPACE_URL, else SPACE_SOCKET, else the socket of this
machine, /run/space/api.sock. Over TCP a key is needed: `key`, or SPACE_API_KEY. A certificate of one's own: `ca_file`, or SPACE_CA_FILE.

What the API answers comes as a Record: the JSON object, whose members can be had as attributes too (entry.size is entry["size"]). Names,
units and defaults are those of docs/api.md: sizes are bytes or texts ("512M"), durations seconds or texts ("10m"). What goes wrong is a
SpaceError, with the code to branch on and the remedy to show. Streams (a command's output, events, an operation) are taken up where they
were when a connection is cut or the daemon is restarted; nothing is lost and nothing comes twice.

An object of these classes may be used by several threads at once; one stream is read by one thread, and closed by any.
"""
import base64
import http.client
import io
import json
import os
import socket
import ssl
import time
import urllib.parse
from typing import Any, BinaryIO, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Union

__version__ = "0.1.0"
__all__ = ["Space", "Sandbox", "Process", "Operation", "Branches", "Output", "Result", "Download", "Stream", "Record", "SpaceError"]

DEFAULT_SOCKET = "/run/space/api.sock"
DEFAULT_PORT = 7070
SILENCE_S = 45.0  # the server says something on every event stream each 15 s: after this long it is cut
EVENT_MAX = 16 << 20  # bytes of one event
ERROR_MAX = 1 << 20  # bytes of an answer that is an error
CHUNK = 1 << 16
CHECKPOINT_TYPE = "application/vnd.space.checkpoint"
WAIT_MAX = 64 << 20  # what Process.wait() keeps of each stream unless it is told otherwise

Bytes = Union[bytes, bytearray, memoryview, str, BinaryIO, Iterable[bytes]]
Number = Union[int, float, str]


class SpaceError(Exception):
    """Anything that failed.

    code: what programs branch on, listed in docs/errors.md. `daemon_down` also says that no connection could be made or that it was cut;
    an answer that is not SPACE's, a proxy's for example, has `http_STATUS`.
    status: the HTTP status; 0 without an answer. retry_after: seconds, where the server named them.
    """

    def __init__(self, code: str, message: str, remedy: str = "", status: int = 0, request_id: Optional[str] = None,
                 retry_after: Optional[float] = None):
        super().__init__(f"{message} ({code})" + (f"; {remedy}" if remedy else ""))
        self.code = code
        self.message = message
        self.remedy = remedy
        self.status = status
        self.request_id = request_id
        self.retry_after = retry_after


class Record(dict):
    """A JSON object; record.name is record["name"]."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name!r}; there are: {', '.join(self)}") from None


class Output:
    """A piece of a command's output.

    stream: "stdout", "stderr", or "pty" for a terminal. offset: where in that stream it begins. lost: bytes that were no longer kept when
    they were asked for; then data is empty.
    """

    __slots__ = ("stream", "data", "offset", "lost")

    def __init__(self, stream: str, data: bytes, offset: int, lost: int = 0):
        self.stream, self.data, self.offset, self.lost = stream, data, offset, lost

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"Output({self.stream!r}, {self.data!r}, offset={self.offset}, lost={self.lost})"


class Result:
    """A command that has ended.

    exit_code: 128 + its number after a signal; signal: its name or None; reason: "exited", "signaled" or "deadline".
    truncated: {"stdout": bool, "stderr": bool}; next: the offsets from which Process.output() reads on.
    """

    def __init__(self, pid: int, stdout: bytes, stderr: bytes, exit: Mapping[str, Any], truncated: Mapping[str, bool],
                 next: Mapping[str, int]):
        self.pid = pid
        self.stdout_bytes, self.stderr_bytes = stdout, stderr
        self.exit_code: int = exit["code"]
        self.signal: Optional[str] = exit["signal"]
        self.reason: str = exit["reason"]
        self.truncated, self.next = truncated, next

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0

    def __repr__(self) -> str:
        return f"Result(exit_code={self.exit_code}, stdout={self.stdout[:200]!r}, stderr={self.stderr[:200]!r})"


# --- HTTP ---


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: Optional[float]):
        super().__init__("localhost", timeout=timeout, blocksize=CHUNK)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.path)
        except OSError:
            self.sock.close()
            raise


class _Answer:
    """An answer whose head has come, and its connection."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, sock: socket.socket, where: str):
        self.connection, self.response, self.sock, self.where = connection, response, sock, where
        self.status, self.headers = response.status, response.headers

    def read(self, size: int = -1) -> bytes:
        """As a file's; b"" at the end. An answer that ends too early is an error, never a short success."""
        try:
            data = self.response.read() if size < 0 else self.response.read(size)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            raise _cut(self.where, e) from e
        if not data and size != 0 and self.response.length:
            raise _cut(self.where, f"{self.response.length} bytes are missing")
        return data

    def some(self) -> bytes:
        """What is there; b"" at the end."""
        try:
            return self.response.read1(CHUNK)
        except (OSError, http.client.HTTPException, ValueError, AttributeError) as e:
            raise _cut(self.where, e) from e

    def events(self) -> Iterator[tuple]:
        """Server-sent events as (id, name, data)."""
        rest, id, name, data = b"", None, "message", []
        while True:
            chunk = self.some()
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > EVENT_MAX:
                raise _cut(self.where, "an event without end")
            for raw in lines:
                line = raw.decode("utf-8", "replace").rstrip("\r")
                field, _, value = line.partition(":")
                value = value[1:] if value.startswith(" ") else value
                if not line:
                    if data:
                        yield id, name, _record(json.loads("\n".join(data)))
                    name, data = "message", []
                elif field == "id":
                    id = value
                elif field == "event":
                    name = value
                elif field == "data":
                    data.append(value)

    def close(self) -> None:
        """Also ends a read that another thread is in."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()


def _cut(where: str, why: Any) -> SpaceError:
    return SpaceError("daemon_down", f"the connection to {where} broke: {why or 'it was closed'}",
                      "try again; what runs in a sandbox goes on")


def _record(value: Any) -> Any:
    """JSON as Records, all the way down."""
    if isinstance(value, dict):
        return Record((k, _record(v)) for k, v in value.items())
    if isinstance(value, list):
        return [_record(v) for v in value]
    return value


def _error_of(value: Mapping[str, Any], status: int = 0, retry_after: Optional[float] = None) -> SpaceError:
    return SpaceError(value["code"], value.get("message") or value["code"], value.get("remedy") or "", status, value.get("request_id"),
                      retry_after)


def _error_from(status: int, headers: Any, body: bytes, where: str) -> SpaceError:
    try:
        retry_after = float(headers.get("Retry-After"))
    except (TypeError, ValueError):
        retry_after = None
    try:
        value = json.loads(body)
        if isinstance(value, dict) and isinstance(value.get("code"), str):
            return _error_of(value, status, retry_after)
    except ValueError:
        pass
    said = body[:200].decode("utf-8", "replace")
    return SpaceError(f"http_{status}", f"{where} answers {status}: {said}", "is that the address of SPACE?", status,
                      headers.get("X-Request-Id"), retry_after)


def _query(parameters: Mapping[str, Any]) -> str:
    """"?a=1&b=2" of those that are not None; flags are 1 and 0."""
    given = {k: int(v) if isinstance(v, bool) else v for k, v in parameters.items() if v is not None}
    return "?" + urllib.parse.urlencode(given, quote_via=urllib.parse.quote) if given else ""


def _given(**fields: Any) -> Dict[str, Any]:
    """A request body: the fields that are not None."""
    return {k: v for k, v in fields.items() if v is not None}


def _segment(text: Any) -> str:
    return urllib.parse.quote(str(text), safe="")


def _guest_path(path: str) -> str:
    return urllib.parse.quote(path[1:] if path.startswith("/") else path, safe="/")


def _id_of(thing: Any) -> str:
    """Where an id is asked for, what has one will do."""
    return thing if isinstance(thing, str) else thing.id


def _command(command: Union[str, Sequence[str]]) -> Dict[str, Any]:
    return {"shell": command} if isinstance(command, str) else {"cmd": list(command)}


def _prefer(background: bool) -> Dict[str, str]:
    return {"Prefer": "respond-async"} if background else {}


class _Place:
    """Where the API is, taken apart as the program `space` does."""

    def __init__(self, url: str, ca_file: Optional[str]):
        self.socket, self.tls, self.host, self.port, self.prefix = None, None, "", 0, ""
        self.where = url
        if url.startswith(("unix:/", "/")):
            self.socket = self.where = "/" + url[url.index("/"):].lstrip("/")
            return
        parts = urllib.parse.urlsplit(url if "://" in url or url.startswith("unix:") else "http://" + url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r}: unix:/PATH, an absolute path, or http[s]://HOST[:PORT]")
        self.host, self.prefix = parts.hostname, parts.path.rstrip("/")
        if parts.scheme == "https":
            self.tls = ssl.create_default_context(cafile=ca_file)
        self.port = parts.port or (443 if self.tls else DEFAULT_PORT)

    def base(self) -> str:
        """The address as a URL; over a Unix socket its host means nothing."""
        if self.socket:
            return "http://localhost"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.prefix}"

    def connection(self, timeout: Optional[float]) -> http.client.HTTPConnection:
        if self.socket:
            return _UnixConnection(self.socket, timeout)
        if self.tls:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=self.tls, blocksize=CHUNK)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout, blocksize=CHUNK)


class _Patience:
    """How long a stream that is cut tries to come back: `seconds` without hearing anything."""

    def __init__(self, seconds: float):
        self.seconds = seconds
        self.heard()

    def heard(self) -> None:
        self.delay, self.since = 0.05, None

    def again(self, error: SpaceError) -> None:
        """Waits before the next attempt, or gives up."""
        now = time.monotonic()
        if self.since is None:
            self.since = now
        if now - self.since + self.delay > self.seconds:
            raise error
        time.sleep(self.delay)
        self.delay = min(self.delay * 2, 2.0)


class Download:
    """Bytes that arrive: read(n), iterate over chunks, or save() them. To be closed, or used by `with`; read to its end it closes itself.

    status and headers are the answer's. Of a file: size, mode ("0644"), owner, mtime.
    """

    def __init__(self, answer: _Answer):
        self._answer = answer
        self.status, self.headers = answer.status, answer.headers
        self.size: Optional[int] = answer.response.length
        self.mode: Optional[str] = self.headers.get("X-Space-Mode")
        self.owner: Optional[str] = self.headers.get("X-Space-Owner")
        self.mtime: Optional[str] = self.headers.get("X-Space-Mtime")

    def read(self, size: int = -1) -> bytes:
        data = self._answer.read(size)
        if size < 0 or not data:
            self.close()
        return data

    def __iter__(self) -> Iterator[bytes]:
        while True:
            chunk = self._answer.read(CHUNK)
            if not chunk:
                self.close()
                return
            yield chunk

    def save(self, to: Union[str, "os.PathLike[str]", BinaryIO]) -> int:
        """Into a file, by its path or open; the number of bytes. A path has all of them or is not there."""
        if hasattr(to, "write"):
            return self._copy(to)
        part = f"{os.fspath(to)}.{os.getpid()}.part"
        try:
            with open(part, "wb") as f:
                n = self._copy(f)
            os.replace(part, to)
            return n
        except BaseException:
            if os.path.exists(part):
                os.unlink(part)
            raise

    def _copy(self, f: Any) -> int:
        n = 0
        for chunk in self:
            f.write(chunk)
            n += len(chunk)
        return n

    def close(self) -> None:
        self._answer.close()

    def __enter__(self) -> "Download":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Stream:
    """Events as they come: iterate over it; close() ends it, from another thread too."""

    def __init__(self, space: "Space", path: str, query: Mapping[str, Any], last_id: Optional[str], resumes: bool):
        self._space, self._path, self._asked, self._last, self._resumes = space, path, query, last_id, resumes
        self._closed = False
        self._answer: Optional[_Answer] = self._open()
        self._events = self._read()

    def _open(self) -> _Answer:
        headers = {"Accept": "text/event-stream"}
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        return self._space._open_events("GET", self._path + _query(self._asked), headers)

    def _read(self) -> Iterator[Record]:
        patience = _Patience(self._space.resume)
        while not self._closed:
            try:
                if self._answer is None:
                    self._answer = self._open()
                for id, name, data in self._answer.events():
                    if name == "error":
                        raise _error_of(data)
                    patience.heard()
                    self._last = id if id is not None else self._last
                    data.setdefault("type", name)
                    yield data
                raise _cut(self._answer.where, None)
            except SpaceError as e:
                if self._answer:
                    self._answer.close()
                self._answer = None
                if self._closed:
                    return
                if e.code != "daemon_down" or not self._resumes:
                    raise
                patience.again(e)

    def __iter__(self) -> "Stream":
        return self

    def __next__(self) -> Record:
        return next(self._events)

    def close(self) -> None:
        self._closed = True
        answer = self._answer
        if answer:
            answer.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


# --- the API ---


class Space:
    """One SPACE, and everything that is not about one sandbox.

    url: unix:/PATH, /PATH, http[s]://HOST[:PORT]. timeout: seconds that an answer may take to begin and each of its parts to follow; calls
    that wait for a command or a sandbox wait as long as that takes. resume: how long a stream that is cut tries to come back.
    """

    def __init__(self, url: Optional[str] = None, key: Optional[str] = None, *, ca_file: Optional[str] = None, timeout: float = 60.0,
                 resume: float = 30.0):
        env = os.environ
        self._place = _Place(url or env.get("SPACE_URL") or env.get("SPACE_SOCKET") or DEFAULT_SOCKET, ca_file or env.get("SPACE_CA_FILE"))
        self.key = key or env.get("SPACE_API_KEY")
        self.timeout, self.resume = timeout, resume

    @property
    def url(self) -> str:
        """The API's address, for other HTTP clients; over a Unix socket its host means nothing."""
        return self._place.base()

    def _headers(self, headers: Optional[Mapping[str, str]]) -> Dict[str, str]:
        h = {"User-Agent": f"space-python/{__version__}", "Accept": "application/json"}
        if self.key:
            h["Authorization"] = f"Bearer {self.key}"
        h.update(headers or {})
        return h

    def _request(self, method: str, path: str, body: Any, headers: Optional[Mapping[str, str]], timeout: Optional[float]) -> _Answer:
        """One request on a connection of its own; the answer's head has come, whatever it says."""
        connection = self._place.connection(self.timeout)
        where = self._place.where
        try:
            connection.connect()
        except OSError as e:
            connection.close()
            raise SpaceError("daemon_down", f"no connection to {where}: {e}", "is spaced running there? SPACE_URL says where it is") from e
        sock = connection.sock
        try:
            sock.settimeout(timeout)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # a call without a time limit ends with its host
            try:
                connection.request(method, self._place.prefix + path, body, self._headers(headers))
            except (BrokenPipeError, ConnectionResetError):
                pass  # refused before all of the body was sent: the answer says why
            return _Answer(connection, connection.getresponse(), sock, where)
        except (OSError, http.client.HTTPException) as e:
            connection.close()
            raise _cut(where, e) from e
        except BaseException:
            connection.close()
            raise

    def _open(self, method: str, path: str, *, body: Any = None, headers: Optional[Mapping[str, str]] = None,
              timeout: Optional[float] = None) -> _Answer:
        """A request that must succeed; the answer's body has yet to be read."""
        if isinstance(body, str):
            body = body.encode()
        elif isinstance(body, (memoryview, bytearray)):
            body = bytes(body)
        answer = self._request(method, path, body, headers, timeout)
        if answer.status >= 400:
            try:
                text = answer.read(ERROR_MAX)
            except SpaceError:
                text = b""
            answer.close()
            raise _error_from(answer.status, answer.headers, text, self._place.where)
        return answer

    def _open_events(self, method: str, path: str, headers: Mapping[str, str], body: Optional[bytes] = None) -> _Answer:
        """An event stream. It may take its time to begin (a sandbox wakes); then silence means that it was cut."""
        answer = self._open(method, path, body=body, headers=headers)
        answer.sock.settimeout(SILENCE_S)
        return answer

    def _call(self, method: str, path: str, *, query: Optional[Mapping[str, Any]] = None, json_body: Any = None, body: Any = None,
              headers: Optional[Mapping[str, str]] = None, slow: bool = False) -> Any:
        """A request whose whole answer is JSON (or nothing). slow: as long as it takes."""
        h = dict(headers or {})
        if json_body is not None:
            body = json.dumps(json_body).encode()
            h["Content-Type"] = "application/json"
        elif body is not None:
            h.setdefault("Content-Type", "application/octet-stream")
        answer = self._open(method, path + _query(query or {}), body=body, headers=h, timeout=None if slow else self.timeout)
        try:
            text = answer.read()
        finally:
            answer.close()
        try:
            return _record(json.loads(text)) if text else None
        except ValueError as e:
            raise SpaceError(f"http_{answer.status}", f"{self._place.where}: the answer is no JSON", "is that the address of SPACE?",
                             answer.status) from e

    def _text(self, path: str, *, query: Optional[Mapping[str, Any]] = None, accept: str = "text/plain") -> str:
        answer = self._open("GET", path + _query(query or {}), headers={"Accept": accept}, timeout=self.timeout)
        try:
            return answer.read().decode("utf-8", "replace")
        finally:
            answer.close()

    def _pages(self, path: str, noun: str, query: Mapping[str, Any]) -> Iterator[Record]:
        """Every item of a list, page by page."""
        asked = dict(query)
        while True:
            page = self._call("GET", path, query=asked)
            yield from page[noun]
            if not page.get("next_cursor"):
                return
            asked["cursor"] = page.next_cursor

    # --- sandboxes ---

    def create(self, template: Optional[str] = None, *, checkpoint: Any = None, snapshot: Any = None, name: Optional[str] = None,
               timeout: Optional[Number] = None, idle_timeout: Optional[Number] = None, on_timeout: Optional[str] = None,
               auto_wake: Optional[bool] = None, env: Optional[Mapping[str, str]] = None, metadata: Optional[Mapping[str, str]] = None,
               vcpu: Optional[int] = None, memory: Optional[Number] = None, disk: Optional[Number] = None, rootfs: Optional[str] = None,
               tmpfs: Optional[Mapping[str, Number]] = None, idempotency_key: Optional[str] = None, background: bool = False) -> Any:
        """A new sandbox, from a template, a checkpoint or a snapshot. Used by `with`, it is killed at the end.

        background: an Operation at once instead of the Sandbox when it is there. idempotency_key: the same key gives the same sandbox.
        """
        body = _given(template=template, checkpoint=checkpoint and _id_of(checkpoint), snapshot=snapshot and _id_of(snapshot), name=name,
                      timeout=timeout, idle_timeout=idle_timeout, on_timeout=on_timeout, auto_wake=auto_wake, env=env, metadata=metadata,
                      vcpu=vcpu, memory=memory, disk=disk, rootfs=rootfs, tmpfs=tmpfs)
        headers = _prefer(background)
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        answer = self._call("POST", "/v1/sandboxes", json_body=body, headers=headers, slow=True)
        return Operation(self, answer.operation) if background else Sandbox(self, answer)

    def sandboxes(self, *, state: Union[str, Sequence[str], None] = None, all: Optional[bool] = None,
                  metadata: Optional[Mapping[str, str]] = None, limit: Optional[int] = None,
                  cursor: Optional[str] = None) -> Iterator["Sandbox"]:
        """Sandboxes, newest first; with `all` those that have ended too. limit: how many at a time."""
        query: Dict[str, Any] = {"state": state if state is None or isinstance(state, str) else ",".join(state), "all": all}
        query.update({f"metadata.{k}": v for k, v in (metadata or {}).items()})
        for info in self._pages("/v1/sandboxes", "sandboxes", {**query, "limit": limit, "cursor": cursor}):
            yield Sandbox(self, info)

    def get(self, sandbox: str) -> "Sandbox":
        """One sandbox, by its id or its name."""
        return Sandbox(self, self._call("GET", f"/v1/sandboxes/{_segment(sandbox)}"))

    def attach(self, sandbox: str, pid: int, attach_token: str) -> "Process":
        """A command by the token that detach() gave: its output can be read, without a key, and nothing else."""
        return Process(self, _id_of(sandbox), pid, attach_token)

    # --- checkpoints and snapshots ---

    def checkpoints(self, *, kind: Union[str, Sequence[str], None] = None, sandbox: Any = None, limit: Optional[int] = None,
                    cursor: Optional[str] = None) -> Iterator[Record]:
        """Checkpoints and snapshots, newest first."""
        return self._pages("/v1/checkpoints", "checkpoints", {"kind": kind if kind is None or isinstance(kind, str) else ",".join(kind),
                                                              "sandbox": sandbox and _id_of(sandbox), "limit": limit, "cursor": cursor})

    def snapshots(self, *, sandbox: Any = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        """Snapshots (disk only), newest first."""
        return self._pages("/v1/snapshots", "checkpoints", {"sandbox": sandbox and _id_of(sandbox), "limit": limit, "cursor": cursor})

    def checkpoint(self, checkpoint: Any) -> Record:
        """One checkpoint or snapshot, by its id or label."""
        return self._call("GET", f"/v1/checkpoints/{_segment(_id_of(checkpoint))}")

    def delete_checkpoint(self, checkpoint: Any) -> None:
        """Removes it; what others need of it stays."""
        self._call("DELETE", f"/v1/checkpoints/{_segment(_id_of(checkpoint))}", slow=True)

    def export_checkpoint(self, checkpoint: Any) -> Download:
        """All of it as one stream, for import_checkpoint() on any other machine: .save("work.space")."""
        path = f"/v1/checkpoints/{_segment(_id_of(checkpoint))}/export"
        return Download(self._open("GET", path, headers={"Accept": CHECKPOINT_TYPE}))

    def import_checkpoint(self, data: Bytes) -> Record:
        """The checkpoint in such a stream (an open file, bytes, or an iterable of them), under a new id."""
        headers = {"Content-Type": CHECKPOINT_TYPE}
        return self._call("POST", "/v1/checkpoints/import", body=data, headers=headers, slow=True)

    def tree(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        """Every node, with the sandboxes that hang on it; parents come before children."""
        return self._pages("/v1/tree", "nodes", {"limit": limit, "cursor": cursor})

    def usage(self) -> Record:
        """What takes the room on the host's disk."""
        return self._call("GET", "/v1/usage")

    def prune(self, older_than: Number, *, kinds: Optional[Sequence[str]] = None, dry_run: Optional[bool] = None,
              background: bool = False) -> Any:
        """Removes checkpoints and snapshots ("checkpoint", "snapshot") of that age that nothing needs: {removed: [id…], bytes}."""
        body = _given(older_than=older_than, kinds=kinds, dry_run=dry_run)
        answer = self._call("POST", "/v1/prune", json_body=body, headers=_prefer(background), slow=True)
        return Operation(self, answer.operation) if background else answer

    def fsck(self) -> "Operation":
        """Compares every file of the pool with its digest; the result has `checked` and `damaged`."""
        return Operation(self, self._call("POST", "/v1/fsck").operation)

    # --- events and operations ---

    def events(self, *, after: Optional[int] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        """What happened so far, oldest first. after: the number (`seq`) of an event that is known."""
        return self._pages("/v1/events", "events", {"after": after, "limit": limit, "cursor": cursor})

    def follow_events(self, *, after: Optional[int] = None, last_event_id: Optional[str] = None) -> Stream:
        """What happened after that event (0, the default: all there is), and what happens from now on."""
        return Stream(self, "/v1/events", {"after": after}, last_event_id, resumes=True)

    def operations(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator["Operation"]:
        """Slow calls, newest first."""
        for info in self._pages("/v1/operations", "operations", {"limit": limit, "cursor": cursor}):
            yield Operation(self, info)

    def operation(self, id: str) -> "Operation":
        return Operation(self, self._call("GET", f"/v1/operations/{_segment(id)}"))

    # --- templates and images ---

    def templates(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        return self._pages("/v1/templates", "templates", {"limit": limit, "cursor": cursor})

    def template(self, name: str) -> Record:
        return self._call("GET", f"/v1/templates/{_segment(name)}")

    def build_template(self, name: str, image: str, *, vcpu: Optional[int] = None, memory: Optional[Number] = None,
                       disk: Optional[Number] = None, setup: Optional[Sequence[str]] = None, env: Optional[Mapping[str, str]] = None,
                       start_cmd: Optional[str] = None, ready_cmd: Optional[str] = None, user: Optional[str] = None,
                       workdir: Optional[str] = None) -> "Operation":
        """A template from an image: boots it, runs the setup, starts start_cmd, waits for ready_cmd, saves."""
        body = _given(name=name, image=image, vcpu=vcpu, memory=memory, disk=disk, setup=setup, env=env, start_cmd=start_cmd,
                      ready_cmd=ready_cmd, user=user, workdir=workdir)
        return Operation(self, self._call("POST", "/v1/templates", json_body=body).operation)

    def delete_template(self, name: str) -> None:
        self._call("DELETE", f"/v1/templates/{_segment(name)}")

    def images(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        return self._pages("/v1/images", "images", {"limit": limit, "cursor": cursor})

    def image(self, name: str) -> Record:
        """One image, by its name or digest."""
        return self._call("GET", f"/v1/images/{_segment(name)}")

    def build_image(self, name: Optional[str] = None, *, packages: Optional[Sequence[str]] = None, directory: Optional[str] = None,
                    ref: Optional[str] = None) -> "Operation":
        """An image from Debian packages (an empty list: those of `base`), a directory of the host, or an OCI image."""
        if sum(x is not None for x in (packages, directory, ref)) != 1:
            raise ValueError("one of packages, directory and ref")
        source = "packages" if packages is not None else "dir" if directory is not None else "oci"
        body = {"from": source, **_given(name=name, packages=packages, path=directory, ref=ref)}
        return Operation(self, self._call("POST", "/v1/images", json_body=body).operation)

    def delete_image(self, name: str) -> None:
        self._call("DELETE", f"/v1/images/{_segment(name)}")

    # --- keys and the host ---

    def keys(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        return self._pages("/v1/keys", "keys", {"limit": limit, "cursor": cursor})

    def create_key(self, name: Optional[str] = None, *, scope: Optional[str] = None) -> Record:
        """A key with the scope read, use or admin; its text, `key`, is shown this once."""
        return self._call("POST", "/v1/keys", json_body=_given(name=name, scope=scope))

    def delete_key(self, key: Any) -> None:
        self._call("DELETE", f"/v1/keys/{_segment(_id_of(key))}")

    def config(self) -> Record:
        """The configuration in force."""
        return self._call("GET", "/v1/config")

    def config_yaml(self) -> str:
        """The same as YAML, with comments."""
        return self._text("/v1/config", accept="application/yaml")

    def host(self) -> Record:
        return self._call("GET", "/v1/host")

    def metrics(self) -> str:
        """The daemon's numbers in Prometheus' text format."""
        return self._text("/metrics")

    def healthy(self) -> bool:
        """Does the daemon answer?"""
        return self._is_200("/healthz")

    def ready(self) -> bool:
        """Can it create sandboxes?"""
        return self._is_200("/readyz")

    def _is_200(self, path: str) -> bool:
        try:
            answer = self._request("GET", path, None, None, self.timeout)
        except SpaceError:
            return False
        answer.close()
        return answer.status == 200

    def openapi(self) -> Record:
        """The description of the API that this daemon serves."""
        return self._call("GET", "/openapi.json")


class Operation:
    """A slow call that is under way: id, kind, target, state (running, done, failed), step, progress, result, error are in `info`."""

    def __init__(self, space: Space, info: Record):
        self._space, self.info = space, info

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def state(self) -> str:
        return self.info.state

    def refresh(self) -> "Operation":
        self.info = self._space._call("GET", f"/v1/operations/{_segment(self.id)}")
        return self

    def follow(self) -> Iterator[Record]:
        """What it says of itself each time that changes; the last one is done or failed."""
        stream = Stream(self._space, f"/v1/operations/{_segment(self.id)}", {}, None, resumes=True)
        with stream:
            for info in stream:
                self.info = Record((k, v) for k, v in info.items() if k != "type")
                yield self.info
                if self.state != "running":
                    return

    def wait(self) -> Any:
        """What the call itself would have given: a Sandbox, Branches, or a Record. Raises what it failed of."""
        if self.state == "running":
            for _ in self.follow():
                pass
        if self.state == "failed":
            raise _error_of(self.info.error)
        result = self.info.result
        if not isinstance(result, dict):
            return result
        if "sandboxes" in result:
            return Branches(self._space, result)
        if "sandbox" in result:
            return Sandbox(self._space, result.sandbox)
        for noun in ("checkpoint", "template", "image"):
            if noun in result:
                return result[noun]
        return result

    def __repr__(self) -> str:
        return f"<Operation {self.id} {self.info.kind} {self.state}>"


class Sandbox:
    """One microVM. `info` is its record as it was last seen; refresh() looks again. Used by `with`, it is killed at the end."""

    def __init__(self, space: Space, info: Record):
        self._space, self.info = space, info
        self._path = f"/v1/sandboxes/{_segment(info.id)}"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def state(self) -> str:
        return self.info.state

    def __repr__(self) -> str:
        return f"<Sandbox {self.id} {self.state}>"

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: Any) -> None:
        self.kill()

    def refresh(self) -> "Sandbox":
        self.info = self._space._call("GET", self._path)
        return self

    # --- its life ---

    def _change(self, method: str, what: str, background: bool, body: Any = None) -> Any:
        answer = self._space._call(method, self._path + what, json_body=body, headers=_prefer(background), slow=True)
        if background:
            return Operation(self._space, answer.operation)
        self.info = answer
        return self

    def kill(self, *, background: bool = False) -> Any:
        """Ends it. Again: the same."""
        return self._change("DELETE", "", background)

    def pause(self, *, background: bool = False) -> Any:
        """Lets it stand still, in memory."""
        return self._change("POST", "/pause", background)

    def wake(self, *, background: bool = False) -> Any:
        """Undoes a pause or a suspension."""
        return self._change("POST", "/wake", background)

    def suspend(self, *, background: bool = False) -> Any:
        """Puts it on disk and gives its memory back."""
        return self._change("POST", "/suspend", background)

    def set_timeout(self, timeout: Number, *, background: bool = False) -> Any:
        """A new deadline, from now on; 0: none."""
        return self._change("POST", "/timeout", background, {"timeout": timeout})

    # --- its state as a whole ---

    def _save(self, what: str, label: Optional[str], idempotency_key: Optional[str], background: bool) -> Any:
        headers = _prefer(background)
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        answer = self._space._call("POST", self._path + what, json_body=_given(label=label), headers=headers, slow=True)
        return Operation(self._space, answer.operation) if background else answer

    def checkpoint(self, label: Optional[str] = None, *, idempotency_key: Optional[str] = None, background: bool = False) -> Any:
        """Disk, memory and devices at this instant, as a Record; the sandbox goes on."""
        return self._save("/checkpoints", label, idempotency_key, background)

    def snapshot(self, label: Optional[str] = None, *, idempotency_key: Optional[str] = None, background: bool = False) -> Any:
        """The disk alone at this instant, as a Record: what is created from it boots."""
        return self._save("/snapshots", label, idempotency_key, background)

    def checkpoints(self, *, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        """Those of this sandbox, snapshots too."""
        return self._space._pages(self._path + "/checkpoints", "checkpoints", {"limit": limit, "cursor": cursor})

    def _siblings(self, what: str, background: bool, body: Dict[str, Any]) -> Any:
        answer = self._space._call("POST", self._path + what, json_body=body, headers=_prefer(background), slow=True)
        return Operation(self._space, answer.operation) if background else Branches(self._space, answer)

    def branch(self, count: Optional[int] = None, *, label: Optional[str] = None, timeout: Optional[Number] = None,
               metadata: Optional[Mapping[str, str]] = None, background: bool = False) -> Any:
        """Branches: so many new sandboxes (1) that go on from where this one is, which is untouched."""
        return self._siblings("/branch", background, _given(count=count, label=label, timeout=timeout, metadata=metadata))

    def fork(self, count: Optional[int] = None, *, label: Optional[str] = None, timeout: Optional[Number] = None,
             metadata: Optional[Mapping[str, str]] = None, background: bool = False) -> Any:
        """Another name of branch."""
        return self._siblings("/fork", background, _given(count=count, label=label, timeout=timeout, metadata=metadata))

    def rollback(self, checkpoint: Any, *, background: bool = False) -> Any:
        """Back to a checkpoint, by its id or label: the same sandbox, its earlier state."""
        return self._change("POST", "/rollback", background, {"checkpoint": _id_of(checkpoint)})

    # --- commands ---

    def run(self, command: Union[str, Sequence[str]], *, input: Optional[str] = None, cwd: Optional[str] = None,
            env: Optional[Mapping[str, str]] = None, user: Optional[str] = None, timeout: Optional[Number] = None,
            stdin: Optional[bool] = None, pty: Optional[Mapping[str, int]] = None, tag: Optional[str] = None) -> Result:
        """Runs a command and waits for its end. A text is a line for bash, a list is a program and its arguments.

        At most 1 MiB of each stream; start() has no such limit and outlives a connection that is cut.
        """
        body = _given(**_command(command), input=input, cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin, pty=pty, tag=tag)
        a = self._space._call("POST", self._path + "/exec", query={"wait": True}, json_body=body, slow=True)
        out, err = (base64.b64decode(a[s + "_base64"]) if s + "_base64" in a else a[s].encode() for s in ("stdout", "stderr"))
        return Result(a.pid, out, err, a.exit, a.truncated, a.next)

    def start(self, command: Union[str, Sequence[str]], *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
              user: Optional[str] = None, timeout: Optional[Number] = None, stdin: Optional[bool] = None,
              pty: Optional[Mapping[str, int]] = None, tag: Optional[str] = None) -> "Process":
        """Starts a command; the Process is iterated for its output, or waited for. It goes on when nobody looks.

        stdin: it reads what Process.write() sends; otherwise /dev/null. pty: {"cols": 80, "rows": 24}, a terminal.
        """
        body = _given(**_command(command), cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin, pty=pty, tag=tag)
        headers = {"Accept": "text/event-stream", "Content-Type": "application/json"}
        answer = self._space._open_events("POST", self._path + "/exec", headers, json.dumps(body).encode())
        events = answer.events()
        try:
            id, name, data = next(events)
        except (StopIteration, SpaceError) as e:
            answer.close()
            raise SpaceError("daemon_down", "the connection broke before the command was known to run",
                             "processes() shows whether it does, by its tag") from e
        if name != "start":
            answer.close()
            raise _error_of(data) if name == "error" else _cut(answer.where, f"an event {name} before the command's start")
        return Process(self._space, self.id, data.pid, None, answer, events, id)

    def detach(self, command: Union[str, Sequence[str]], *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None,
               user: Optional[str] = None, timeout: Optional[Number] = None, stdin: Optional[bool] = None,
               pty: Optional[Mapping[str, int]] = None, tag: Optional[str] = None) -> "Process":
        """Starts a command and leaves it alone. The Process has an attach_token, for Space.attach()."""
        body = _given(**_command(command), cwd=cwd, env=env, user=user, timeout=timeout, stdin=stdin, pty=pty, tag=tag)
        a = self._space._call("POST", self._path + "/exec", query={"detach": True}, json_body=body)
        return Process(self._space, self.id, a.pid, a.attach_token)

    def processes(self) -> List[Record]:
        """Commands that run, and those that ended within the hour."""
        return self._space._call("GET", self._path + "/processes").processes

    def process(self, pid: int) -> "Process":
        """A command by its pid."""
        return Process(self._space, self.id, pid)

    # --- files ---

    def _file(self, path: str) -> str:
        return f"{self._path}/files/{_guest_path(path)}"

    def open(self, path: str, *, offset: int = 0, length: Optional[int] = None, user: Optional[str] = None) -> Download:
        """A file as a stream, or a part of it."""
        headers = {"Accept": "application/octet-stream"}
        if offset < 0 or (length is not None and length < 1):
            raise ValueError("offset and length: from 0, and from 1")
        if offset or length is not None:
            headers["Range"] = f"bytes={offset}-" + (str(offset + length - 1) if length is not None else "")
        return Download(self._space._open("GET", self._file(path) + _query({"user": user}), headers=headers, timeout=self._space.timeout))

    def read(self, path: str, *, user: Optional[str] = None) -> bytes:
        """A whole file."""
        with self.open(path, user=user) as f:
            return f.read()

    def read_text(self, path: str, *, user: Optional[str] = None) -> str:
        return self.read(path, user=user).decode()

    def write(self, path: str, data: Bytes, *, mode: Optional[str] = None, user: Optional[str] = None) -> Record:
        """A whole file, or nothing of it: bytes, a text, an open file or an iterable of bytes. {path, size, sha256}."""
        return self._space._call("PUT", self._file(path), query={"mode": mode, "user": user}, body=data, slow=True)

    def mkdir(self, path: str, *, user: Optional[str] = None) -> Record:
        """A directory, and those above it. If it is there already, so much the better."""
        return self._space._call("PUT", self._file(path), query={"dir": True, "user": user}, body=b"")

    def stat(self, path: str, *, user: Optional[str] = None) -> Record:
        return self._space._call("GET", self._file(path), query={"stat": True, "user": user})

    def list(self, path: str, *, depth: Optional[int] = None, user: Optional[str] = None) -> List[Record]:
        """What is in a directory; depth: so many levels."""
        return self._space._call("GET", self._file(path), query={"list": True, "depth": depth, "user": user}).entries

    def remove(self, path: str) -> None:
        """A file or a whole tree; one that is absent is fine."""
        self._space._call("DELETE", self._file(path), slow=True)

    def move(self, path: str, to: str, *, user: Optional[str] = None) -> Record:
        return self._space._call("POST", self._file(path), query={"move": to, "user": user})

    def get_tar(self, path: str, *, user: Optional[str] = None) -> Download:
        """A tree as a tar; names in it begin with the path's last part."""
        url = f"{self._path}/tar/{_guest_path(path)}" + _query({"user": user})
        return Download(self._space._open("GET", url, headers={"Accept": "application/x-tar"}, timeout=self._space.timeout))

    def put_tar(self, path: str, data: Bytes, *, user: Optional[str] = None) -> Record:
        """Unpacks a tar into a directory: {files, bytes}."""
        return self._space._call("PUT", f"{self._path}/tar/{_guest_path(path)}", query={"user": user}, body=data,
                                 headers={"Content-Type": "application/x-tar"}, slow=True)

    def watch(self, path: str, *, recursive: Optional[bool] = None) -> Stream:
        """What changes under a directory from now on: type (create, write, remove, rename, chmod), path, name.

        The first event is `start`: what happens after it is told. A watch that is cut is not taken up again; look, and watch anew.
        """
        return Stream(self._space, self._path + "/watch", {"path": path, "recursive": recursive}, None, resumes=False)

    # --- what it does and says ---

    def metrics(self) -> Record:
        """Processor, memory and disk that it uses."""
        return self._space._call("GET", self._path + "/metrics")

    def events(self, *, after: Optional[int] = None, limit: Optional[int] = None, cursor: Optional[str] = None) -> Iterator[Record]:
        """What happened to it so far, oldest first."""
        return self._space._pages(self._path + "/events", "events", {"after": after, "limit": limit, "cursor": cursor})

    def follow_events(self, *, after: Optional[int] = None, last_event_id: Optional[str] = None) -> Stream:
        """What happened after that event, and what happens from now on."""
        return Stream(self._space, self._path + "/events", {"after": after}, last_event_id, resumes=True)

    def logs(self, *, tail: Optional[int] = None) -> str:
        """The end of its console; tail: so many bytes."""
        return self._space._text(self._path + "/logs", query={"tail": tail})

    # --- its ports ---

    def port_url(self, port: int, path: str = "/") -> str:
        """The URL of a port on the API's address; requests to it need the key."""
        return f"{self._space.url}{self._path}/ports/{port}/{path.lstrip('/')}"

    def port_headers(self, port: int) -> Dict[str, str]:
        """Headers with which any path on the API's address leads to the port; no key is needed then."""
        return {"E2b-Sandbox-Id": self.id, "E2b-Sandbox-Port": str(port)}

    def request(self, port: int, method: str = "GET", path: str = "/", *, body: Optional[Bytes] = None,
                headers: Optional[Mapping[str, str]] = None) -> Download:
        """An HTTP request to a server in the sandbox. Its answer comes as it is: status, headers, and the bytes to read."""
        if isinstance(body, str):
            body = body.encode()
        url = f"{self._path}/ports/{port}/{path.lstrip('/')}"
        return Download(self._space._request(method, url, body, {"Accept": "*/*", **(headers or {})}, self._space.timeout))

    def connect(self, port: int) -> socket.socket:
        """A connection to any TCP port in the sandbox, as a socket."""
        space = self._space
        connection = space._place.connection(space.timeout)
        try:
            connection.connect()
            sock = connection.sock
            head = [f"GET {space._place.prefix}{self._path}/tcp/{port} HTTP/1.1", "Host: space", "Connection: upgrade", "Upgrade: tcp"]
            head += [f"{k}: {v}" for k, v in space._headers(None).items()]
            sock.sendall("\r\n".join(head + ["", ""]).encode("latin-1"))
            answer = b""
            while not answer.endswith(b"\r\n\r\n"):  # a byte at a time: what follows is the port's
                answer += _exactly(sock, 1)
                if len(answer) > CHUNK:
                    raise OSError("the answer has no end")
            line, _, rest = answer.partition(b"\r\n")
            status = int(line.split(b" ")[1])
            if status != 101:
                headers = http.client.parse_headers(io.BytesIO(rest))
                text = _exactly(sock, min(int(headers.get("Content-Length") or 0), ERROR_MAX))
                raise _error_from(status, headers, text, space._place.where)
            sock.settimeout(None)
            return sock
        except SpaceError:
            connection.close()
            raise
        except (OSError, ValueError, IndexError) as e:
            connection.close()
            raise _cut(space._place.where, e) from e


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise OSError("it was closed")
        data += chunk
    return data


class Branches:
    """What branch() made: the `checkpoint` they were taken from, the `sandboxes`, and the errors of those that `failed` to start.

    It is iterated for the sandboxes.
    """

    def __init__(self, space: Space, answer: Record):
        self.checkpoint: Record = answer.checkpoint
        self.sandboxes: List[Sandbox] = [Sandbox(space, s) for s in answer.sandboxes]
        self.failed: List[SpaceError] = [_error_of(e) for e in answer.failed]

    def __iter__(self) -> Iterator[Sandbox]:
        return iter(self.sandboxes)

    def __len__(self) -> int:
        return len(self.sandboxes)


class Process:
    """A command in a sandbox. Iterated, it gives its output as it comes, and ends when the command has; then `exit` is there.

    A connection that is cut is made again, from exactly where the output was.
    """

    def __init__(self, space: Space, sandbox: str, pid: int, attach_token: Optional[str] = None, answer: Optional[_Answer] = None,
                 events: Optional[Iterator[tuple]] = None, last_id: Optional[str] = None):
        self._space, self.sandbox_id, self.pid, self.attach_token = space, sandbox, pid, attach_token
        self._path = f"/v1/sandboxes/{_segment(sandbox)}/processes/{pid}"
        self._answer, self._events, self._last, self._asked = answer, events, last_id, {}
        self._closed = False
        self.exit: Optional[Record] = None

    def __repr__(self) -> str:
        return f"<Process {self.pid} of {self.sandbox_id}>"

    def output(self, *, stdout: Optional[int] = None, stderr: Optional[int] = None, offset: Optional[int] = None,
               last_event_id: Optional[str] = None) -> "Process":
        """The same command with its output read anew: from the start, from offsets in its streams, or from the id of an event."""
        again = Process(self._space, self.sandbox_id, self.pid, self.attach_token)
        again._asked = {"stdout": stdout, "stderr": stderr, "offset": offset}
        again._last = last_event_id
        return again

    def output_url(self) -> str:
        """Where its output can be followed with the token, by a browser's EventSource for example."""
        return f"{self._space.url}{self._path}/output" + _query({"attach_token": self.attach_token})

    @property
    def last_event_id(self) -> Optional[str]:
        """How far it was read: output(last_event_id=…) goes on there, in another program too."""
        return self._last

    def _open(self) -> None:
        headers = {"Accept": "text/event-stream"}
        if self.attach_token:
            headers["X-Attach-Token"] = self.attach_token
        if self._last is not None:
            headers["Last-Event-ID"] = self._last
        query = _query(self._asked if self._last is None else {})
        self._answer = self._space._open_events("GET", f"{self._path}/output{query}", headers)
        self._events = self._answer.events()

    def __iter__(self) -> Iterator[Output]:
        patience = _Patience(self._space.resume)
        self._closed = False
        try:
            while self.exit is None:
                try:
                    yield from self._pieces(patience)
                except SpaceError as e:
                    self._drop()
                    if self._closed:
                        return
                    if e.code != "daemon_down":
                        raise
                    patience.again(e)
        finally:
            self._drop()  # whoever leaves and comes back goes on from the last id

    def _pieces(self, patience: _Patience) -> Iterator[Output]:
        """Those of one connection; the command's end, or an error."""
        if self._events is None:
            self._open()
        for id, name, data in self._events:
            patience.heard()
            self._last = id if id is not None else self._last
            if name == "exit":
                self.exit = data
                return
            if name == "error":
                raise _error_of(data)
            if name == "gap":
                yield Output(data.stream, b"", data["from"], data.to - data["from"])
            elif name in ("stdout", "stderr", "pty"):
                yield Output(name, base64.b64decode(data.base64) if "base64" in data else data.data.encode(), data.offset)
        raise _cut(self._answer.where if self._answer else self._space._place.where, None)

    def wait(self, *, limit: int = WAIT_MAX) -> Result:
        """Reads to the end. limit: bytes that are kept of each stream."""
        kept = {"stdout": bytearray(), "stderr": bytearray()}
        truncated = {"stdout": False, "stderr": False}
        next_offset = {"stdout": 0, "stderr": 0}
        for piece in self:
            name = "stderr" if piece.stream == "stderr" else "stdout"
            data = piece.data[:limit - len(kept[name])] if not truncated[name] else b""
            if len(data) < len(piece.data) or piece.lost:
                truncated[name] = True
            if data:
                kept[name] += data
                next_offset[name] = piece.offset + len(data)
        if self.exit is None:
            raise _cut(self._space._place.where, "close() was called")
        return Result(self.pid, bytes(kept["stdout"]), bytes(kept["stderr"]), self.exit, truncated, next_offset)

    def write(self, data: Bytes, *, close: Optional[bool] = None) -> None:
        """Bytes for its standard input or terminal; returns when the command has taken them. close: and no more."""
        self._space._call("POST", self._path + "/stdin", query={"close": close}, body=data, slow=True)

    def close_stdin(self) -> None:
        self.write(b"", close=True)

    def signal(self, signal: Union[int, str], *, group: Optional[bool] = None) -> None:
        """A signal by its number or name; group: to every process that the command started."""
        self._space._call("POST", self._path + "/signal", json_body=_given(signal=signal, group=group))

    def kill(self) -> None:
        """Kills it and every process that it started."""
        self.signal("KILL", group=True)

    def resize(self, cols: int, rows: int) -> None:
        """The size of its terminal."""
        self._space._call("POST", self._path + "/resize", json_body={"cols": cols, "rows": rows})

    def _drop(self) -> None:
        answer, self._answer, self._events = self._answer, None, None
        if answer:
            answer.close()

    def close(self) -> None:
        """Stops reading, also in another thread; the command goes on, and so does a later iteration."""
        self._closed = True
        answer = self._answer
        if answer:
            answer.close()
