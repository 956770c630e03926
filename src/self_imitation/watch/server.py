"""Serves the pages of a run or of an experiment to this machine, read-only."""

from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import self_imitation
from self_imitation.errors import bad_value
from self_imitation.report import web_page
from self_imitation.watch.sites import Site

HOST = "127.0.0.1"
SOCKET_SECONDS = 10
"""A client that sends nothing for this long is disconnected."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src 'self' data: blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; frame-ancestors 'none'"


class Pages(ThreadingHTTPServer):
    """The server of one site, on the loopback address only."""

    daemon_threads = True

    def __init__(self, site: Site, port: int):
        super().__init__((HOST, port), _Handler)
        self.site = site

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that closes its connection early is no error."""


def create(site: Site, port: int) -> Pages:
    """A server for the pages of a run or of an experiment; 0 is any free port."""
    web_page.require_packages()
    try:
        return Pages(site, port)
    except OSError as error:
        raise bad_value("port", port, f"{error.strerror}; allowed: a free port, or 0 for any") from None


class _Handler(BaseHTTPRequestHandler):
    server: Pages
    timeout = SOCKET_SECONDS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = f"self-imitation/{self_imitation.__version__}", ""

    def do_GET(self) -> None:
        # A page of another site whose name resolves to this machine must not read the run.
        if self.headers.get("Host") not in (f"{HOST}:{self.server.port}", f"localhost:{self.server.port}"):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"", "text/plain")
            return
        path = self.path.partition("?")[0]
        answer = self.server.site.answer(path.removeprefix("/")) if path.startswith("/") else None
        if answer is None:
            self._answer(HTTPStatus.NOT_FOUND, b"", "text/plain")
        elif (tag := answer.headers.get("ETag")) is not None and self.headers.get("If-None-Match") == tag:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", answer.kind, answer.headers)
        else:
            self._answer(answer.status, answer.body, answer.kind, answer.headers)

    do_HEAD = do_GET  # noqa: N815

    def _refuse(self) -> None:
        self.close_connection = True  # a body may follow, which is not read
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, b"", "text/plain", {"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, extra: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        policy = PAGE_POLICY if kind.startswith("text/html") else DATA_POLICY
        headers = {**HEADERS, "Content-Security-Policy": policy, "Content-Type": kind, **(extra or {})}
        if status != HTTPStatus.NOT_MODIFIED:
            headers["Content-Length"] = str(len(body))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""
