"""The endpoint: an HTTP server that holds each request until the agent has passed it to the run's model."""

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

MAX_REQUEST_BYTES = 32 * 2**20
MAX_CONNECTIONS = 64  # open at the same time
SHUTDOWN_POLL_S = 0.02
READ_TIMEOUT_S = 60  # for the next bytes of a request
DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (Chat(), Messages(), Responses())}
RUN_OVER = "The run is over."
STATUS_BY_KIND = {"budget": 403, "model": 502, "unknown_path": 404, "too_large": 413}  # others: 400


class RequestRefused(Exception):
    """A request gets no reply; `kind` is the error code that programs see."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ModelRequest:
    """A request of the program, and the reply that it waits for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self._reply: Future[Reply] = Future()

    def answer(self, reply: Reply) -> None:
        """Send the reply to the program."""
        self._reply.set_result(reply)

    def refuse(self, kind: str, message: str) -> None:
        """Send an error to the program."""
        self._reply.set_exception(RequestRefused(kind, message))

    def wait_for_reply(self) -> Reply:
        """Wait until the request is answered or refused."""
        return self._reply.result()


class Endpoint:
    """Listens on a socket in `folder`, or on a loopback port if that is None; queues requests in order."""

    def __init__(self, folder: Path | None) -> None:
        self.requests: SimpleQueue[ModelRequest] = SimpleQueue()
        self.request_fd, self._notify_fd = os.pipe()  # readable while a request waits
        self.connection_slots = BoundedSemaphore(MAX_CONNECTIONS)
        self.request_lock = Lock()  # one at a time, since parsing a request may take a gigabyte of memory
        self._pending: set[ModelRequest] = set()
        self._open, self._state_lock = True, Lock()
        self._server: _UnixServer | _LoopbackServer = (
            _create_unix_server(folder) if folder else _LoopbackServer(("127.0.0.1", 0), _Handler)
        )
        self._server.endpoint = self
        Thread(target=self._server.serve_forever, args=(SHUTDOWN_POLL_S,), daemon=True).start()

    @property
    def port(self) -> int:
        """The loopback port."""
        port = self._server.socket.getsockname()[1]
        assert isinstance(port, int)
        return port

    def submit(self, prompt: Prompt) -> Reply:
        """Queue a request and wait for the reply; refused when the run is over."""
        request = ModelRequest(prompt)
        with self._state_lock:
            if not self._open:
                raise RequestRefused("budget", RUN_OVER)
            self._pending.add(request)
            self.requests.put(request)
            os.write(self._notify_fd, b"?")
        try:
            return request.wait_for_reply()
        finally:
            self._pending.discard(request)

    def take_request(self) -> ModelRequest | None:
        """The request that has waited longest, or None."""
        try:
            request = self.requests.get_nowait()
        except Empty:
            return None
        os.read(self.request_fd, 1)
        return request

    def close(self) -> None:
        """Refuse all waiting requests and stop listening."""
        with self._state_lock:
            self._open = False
        for request in list(self._pending):
            with suppress(Exception):
                request.refuse("budget", RUN_OVER)
        self._server.shutdown()
        self._server.server_close()
        for fd in (self.request_fd, self._notify_fd):
            with suppress(OSError):
                os.close(fd)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the program."""

    protocol_version = "HTTP/1.1"
    timeout = READ_TIMEOUT_S

    def handle(self) -> None:
        """Serve the connection, or drop it if too many are open; disconnects are ignored."""
        slots = self._endpoint.connection_slots
        if not slots.acquire(blocking=False):
            return
        try:
            with suppress(ConnectionError, TimeoutError):
                super().handle()
        finally:
            slots.release()

    def do_GET(self) -> None:
        """List the models: there is one."""
        if self.path.partition("?")[0] != "/v1/models":
            return self._send_json(
                404,
                DIALECTS["/v1/chat/completions"].error_body("unknown_path", f"No such path: {self.path}"),
            )
        model = {"id": "model", "object": "model", "type": "model", "created": 0, "owned_by": "mlagentbench"}
        return self._send_json(200, {"object": "list", "data": [model], "has_more": False})

    def do_POST(self) -> None:
        """Answer a request in one of the dialects."""
        path = self.path.partition("?")[0]
        dialect = DIALECTS.get(path.removesuffix("/count_tokens"), DIALECTS["/v1/chat/completions"])
        try:
            with self._endpoint.request_lock:
                response = self._respond(path, dialect)
        except (MalformedRequest, RecursionError) as error:
            return self._send_json(400, dialect.error_body("invalid_request", str(error)))
        except RequestRefused as error:
            return self._send_json(
                STATUS_BY_KIND.get(error.kind, 400), dialect.error_body(error.kind, str(error))
            )
        return self._send_stream(response) if isinstance(response, list) else self._send_json(200, response)

    def _respond(self, path: str, dialect: Dialect) -> Json | list[str]:
        """Read the next request; return the response as one body or as a list of events."""
        body = self._read_body()
        if path == "/v1/messages/count_tokens":
            prompt = dialect.parse_request({**body, "max_tokens": 1})
            return {"input_tokens": sum(len(message.text) for message in prompt.messages) // 4 + 1}
        if path not in DIALECTS:
            raise RequestRefused("unknown_path", f"No such path: {path}")
        reply = self._endpoint.submit(dialect.parse_request(body))
        if body.get("stream"):
            return list(_encode_stream(dialect, reply, body))
        return dialect.response_body(reply)

    @property
    def _endpoint(self) -> Endpoint:
        assert isinstance(self.server, _ThreadingServer)
        return self.server.endpoint

    def _read_body(self) -> Json:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            self.close_connection = True
            raise MalformedRequest("A request must have a Content-Length.")
        if len(size) > 12 or int(size) > MAX_REQUEST_BYTES:
            self.close_connection = True
            raise RequestRefused("too_large", f"A request may have at most {MAX_REQUEST_BYTES:,} bytes.")
        return parse_body(self.rfile.read(int(size)))

    def _send_json(self, code: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_stream(self, events: list[str]) -> None:
        self.close_connection = True  # closing the connection ends the stream
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in events:
            self.wfile.write(event.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: model_calls.jsonl has everything that matters."""

    def address_string(self) -> str:
        """A fixed name, since a Unix socket has no address."""
        return "the sandbox"


def _encode_stream(dialect: Dialect, reply: Reply, body: Json) -> Iterator[str]:
    yield from (dialect.encode_event(event) for event in dialect.stream_events(reply, body))
    yield dialect.stream_end


class _ThreadingServer(ThreadingMixIn):
    endpoint: Endpoint
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors caused by a misbehaving program."""


class _UnixServer(_ThreadingServer, UnixStreamServer):
    request_queue_size = MAX_CONNECTIONS


class _LoopbackServer(_ThreadingServer, TCPServer):
    request_queue_size = MAX_CONNECTIONS
    allow_reuse_address = True


def _create_unix_server(folder: Path) -> _UnixServer:
    """A server on folder/socket, bound by way of /proc since socket paths are limited to about 100 bytes."""
    folder_fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        server = _UnixServer(f"/proc/self/fd/{folder_fd}/socket", _Handler)
    finally:
        os.close(folder_fd)
    (folder / "socket").chmod(0o666)  # for the sandbox's user; no one else can reach the folder
    assert server.socket.family == socket.AF_UNIX
    return server
