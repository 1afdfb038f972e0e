"""`view`: the pages of runs on the loopback, following those that still go on."""

import os
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote_to_bytes, urlsplit

from mlagentbench.analysis.anytime import read_step_grades
from mlagentbench.analysis.runs import Run
from mlagentbench.errors import BenchError, UsageError
from mlagentbench.pages.viewer.run_index import RunIndex
from mlagentbench.pages.viewer.run_page import render_run_list, render_run_page
from mlagentbench.process.findings import collect_findings

LOOPBACK = "127.0.0.1"
ALLOWED_HOSTS = {LOOPBACK, "localhost"}  # a page whose own name was led to this machine calls us by that
RESPONSE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ViewerServer(ThreadingHTTPServer):
    """Answers only this machine, and only with pages made here."""

    daemon_threads = True

    def __init__(self, root: Path, port: int = 0) -> None:
        self.run_index = RunIndex(root)
        try:
            super().__init__((LOOPBACK, port), RequestHandler)
        except OSError as error:
            raise UsageError(
                f"cannot serve on port {port}: {error.strerror}; --port 0 finds a free one"
            ) from error

    @property
    def url(self) -> str:
        """What to open."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class RequestHandler(BaseHTTPRequestHandler):
    """One request."""

    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mlagentbench", ""

    def do_GET(self) -> None:
        """Send a page, or say why not."""
        if self.headers.get("Host", "").lower().partition(":")[0] not in ALLOWED_HOSTS:
            self._send(HTTPStatus.FORBIDDEN, "this server answers to its own name only")
            return
        asked = urlsplit(self.path)
        try:
            self._route(os.fsdecode(unquote_to_bytes(asked.path)), dict(parse_qsl(asked.query)))
        except (BenchError, OSError) as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _route(self, path: str, known: Mapping[str, str]) -> None:
        shelf = self.server.run_index
        if path == "/" and not shelf.is_single_run:
            self._send(HTTPStatus.OK, render_run_list(shelf.root.name, shelf.list_runs()), "text/html")
        elif (path == "/" or path.startswith("/run/")) and (found := shelf.load_run(path[len("/run/") :])):
            self._send_run_page(*found, known)
        else:
            self._send(HTTPStatus.NOT_FOUND, "there is no such page")

    def _send_run_page(self, run: Run, now: str, known: Mapping[str, str]) -> None:
        """All of a run, or what a page that has some of it lacks."""
        after = known.get("after", "")
        if known.get("stamp") == now:
            self._send(HTTPStatus.NO_CONTENT)
            return
        home = "" if self.server.run_index.is_single_run else "/"
        had = int(after) if after.isdecimal() else 0
        self._send(
            HTTPStatus.OK,
            render_run_page(run, home, collect_findings(run), read_step_grades(run), now, had),
            "text/html",
        )

    def _send(self, status: HTTPStatus, text: str = "", kind: str = "text/plain") -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in RESPONSE_HEADERS.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", f"{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody wants to read it."""
