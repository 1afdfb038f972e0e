"""The endpoint itself: an HTTP server whose every question waits until the agent has asked our model."""

import json
import os
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from queue import Empty, SimpleQueue
from socketserver import TCPServer, ThreadingMixIn, UnixStreamServer
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

from mlagentbench.endpoint.base import Dialect, Json, MalformedRequest, parse_body
from mlagentbench.endpoint.chat import Chat
from mlagentbench.endpoint.messages import Messages
from mlagentbench.endpoint.responses import Responses
from mlagentbench.records import Prompt, Reply

MAX_REQUEST_BYTES = 32 * 2**20  # bytes of a question
MAX_CONNECTIONS = 64  # at once
SHUTDOWN_POLL_S = 0.02  # seconds between two looks whether it is over
READ_TIMEOUT_S = 60  # seconds that a program may take to send the next bytes of a question
DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (Chat(), Messages(), Responses())}
STATUS_BY_KIND = {"budget": 403, "model": 502, "unknown_path": 404, "too_large": 413}  # all else is 400


class RequestRefused(Exception):
    """Why a question gets no answer; `kind` is what programs go by."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ModelRequest:
    """A question of the program, and the answer that it waits for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self._reply: Future[Reply] = Future()

    def answer(self, reply: Reply) -> None:
        """Let the program go on."""
        self._reply.set_result(reply)

    def refuse(self, kind: str, message: str) -> None:
        """Tell the program why there is no answer."""
        self._reply.set_exception(RequestRefused(kind, message))

    def wait_for_reply(self) -> Reply:
        """Until somebody has decided."""
        return self._reply.result()


