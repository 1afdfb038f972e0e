"""Servers on the loopback interface, and small generated tasks."""

import hashlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mlagentbench.task import Source, Task


class Request(BaseHTTPRequestHandler):
    """One request, which the test's function answers."""

    server: "Server"

    def do_GET(self) -> None:
        self.server.requests.append(self)
        self.server.answer(self)

    def reply(self, status: int, body: bytes = b"", announced: int | None = None, **headers: str) -> None:
        """Send a response; one that announces more than it sends is a dropped connection."""
        self.send_response(status)
        length = len(body) if announced is None else announced
        for name, value in {"Content-Length": str(length), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress the log."""


class Server(ThreadingHTTPServer):
    """A web server on the loopback interface that records its requests."""

    daemon_threads = True

    def __init__(self, answer: Callable[[Request], None]) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.answer = answer
        self.requests: list[Request] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


Serve = Callable[[Callable[[Request], None]], Server]


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


TOML = """
title = "Small"
category = "test"
modality = "tabular"
metric = "error"
better = "lower"
runtime = "tabular"
[editions.open]
size = "tiny"
"""


def small_task(folder: Path, prepare: str, *sources: Source) -> Task:
    """Create a task folder with the given prepare.py."""
    folder.mkdir()
    for part in ("starter", "reference"):
        (folder / part).mkdir()
    tables = [
        "[[editions.open.sources]]\n"
        + "\n".join(f"{key} = {value!r}" for key, value in source.model_dump().items())
        for source in sources
    ]
    (folder / "task.toml").write_text(TOML + "\n".join(tables))
    (folder / "description.md").write_text("Do it.")
    (folder / "grade.py").write_text("def grade(submission, private):\n    return 0.0\n")
    (folder / "prepare.py").write_text(prepare)
    return Task(folder)
