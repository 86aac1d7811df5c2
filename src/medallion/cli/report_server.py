"""`medallion report --serve`: the page on loopback, which fetches itself while it is open."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from medallion.cli.report import report_html
from medallion.cli.terminal import print_message
from medallion.config.model import Config
from medallion.errors import ITEM_ERRORS, UsageError, error_message
from medallion.inspect.overview import take_overview
from medallion.storage.text import error_reason

REFRESH_SECONDS = 5
_ADDRESS = "127.0.0.1"


class ReportServer(ThreadingHTTPServer):
    """A server of one page, created again if it is older than `REFRESH_SECONDS`."""

    def __init__(self, config: Config, port: int) -> None:
        super().__init__((_ADDRESS, port), _Handler)
        self._config, self._lock = config, threading.Lock()
        self._page, self._created_at = b"", -float("inf")

    def page(self) -> bytes:
        """Return the page; beside a stream it does not wait for unrecorded batches."""
        with self._lock:
            if time.monotonic() - self._created_at > REFRESH_SECONDS:
                overview = take_overview(self._config, patience=0)
                self._page = report_html(overview, REFRESH_SECONDS).encode()
                self._created_at = time.monotonic()
            return self._page


class _Handler(BaseHTTPRequestHandler):
    server: ReportServer

    def do_GET(self) -> None:
        # By any other name, a website could read the page.
        hosts = [f"{name}:{self.server.server_port}" for name in (_ADDRESS, "localhost")]
        if self.headers.get("Host") not in hosts:
            self.send_error(403)
        elif self.path != "/":
            self.send_error(404)
        else:
            self._send_page()

    def _send_page(self) -> None:
        try:
            status, page, type_ = 200, self.server.page(), "text/html"
        except ITEM_ERRORS as error:
            status, page, type_ = 503, error_message(error).encode(), "text/plain"
        self.send_response(status)
        self.send_header("Content-Type", f"{type_}; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def serve_report(config: Config, port: int) -> None:
    """Serve the page until Ctrl-C or SIGTERM.

    Raises:
        UsageError: the port is in use or invalid.
    """
    try:
        server = ReportServer(config, port)
    except (OSError, OverflowError) as error:
        reason = error_reason(error)
        raise UsageError(f"--serve {port}: {reason}; choose another port.") from None
    print_message(f"the report is at http://{_ADDRESS}:{server.server_port}/ until Ctrl-C")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print_message("stopped")
    finally:
        server.server_close()