class Endpoint:
    """Listens on a socket in `folder`, or on a port of the loopback if there is none; questions come out in order."""

    def __init__(self, folder: Path | None) -> None:
        self.requests: SimpleQueue[ModelRequest] = SimpleQueue()
        self.request_fd, self._notify_fd = os.pipe()  # readable when there is a question
        self.connection_slots = BoundedSemaphore(MAX_CONNECTIONS)
        self.request_lock = (
            Lock()
        )  # of those who ask: a question may take a gigabyte, and so only one is read at a time
        self._pending: set[ModelRequest] = set()
        self._open, self._state_lock = True, Lock()
        self._server: _UnixServer | _LoopbackServer = (
            _create_unix_server(folder) if folder else _LoopbackServer(("127.0.0.1", 0), _Handler)
        )
        self._server.endpoint = self
        Thread(target=self._server.serve_forever, args=(SHUTDOWN_POLL_S,), daemon=True).start()

    @property
    def port(self) -> int:
        """Of the loopback."""
        port = self._server.socket.getsockname()[1]
        assert isinstance(port, int)
        return port

    def submit(self, prompt: Prompt) -> Reply:
        """Ask, and wait; nobody is asked any more when the run is over."""
        question = ModelRequest(prompt)
        with self._state_lock:
            if not self._open:
                raise RequestRefused("budget", "the run is over")
            self._pending.add(question)
            self.requests.put(question)
            os.write(self._notify_fd, b"?")
        try:
            return question.wait_for_reply()
        finally:
            self._pending.discard(question)

    def take_request(self) -> ModelRequest | None:
        """The question that waits longest."""
        try:
            question = self.requests.get_nowait()
        except Empty:
            return None
        os.read(self.request_fd, 1)
        return question

    def close(self) -> None:
        """Refuse what still waits, and listen no more."""
        with self._state_lock:
            self._open = False
        for question in list(self._pending):
            with suppress(Exception):
                question.refuse("budget", "the run is over")
        self._server.shutdown()
        self._server.server_close()
        for fd in (self.request_fd, self._notify_fd):
            with suppress(OSError):
                os.close(fd)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the program's."""

    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT_S

    def handle(self) -> None:
        """Whoever opens very many connections gets nothing on the last ones; whoever hangs up is not missed."""
        slots = self._endpoint.connection_slots
        if not slots.acquire(blocking=False):
            return
        try:
            with suppress(ConnectionError, TimeoutError):
                super().handle()
        finally:
            slots.release()

    def do_GET(self) -> None:
        """Which models there are: one."""
        if self.path.partition("?")[0] != "/v1/models":
            return self._send_json(
                404, DIALECTS["/v1/chat/completions"].error_body("unknown_path", f"there is no {self.path}")
            )
        model = {"id": "model", "object": "model", "type": "model", "created": 0, "owned_by": "mlagentbench"}
        return self._send_json(200, {"object": "list", "data": [model], "has_more": False})

    def do_POST(self) -> None:
        """A question in one of the dialects."""
        path = self.path.partition("?")[0]
        dialect = DIALECTS.get(path.removesuffix("/count_tokens"), DIALECTS["/v1/chat/completions"])
        try:
            with self._endpoint.request_lock:
                answer = self._respond(path, dialect)
        except (MalformedRequest, RecursionError) as error:
            return self._send_json(400, dialect.error_body("invalid_request", str(error)))
        except RequestRefused as error:
            return self._send_json(
                STATUS_BY_KIND.get(error.kind, 400), dialect.error_body(error.kind, str(error))
            )
        return self._send_stream(answer) if isinstance(answer, list) else self._send_json(200, answer)

    def _respond(self, path: str, dialect: Dialect) -> Json | list[str]:
        """What is said to the question that comes next on the wire: in one piece, or as events."""
        body = self._read_body()
        if path == "/v1/messages/count_tokens":
            size = sum(
                len(message.text) for message in dialect.parse_request({**body, "max_tokens": 1}).messages
            )
            return {"input_tokens": size // 4 + 1}
        if path not in DIALECTS:
            raise RequestRefused("unknown_path", f"there is no {path}")
        reply = self._endpoint.submit(dialect.parse_request(body))
        return (
            list(_encode_stream(dialect, reply, body)) if body.get("stream") else dialect.response_body(reply)
        )

    @property
    def _endpoint(self) -> Endpoint:
        assert isinstance(self.server, _ThreadingServer)
        return self.server.endpoint

    def _read_body(self) -> Json:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            self.close_connection = True
            raise MalformedRequest("a question must say its Content-Length")
        if len(size) > 12 or int(size) > MAX_REQUEST_BYTES:
            self.close_connection = True
            raise RequestRefused("too_large", f"a question may have {MAX_REQUEST_BYTES:,} bytes")
        return parse_body(self.rfile.read(int(size)))

    def _send_json(self, code: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_stream(self, frames: list[str]) -> None:
        self.close_connection = True  # the end of the stream is the end of the connection
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for frame in frames:
            self.wfile.write(frame.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it; model_calls.jsonl has all that matters."""

    def address_string(self) -> str:
        """A socket in a folder has no address."""
        return "the sandbox"


def _encode_stream(dialect: Dialect, reply: Reply, body: Json) -> Iterator[str]:
    yield from (dialect.encode_event(event) for event in dialect.stream_events(reply, body))
    yield dialect.stream_end


class _ThreadingServer(ThreadingMixIn):
    endpoint: Endpoint
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A program that misbehaves is no trouble of ours."""


class _UnixServer(_ThreadingServer, UnixStreamServer):
    request_queue_size = MAX_CONNECTIONS


class _LoopbackServer(_ThreadingServer, TCPServer):
    request_queue_size = MAX_CONNECTIONS
    allow_reuse_address = True


def _create_unix_server(folder: Path) -> _UnixServer:
    """A server on folder/socket, by a path that is never too long for a socket."""
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        server = _UnixServer(f"/proc/self/fd/{place}/socket", _Handler)
    finally:
        os.close(place)
    (folder / "socket").chmod(0o666)  # for the sandbox's user; nobody else can reach the folder
    assert server.socket.family == socket.AF_UNIX
    return server
