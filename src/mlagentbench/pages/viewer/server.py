"""The server of `view`: pages of runs on the loopback interface, updated while runs are in progress."""

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
# Against DNS rebinding: a foreign page whose host name resolves to this machine sends its own name.
ALLOWED_HOSTS = {LOOPBACK, "localhost"}
RESPONSE_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ViewerServer(ThreadingHTTPServer):
    """Serves only this machine, and only pages rendered here."""

    daemon_threads = True

    def __init__(self, root: Path, port: int = 0) -> None:
        self.run_index = RunIndex(root)
        try:
            super().__init__((LOOPBACK, port), RequestHandler)
        except OSError as error:
            raise UsageError(
                f"Cannot serve on port {port}: {error.strerror}. Use --port 0 for a free port."
            ) from error

    @property
    def url(self) -> str:
        """The address to open in a browser."""
        return f"http://{LOOPBACK}:{self.server_port}/"


class RequestHandler(BaseHTTPRequestHandler):
    """Handles one request."""

    server: ViewerServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mlagentbench", ""

    def do_GET(self) -> None:
        """Send a page or an error."""
        if self.headers.get("Host", "").lower().partition(":")[0] not in ALLOWED_HOSTS:
            self._send(HTTPStatus.FORBIDDEN, "this server answers only to localhost and 127.0.0.1")
            return
        url = urlsplit(self.path)
        try:
            self._route(os.fsdecode(unquote_to_bytes(url.path)), dict(parse_qsl(url.query)))
        except (BenchError, OSError) as error:
            self._send(HTTPStatus.INTERNAL_SERVER_ERROR, str(error))

    def _route(self, path: str, query: Mapping[str, str]) -> None:
        index = self.server.run_index
        if path == "/" and not index.is_single_run:
            self._send(HTTPStatus.OK, render_run_list(index.root.name, index.list_runs()), "text/html")
        elif (path == "/" or path.startswith("/run/")) and (loaded := index.load_run(path[len("/run/") :])):
            self._send_run_page(*loaded, query)
        else:
            self._send(HTTPStatus.NOT_FOUND, "no such page")

    def _send_run_page(self, run: Run, stamp: str, query: Mapping[str, str]) -> None:
        """Send the whole page, or only the steps that the client does not have yet."""
        if query.get("stamp") == stamp:
            self._send(HTTPStatus.NO_CONTENT)
            return
        index_link = "" if self.server.run_index.is_single_run else "/"
        after = int(query["after"]) if query.get("after", "").isdecimal() else 0
        page = render_run_page(run, index_link, collect_findings(run), read_step_grades(run), stamp, after)
        self._send(HTTPStatus.OK, page, "text/html")

    def _send(self, status: HTTPStatus, text: str = "", content_type: str = "text/plain") -> None:
        body = text.encode("utf-8", "backslashreplace")
        self.send_response(status)
        for name, value in RESPONSE_HEADERS.items():
            self.send_header(name, value)
        if status != HTTPStatus.NO_CONTENT:
            self.send_header("Content-Type", f"{content_type}; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
