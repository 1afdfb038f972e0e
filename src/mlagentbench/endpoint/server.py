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

from mlagentbench.endpoint.base import Dialect, Json, Malformed, parsed
from mlagentbench.endpoint.chat import Chat
from mlagentbench.endpoint.messages import Messages
from mlagentbench.endpoint.responses import Responses
from mlagentbench.records import Prompt, Reply

LARGEST = 32 * 2**20  # bytes of a question
CONNECTIONS = 64  # at once
LOOK = 0.02  # seconds between two looks whether it is over
SLOW = 60  # seconds that a program may take to send the next bytes of a question
DIALECTS: dict[str, Dialect] = {dialect.path: dialect for dialect in (Chat(), Messages(), Responses())}
CODES = {"budget": 403, "model": 502, "unknown_path": 404, "too_large": 413}  # all else is 400


class Refusal(Exception):
    """Why a question gets no answer; `kind` is what programs go by."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Question:
    """A question of the program, and the answer that it waits for."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt
        self._answer: Future[Reply] = Future()

    def answer(self, reply: Reply) -> None:
        """Let the program go on."""
        self._answer.set_result(reply)

    def refuse(self, kind: str, message: str) -> None:
        """Tell the program why there is no answer."""
        self._answer.set_exception(Refusal(kind, message))

    def wait(self) -> Reply:
        """Until somebody has decided."""
        return self._answer.result()


class Endpoint:
    """Listens on a socket in `folder`, or on a port of the loopback if there is none; questions come out in order."""

    def __init__(self, folder: Path | None) -> None:
        self.questions: SimpleQueue[Question] = SimpleQueue()
        self.news, self._bell = os.pipe()  # readable when there is a question
        self.slots = BoundedSemaphore(CONNECTIONS)
        self.turn = Lock()  # of those who ask: a question may take a gigabyte, and so only one is read at a time
        self._pending: set[Question] = set()
        self._open, self._state = True, Lock()
        self._server: _Socket | _Loopback = _listening(folder) if folder else _Loopback(("127.0.0.1", 0), _Handler)
        self._server.endpoint = self
        Thread(target=self._server.serve_forever, args=(LOOK,), daemon=True).start()

    @property
    def port(self) -> int:
        """Of the loopback."""
        port = self._server.socket.getsockname()[1]
        assert isinstance(port, int)
        return port

    def submit(self, prompt: Prompt) -> Reply:
        """Ask, and wait; nobody is asked any more when the run is over."""
        question = Question(prompt)
        with self._state:
            if not self._open:
                raise Refusal("budget", "the run is over")
            self._pending.add(question)
            self.questions.put(question)
            os.write(self._bell, b"?")
        try:
            return question.wait()
        finally:
            self._pending.discard(question)

    def take(self) -> Question | None:
        """The question that waits longest."""
        try:
            question = self.questions.get_nowait()
        except Empty:
            return None
        os.read(self.news, 1)
        return question

    def close(self) -> None:
        """Refuse what still waits, and listen no more."""
        with self._state:
            self._open = False
        for question in list(self._pending):
            with suppress(Exception):
                question.refuse("budget", "the run is over")
        self._server.shutdown()
        self._server.server_close()
        for fd in (self.news, self._bell):
            with suppress(OSError):
                os.close(fd)


class _Handler(BaseHTTPRequestHandler):
    """One connection of the program's."""

    protocol_version = "HTTP/1.1"
    timeout = SLOW

    def handle(self) -> None:
        """Whoever opens very many connections gets nothing on the last ones; whoever hangs up is not missed."""
        slots = self._endpoint.slots
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
            return self._json(404, DIALECTS["/v1/chat/completions"].error("unknown_path", f"there is no {self.path}"))
        model = {"id": "model", "object": "model", "type": "model", "created": 0, "owned_by": "mlagentbench"}
        return self._json(200, {"object": "list", "data": [model], "has_more": False})

    def do_POST(self) -> None:
        """A question in one of the dialects."""
        path = self.path.partition("?")[0]
        dialect = DIALECTS.get(path.removesuffix("/count_tokens"), DIALECTS["/v1/chat/completions"])
        try:
            with self._endpoint.turn:
                answer = self._answer(path, dialect)
        except (Malformed, RecursionError) as error:
            return self._json(400, dialect.error("invalid_request", str(error)))
        except Refusal as error:
            return self._json(CODES.get(error.kind, 400), dialect.error(error.kind, str(error)))
        return self._stream(answer) if isinstance(answer, list) else self._json(200, answer)

    def _answer(self, path: str, dialect: Dialect) -> Json | list[str]:
        """What is said to the question that comes next on the wire: in one piece, or as events."""
        body = self._body()
        if path == "/v1/messages/count_tokens":
            size = sum(len(message.text) for message in dialect.read({**body, "max_tokens": 1}).messages)
            return {"input_tokens": size // 4 + 1}
        if path not in DIALECTS:
            raise Refusal("unknown_path", f"there is no {path}")
        reply = self._endpoint.submit(dialect.read(body))
        return list(_frames(dialect, reply, body)) if body.get("stream") else dialect.write(reply)

    @property
    def _endpoint(self) -> Endpoint:
        assert isinstance(self.server, _Threads)
        return self.server.endpoint

    def _body(self) -> Json:
        size = self.headers.get("Content-Length", "")
        if not size.isdecimal():
            self.close_connection = True
            raise Malformed("a question must say its Content-Length")
        if len(size) > 12 or int(size) > LARGEST:
            self.close_connection = True
            raise Refusal("too_large", f"a question may have {LARGEST:,} bytes")
        return parsed(self.rfile.read(int(size)))

    def _json(self, code: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, frames: list[str]) -> None:
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


def _frames(dialect: Dialect, reply: Reply, body: Json) -> Iterator[str]:
    yield from (dialect.frame(event) for event in dialect.events(reply, body))
    yield dialect.end


class _Threads(ThreadingMixIn):
    endpoint: Endpoint
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A program that misbehaves is no trouble of ours."""


class _Socket(_Threads, UnixStreamServer):
    request_queue_size = CONNECTIONS


class _Loopback(_Threads, TCPServer):
    request_queue_size = CONNECTIONS
    allow_reuse_address = True


def _listening(folder: Path) -> _Socket:
    """A server on folder/socket, by a path that is never too long for a socket."""
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        server = _Socket(f"/proc/self/fd/{place}/socket", _Handler)
    finally:
        os.close(place)
    (folder / "socket").chmod(0o666)  # for the sandbox's user; nobody else can reach the folder
    assert server.socket.family == socket.AF_UNIX
    return server
