"""A loopback server with the APIs of OpenAI (chat completions, responses) and Anthropic (messages).

    with FakeProvider("hello", error_reply(429, "0"), Completion(calls=(("ls", {}),))) as provider:
        ...  # provider.url is its address, provider.requests are the requests it received

It sends one scripted reply per request, streamed or not as the request asks, and misbehaves if scripted to.
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
    """An error, formatted as the requested API formats errors."""

    status: int
    message: str = "something went wrong"
    kind: str = ""  # `type` of the error, if not the usual one for the status
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    echo_key: bool = False  # repeat the API key in the message, as careless proxies do


@dataclass(frozen=True)
class BrokenReply:
    """A response that starts well and then misbehaves.

    cut: the connection drops; end: the stream ends early, without an error; error: an event reports an
    overload; stall: no more bytes until the server closes; drip: the same chunk again and again;
    garbage: not JSON; empty: no content.
    """

    misbehavior: Misbehavior
    text: str = "This is the beginning of a longer answer."


ScriptedReply = str | Completion | ErrorReply | BrokenReply


def error_reply(status: int, retry_after: str = "", **details: Any) -> ErrorReply:
    """Create an error, optionally with a retry-after header in seconds or as a date."""
    return ErrorReply(status, headers={"retry-after": retry_after} if retry_after else {}, **details)


@dataclass(frozen=True)
class RecordedRequest:
    """A request that the server received."""

    path: str
    headers: dict[str, str]  # names in lower case
    body: dict[str, Any]


class FakeProvider(ThreadingHTTPServer):
    """The server; leaving its context closes it and all stalled connections."""

    daemon_threads = True

    def __init__(
        self, *script: ScriptedReply, key: str = "", drip_interval_s: float = 0.02, port: int = 0
    ) -> None:
        super().__init__(("127.0.0.1", port), RequestHandler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.script: list[ScriptedReply] = list(script)
        self.requests: list[RecordedRequest] = []
        self.key, self.drip_interval_s = key, drip_interval_s
        self.closing = threading.Event()
        self.numbers = itertools.count(1)
        self._lock = threading.Lock()

    def next_reply(self, request: RecordedRequest) -> ScriptedReply:
        """The next reply of the script; after the last one, an error that no client retries."""
        with self._lock:
            self.requests.append(request)
            if self.script:
                return self.script.pop(0)
        return ErrorReply(400, f"no reply is scripted for request {len(self.requests)}")

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect."""


class RequestHandler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: FakeProvider

    def do_GET(self) -> None:
        """Send the list of models."""
        if self.path.endswith("/models"):
            listed = {"id": "wire-1", "object": "model", "created": 1700000000, "owned_by": "wire"}
            return self._send_json(200, {"object": "list", "data": [listed]})
        return self._send_error(ErrorReply(404, f"unknown path {self.path}"), CHAT)

    def do_POST(self) -> None:
        length = int(self.headers.get("content-length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = RecordedRequest(self.path, headers, body)
        api = api_for_path(self.path)
        if api is None:
            self.server.requests.append(request)
            return self._send_error(ErrorReply(404, f"unknown path {self.path}"), CHAT)
        sent = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not sent or (self.server.key and sent != self.server.key):
            self.server.requests.append(request)
            return self._send_error(
                ErrorReply(401, "Incorrect API key provided", code="invalid_api_key"), api
            )
        if problem := api.find_problem(body):
            self.server.requests.append(request)
            return self._send_error(ErrorReply(400, problem), api)
        reply = self.server.next_reply(request)
        if isinstance(reply, ErrorReply):
            return self._send_error(reply, api, sent)
        return self._send_reply(Completion(reply) if isinstance(reply, str) else reply, api, body)

    def _send_reply(self, reply: Completion | BrokenReply, api: ApiFormat, body: dict[str, Any]) -> None:
        misbehavior = reply.misbehavior if isinstance(reply, BrokenReply) else ""
        text = "" if misbehavior == "empty" else reply.text
        completion = Completion(text) if isinstance(reply, BrokenReply) else reply
        response = Response(completion, body, next(self.server.numbers), api)
        if misbehavior == "garbage":
            return self._send_garbage(bool(body.get("stream")))
        if body.get("stream"):
            return self._stream(api, response, misbehavior)
        if misbehavior in MID_STREAM:
            return self._stall_or_cut(misbehavior)
        return self._send_json(200, api.build_body(response))

    def _send_json(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        standard = {"content-type": "application/json", "content-length": str(len(data))}
        for name, value in (standard | (headers or {})).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def _send_error(self, reply: ErrorReply, api: ApiFormat, key: str = "") -> None:
        message = f"{reply.message} (Authorization: Bearer {key})" if reply.echo_key else reply.message
        error = ApiError(reply.status, message, reply.kind, reply.code)
        self._send_json(reply.status, api.build_error(error), reply.headers)

    def _stream(self, api: ApiFormat, response: Response, misbehavior: str) -> None:
        """Send server-sent events in chunks; misbehavior starts after the first few events."""
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, event in enumerate(api.stream_events(response)):
            if misbehavior in MID_STREAM and number >= api.events_before_failure:
                return self._misbehave(
                    misbehavior, api.build_stream_error(number) if misbehavior == "error" else event
                )
            self._send_chunk(event)
        return self._send_chunk(b"")

    def _misbehave(self, misbehavior: str, event: bytes) -> None:
        if misbehavior == "error":
            self._send_chunk(event)
        if misbehavior in ("end", "error"):
            return self._send_chunk(b"")
        if misbehavior == "stall":
            self.server.closing.wait()
        while misbehavior == "drip" and not self.server.closing.wait(self.server.drip_interval_s):
            self._send_chunk(event)
        return self._hang_up()

    def _stall_or_cut(self, misbehavior: str) -> None:
        if misbehavior in ("stall", "drip"):
            self.server.closing.wait()
        self._hang_up()

    def _send_garbage(self, streamed: bool) -> None:
        data = b'{"id": "broken", "choices": [{'
        if streamed:
            data = b'data: {"id": "broken", "choices": [{"delta"\n\n'
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
        """Log nothing."""


def api_for_path(path: str) -> ApiFormat | None:
    """The API at a path, whatever its base URL is."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return CHAT
    return RESPONSES if path.endswith("/responses") else MESSAGES if path.endswith("/messages") else None
