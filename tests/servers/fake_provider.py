"""A server on the loopback that speaks as OpenAI (chat completions, responses) and Anthropic (messages) do.

    with Wire(Says("hello"), refusal(429, retry_after="0"), Says(calls=(("look", {"at": "it"}),))) as wire:
        ...  # wire.url is its address, wire.seen what it was asked

It answers from its script, one reply a request, streamed or whole as the request asks, and misbehaves where told to.
"""

import itertools
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

from anthropic_api import Messages
from api_formats import ApiError, ApiFormat, Completion, Response
from openai_api import Chat, Responses

Misbehavior = Literal["cut", "end", "error", "stall", "drip", "garbage", "empty"]
CHAT, RESPONSES, MESSAGES = Chat(), Responses(), Messages()
MID_STREAM = ("cut", "end", "error", "stall", "drip")


@dataclass(frozen=True)
class ErrorReply:
    """An error; its body takes the form of whichever API was asked."""

    status: int
    message: str = "something went wrong"
    kind: str = ""  # `type` of the error, where it is not the usual one for the status
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    echo_key: bool = False  # the caller's key in the message, as careless proxies do it


@dataclass(frozen=True)
class BrokenReply:
    """An answer that begins well: cut (the connection drops), end (the stream ends as if it were done), error (an event
    says overloaded), stall (no more bytes, until the server closes), drip (a piece at a time, for ever), garbage (no
    JSON), empty (no content)."""

    misbehavior: Misbehavior
    text: str = "This is the beginning of a longer answer."


ScriptedReply = str | Completion | ErrorReply | BrokenReply


def error_reply(status: int, retry_after: str = "", **details: Any) -> ErrorReply:
    """An error, which may say when to come again: in seconds, or as a date."""
    return ErrorReply(status, headers={"retry-after": retry_after} if retry_after else {}, **details)


@dataclass(frozen=True)
class RecordedRequest:
    """One request."""

    path: str
    headers: dict[str, str]  # by lower-case name
    body: dict[str, Any]


class FakeProvider(ThreadingHTTPServer):
    """The server; leaving its context closes it, and whatever still waits."""

    daemon_threads = True

    def __init__(self, *script: ScriptedReply, key: str = "", pace: float = 0.02, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), RequestHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script: list[ScriptedReply] = list(script)
        self.requests: list[RecordedRequest] = []
        self.key, self.drip_interval_s = key, pace
        self.closing = threading.Event()
        self.numbers = itertools.count(1)
        self._lock = threading.Lock()

    def next_reply(self, seen: RecordedRequest) -> ScriptedReply:
        """What comes next in the script; after its end, an error that no client retries."""
        with self._lock:
            self.requests.append(seen)
            if self.script:
                return self.script.pop(0)
        return ErrorReply(400, f"the script ended: request {len(self.requests)} has no reply")

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are no news."""


class RequestHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeProvider

    def do_GET(self) -> None:
        """The list of models, for programs that look before they ask."""
        if self.path.endswith("/models"):
            listed = {"id": "wire-1", "object": "model", "created": 1700000000, "owned_by": "wire"}
            return self._send_json(200, {"object": "list", "data": [listed]})
        return self._send_error(ErrorReply(404, f"unknown path {self.path}"), CHAT)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        seen = RecordedRequest(self.path, headers, body)
        spoken = api_for_path(self.path)
        if spoken is None:
            self.server.requests.append(seen)
            return self._send_error(ErrorReply(404, f"unknown path {self.path}"), CHAT)
        sent = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not sent or (self.server.key and sent != self.server.key):
            self.server.requests.append(seen)
            return self._send_error(
                ErrorReply(401, "Incorrect API key provided", code="invalid_api_key"), spoken
            )
        if problem := spoken.find_problem(body):
            self.server.requests.append(seen)
            return self._send_error(ErrorReply(400, problem), spoken)
        reply = self.server.next_reply(seen)
        if isinstance(reply, ErrorReply):
            return self._send_error(reply, spoken, sent)
        return self._answer(Completion(reply) if isinstance(reply, str) else reply, spoken, body)

    def _answer(self, reply: Completion | BrokenReply, spoken: ApiFormat, body: dict[str, Any]) -> None:
        how = reply.misbehavior if isinstance(reply, BrokenReply) else ""
        says = Completion("" if how == "empty" else reply.text) if isinstance(reply, BrokenReply) else reply
        answer = Response(says, body, next(self.server.numbers), spoken)
        if how == "garbage":
            return self._send_garbage(bool(body.get("stream")))
        if body.get("stream"):
            return self._stream(spoken, answer, how)
        if how in MID_STREAM:
            return self._stall_or_cut(how)
        return self._send_json(200, spoken.build_body(answer))

    def _send_json(
        self, status: int, body: Any, headers: dict[str, str] | None = None, promised: int = 0
    ) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        shown = {
            "content-type": "application/json",
            "content-length": str(len(data) + promised),
            **(headers or {}),
        }
        for name, value in shown.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _send_error(self, reply: ErrorReply, spoken: ApiFormat, key: str = "") -> None:
        message = f"{reply.message} (Authorization: Bearer {key})" if reply.echo_key else reply.message
        error = ApiError(reply.status, message, reply.kind, reply.code)
        self._send_json(reply.status, spoken.build_error(error), reply.headers)

    def _stream(self, spoken: ApiFormat, answer: Response, how: str) -> None:
        """Server-sent events in chunks; where it misbehaves, it does so once the answer has begun."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(spoken.stream_events(answer)):
            if how in MID_STREAM and number >= spoken.events_before_failure:
                return self._misbehave(how, spoken.build_stream_error(number) if how == "error" else event)
            self._send_chunk(event)
        return self._send_chunk(b"")

    def _misbehave(self, how: str, event: bytes) -> None:
        if how == "error":
            self._send_chunk(event)
        if how in ("end", "error"):
            return self._send_chunk(b"")
        if how == "stall":
            self.server.closing.wait()
        while how == "drip" and not self.server.closing.wait(self.server.drip_interval_s):
            self._send_chunk(event)
        return self._hang_up()

    def _stall_or_cut(self, how: str) -> None:
        if how in ("stall", "drip"):
            self.server.closing.wait()
        self._hang_up()

    def _send_garbage(self, streamed: bool) -> None:
        data = (
            b'data: {"id": "broken", "choices": [{"delta"\n\n'
            if streamed
            else b'{"id": "broken", "choices": [{'
        )
        self.send_response(200)
        self.send_header("content-type", "text/event-stream" if streamed else "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _send_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _hang_up(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def api_for_path(path: str) -> ApiFormat | None:
    """The API at a path, wherever its base is."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return CHAT
    return RESPONSES if path.endswith("/responses") else MESSAGES if path.endswith("/messages") else None
