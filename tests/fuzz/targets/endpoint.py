"""The loopback endpoint over real sockets: requests with parts replaced, and malformed HTTP."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from random import Random

from api_requests import REPLIES, REQUESTS
from mutation import dump_json, mutate_bytes, mutate_json

from mlagentbench.endpoint.server import Endpoint

EXPECTED_ERRORS = ()
CASES_PER_1000, SHORT_CASES = 50, 100
PATHS = [*REQUESTS, "/v1/messages/count_tokens", "/v1beta/models/m:countTokens", "/v1/embeddings"]
MAKERS = [(path, mutate_json(REQUESTS.get(path, REQUESTS["/v1/messages"]))) for path in PATHS]


def post_request(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


SEEDS = [
    post_request(path, json.dumps(body).encode()) for path, bodies in REQUESTS.items() for body in bodies
]
SEEDS += [b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 2, b"GET /\r\n", b"HEAD / HTTP/1.0\r\n\r\n"]
TOKENS = [
    *(
        b"\r\n",
        b"\r\n\r\n",
        b"\n",
        b" ",
        b":",
        b"HTTP/1.1",
        b"HTTP/2.0",
        b"HTTP/9999999999999.1",
        b"POST ",
        b"GET ",
        b"?",
    ),
    *(
        b"Content-Length: 5\r\n",
        b"Content-Length: 99999999999\r\n",
        b"Content-Length: -1\r\n",
        b"Connection: close\r\n",
    ),
    *(
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Expect: 100-continue\r\n",
    ),
    *(
        b"A: b\r\n" * 120,
        b"A" * 70_000,
        "Content-Length: ²\r\n".encode("latin-1"),
        b'"\\ud800"',
        b"%00",
        b"//",
        b"*",
    ),
]
REGRESSION_CASES = [
    (True, b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n{}" % (b"9" * 5000))
]
mutate = mutate_bytes(SEEDS, TOKENS)


def make_case(random: Random) -> tuple[bool, bytes]:
    """A request, and whether it is valid HTTP, which must be answered."""
    if random.random() < 0.5:
        return False, mutate(random)
    path, maker = random.choice(MAKERS)
    return True, post_request(path, dump_json(maker(random)))


class AnsweringEndpoint:
    """An endpoint, a thread that answers its requests, and the errors of its handlers."""

    def __init__(self) -> None:
        self.endpoint, self.errors, self._replies = Endpoint(None), list[BaseException](), cycle(REPLIES)
        self.endpoint._server.handle_error = lambda *_: self.errors.append(sys.exception())  # type: ignore[method-assign]
        threading.Thread(target=self._answer_requests, daemon=True).start()

    def _answer_requests(self) -> None:
        while request := self.endpoint.requests.get():
            if sum(len(message.text) for message in request.prompt.messages) % 5:
                request.answer(next(self._replies))
            else:
                request.refuse("context_length_exceeded", "too long")

    def close(self) -> None:
        self.endpoint.requests.put(None)  # type: ignore[arg-type]
        self.endpoint.close()


@contextmanager
def open_fixture(folder: Path) -> Iterator[AnsweringEndpoint]:
    """Open one endpoint for all cases."""
    endpoint = AnsweringEndpoint()
    try:
        yield endpoint
    finally:
        endpoint.close()


def run_case(case: tuple[bool, bytes], endpoint: AnsweringEndpoint) -> None:
    is_valid_http, request = case
    response = b""
    with (
        socket.create_connection(("127.0.0.1", endpoint.endpoint.port), timeout=20) as raw,
        suppress(OSError),
    ):
        raw.sendall(request)
        raw.shutdown(socket.SHUT_WR)
        while data := raw.recv(1 << 16):
            response += data
    if endpoint.errors:
        raise endpoint.errors.pop()
    if is_valid_http:
        assert response.split(b" ")[1] in (b"200", b"400", b"404", b"413"), response[:200]
