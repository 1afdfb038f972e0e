"""The loopback endpoint over real sockets: questions with parts exchanged, and bytes that are hardly HTTP."""

import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from random import Random

from mutation import dumped, grafted, mutated
from questions import ANSWERS, QUESTIONS

from mlagentbench.endpoint.server import Endpoint

RAISES = ()
WEIGHT, SHORT = 50, 100
PATHS = [*QUESTIONS, "/v1/messages/count_tokens", "/v1/embeddings"]
MAKERS = [(path, grafted(QUESTIONS.get(path, QUESTIONS["/v1/messages"]))) for path in PATHS]


def posted(path: str, body: bytes) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


SEEDS = [posted(path, json.dumps(body).encode()) for path, bodies in QUESTIONS.items() for body in bodies]
SEEDS += [b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n" * 2, b"GET /\r\n", b"HEAD / HTTP/1.0\r\n\r\n"]
WORDS = [
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
FOUND = [(True, b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n{}" % (b"9" * 5000))]
damaged = mutated(SEEDS, WORDS)


def make(random: Random) -> tuple[bool, bytes]:
    """A request, and whether it is whole HTTP, so that it must be answered."""
    if random.random() < 0.5:
        return False, damaged(random)
    path, maker = random.choice(MAKERS)
    return True, posted(path, dumped(maker(random)))


class Asked:
    """An endpoint with somebody who answers, and the errors that it kept to itself."""

    def __init__(self) -> None:
        self.endpoint, self.errors, self._answers = Endpoint(None), list[BaseException](), cycle(ANSWERS)
        self.endpoint._server.handle_error = lambda *_: self.errors.append(sys.exception())  # type: ignore[method-assign]
        threading.Thread(target=self._attend, daemon=True).start()

    def _attend(self) -> None:
        while question := self.endpoint.requests.get():
            if sum(len(message.text) for message in question.prompt.messages) % 5:
                question.answer(next(self._answers))
            else:
                question.refuse("context_length_exceeded", "too long")

    def close(self) -> None:
        self.endpoint.requests.put(None)  # type: ignore[arg-type]
        self.endpoint.close()


@contextmanager
def opened(room: Path) -> Iterator[Asked]:
    """An endpoint for all cases."""
    asked = Asked()
    try:
        yield asked
    finally:
        asked.close()


def attempt(case: tuple[bool, bytes], asked: Asked) -> None:
    whole, request = case
    answer = b""
    with socket.create_connection(("127.0.0.1", asked.endpoint.port), timeout=20) as raw, suppress(OSError):
        raw.sendall(request)
        raw.shutdown(socket.SHUT_WR)
        while data := raw.recv(1 << 16):
            answer += data
    if asked.errors:
        raise asked.errors.pop()
    if whole:
        assert answer.split(b" ")[1] in (b"200", b"400", b"404", b"413"), answer[:200]
