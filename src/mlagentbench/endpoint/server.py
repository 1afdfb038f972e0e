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

from mlagentbench.endpoint.base import Dialect, Json, MalformedRequest, UnsupportedRequest
from mlagentbench.endpoint.fields import object_field, parse_body, text_field
from mlagentbench.endpoint.routes import CHAT, Route, count_tokens_body, find_model_info, find_route
from mlagentbench.formatting import to_single_line
from mlagentbench.records import Prompt, Reply

MAX_REQUEST_BYTES = 32 * 2**20
MAX_CONNECTIONS = 64  # open at the same time
SHUTDOWN_POLL_S = 0.02
READ_TIMEOUT_S = 60  # for the next bytes of a request
MAX_REFUSALS = 100  # that are remembered for the record of the run
MAX_REFUSAL_CHARS = 500  # of one refusal; its message may quote the request
CHARS_PER_TOKEN = 4  # for programs that ask how many tokens a request has
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
        self.answered = False  # whether any request has been answered
        self._refusals: list[str] = []
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

    def record_refusal(self, target: str, message: str) -> None:
        """Remember that a request was refused, for the people who read the run."""
        if len(self._refusals) < MAX_REFUSALS:
            words = f"{target.partition('?')[0][:100]}: {message[:MAX_REFUSAL_CHARS]}".split()
            self._refusals.append(to_single_line(" ".join(words), 2 * MAX_REFUSAL_CHARS))

    def take_refusals(self) -> list[str]:
        """The refusals since the last call: the path of each request, and why it was refused."""
        refusals, self._refusals = self._refusals, []
        return refusals

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

    def do_HEAD(self) -> None:
        """Tell a program that checks the connection that there is one."""
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self) -> None:
        """Describe the models: there is one, under any name."""
        info = find_model_info(self.path)
        if info is None:
            return self._send_json(404, CHAT.error_body("unknown_path", f"No such path: {self.path}"))
        return self._send_json(200, info)

    def do_POST(self) -> None:
        """Answer a request in one of the dialects."""
        route = find_route(self.path)
        try:
            with self._endpoint.request_lock:
                response = self._respond(route)
        except UnsupportedRequest as error:
            return self._refuse(route, "unsupported", str(error))
        except (MalformedRequest, RecursionError) as error:
            return self._refuse(route, "invalid_request", str(error))
        except RequestRefused as error:
            return self._refuse(route, error.kind, str(error))
        return (
            self._send_stream(response) if isinstance(response, _Stream) else self._send_json(200, response)
        )

    def _respond(self, route: Route) -> "Json | list[Json] | _Stream":
        """Read the next request; return the response as one body or as a list of events."""
        body, dialect = self._read_body(), route.dialect
        if not route.action:
            raise RequestRefused("unknown_path", f"No such path: {self.path}")
        if route.action == "count_tokens":
            prompt = dialect.parse_request(object_field(body, "generateContentRequest") or body)
            chars = sum(len(message.text) for message in prompt.messages)
            return count_tokens_body(dialect, chars // CHARS_PER_TOKEN + 1)
        model_name, prompt = route.model or text_field(body, "model"), dialect.parse_request(body)
        reply = self._endpoint.submit(prompt)
        self._endpoint.answered = True
        # Programs drop the reasoning of replies that seem to come from another model than they asked for.
        reply = reply.replace(model=model_name or reply.model)
        if route.action == "stream_array":
            return [data for _, data in dialect.stream_events(reply, body)]
        if route.action == "stream" or body.get("stream"):
            return _Stream(_encode_stream(dialect, reply, body))
        return dialect.response_body(reply, body)

    def _refuse(self, route: Route, kind: str, message: str) -> None:
        self._endpoint.record_refusal(self.path, message)
        self._send_json(STATUS_BY_KIND.get(kind, 400), route.dialect.error_body(kind, message))

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
        data = self.rfile.read(int(size))
        if len(data) < int(size):
            raise ConnectionAbortedError("The program closed the connection within a request.")
        return parse_body(data)

    def _send_json(self, code: int, body: Json | list[Json]) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_stream(self, events: "_Stream") -> None:
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


class _Stream(list[str]):
    """Encoded server-sent events."""


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
