"""`view`: the pages of runs on the loopback, following those that still go on."""

import os
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from mlagentbench.errors import BenchError, UsageError
from mlagentbench.reports.anytime import step_grades
from mlagentbench.reports.process.findings import findings
from mlagentbench.reports.runs import Run
from mlagentbench.reports.viewer.pages import run_page, runs_page
from mlagentbench.reports.viewer.shelf import Shelf

LOOPBACK = "127.0.0.1"
NAMES = {LOOPBACK, "localhost"}  # a page whose own name was led to this machine calls us by that
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Server(ThreadingHTTPServer):
    """Answers only this machine, and only with pages made here."""

    daemon_threads = True

    def __init__(self, root: Path, port: int = 0) -> None:
        self.shelf = Shelf(root)
        try:
            super().__init__((LOOPBACK, port), Answer)
        except OSError as error:
            raise UsageError(f"cannot serve on port {port}: {error.strerror}; --port 0 finds a free one") from error

    @property
    def address(self) -> str:
        """What to open."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mlagentbench", ""

    def do_GET(self) -> None:
        """Send a page, or say why not."""
        if self.headers.get("Host", "").lower().partition(":")[0] not in NAMES:
            self._send(HTTPStatus.FORBIDDEN, "this server answers to its own name only")
            return
        asked = urlsplit(self.path)
        try:
            self._answer(os.fsdecode(unquote_to_bytes(asked.path)), dict(parse_qsl(asked.query)))
        except (BenchError, OSError) as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _answer(self, path: str, known: Mapping[str, str]) -> None:
        shelf = self.server.shelf
        if path == "/" and not shelf.single:
            self._send(HTTPStatus.OK, runs_page(shelf.root.name, shelf.rows()), "text/html")
        elif (path == "/" or path.startswith("/run/")) and (found := shelf.run(path[len("/run/") :])):
            self._send_run(*found, known)
        else:
            self._send(HTTPStatus.NOT_FOUND, "there is no such page")

    def _send_run(self, run: Run, now: str, known: Mapping[str, str]) -> None:
        """All of a run, or what a page that has some of it lacks."""
        after = known.get("after", "")
        if known.get("stamp") == now:
            self._send(HTTPStatus.NO_CONTENT)
            return
        home = "" if self.server.shelf.single else "/"
        had = int(after) if after.isdecimal() else 0
        self._send(HTTPStatus.OK, run_page(run, home, findings(run), step_grades(run), now, had), "text/html")

    def _send(self, status: HTTPStatus, text: str = "", kind: str = "text/plain") -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""
