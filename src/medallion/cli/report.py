"""The HTML page of `medallion report`: one file that needs no network.

`--serve` shows it on loopback, where it fetches itself while it is open.

`page/` has the template, the style, the script, and the charts' library. The script may run, and
no other: a policy in the page names it by its hash.
"""

import base64
import hashlib
import os
import threading
from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from medallion.cli import charts, render_runs
from medallion.cli.terminal import cell_text, print_message, shown_text
from medallion.config.model import Config
from medallion.errors import ITEM_ERRORS, UsageError, error_message
from medallion.inspect.balance import shown_figures
from medallion.inspect.overview import Overview, take_overview
from medallion.state.runs import parse_failures
from medallion.storage.layout import layer_of, short_name
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, SOURCE_FILE, TECHNICAL_COLUMNS
from medallion.storage.text import counted, error_reason, printable

REFRESH_SECONDS = 5
_ADDRESS = "127.0.0.1"
_LONGEST_CELL = 400


def write_report(overview: Overview, page: str | os.PathLike[str]) -> str:
    """Write the page and return its path.

    Raises:
        UsageError: it cannot be written.
    """
    path = StoragePath(page).resolved()  # an atomic write replaces a link such as /dev/stdout
    try:
        if path.is_stored() and not path.info():  # or a device
            raise ValueError("not a regular file")
        if not path.parent.is_directory():
            raise ValueError("there is no such folder")
        path.write_atomic(report_html(overview))
    except (OSError, ValueError) as error:
        advice = "name a file in an existing, writable folder"
        raise UsageError(f"--output {page}: {error_reason(error)}; {advice}.") from None
    return str(page)


def report_html(overview: Overview, refresh_seconds: int = 0) -> str:
    """Return the page as HTML.

    Args:
        overview: the content.
        refresh_seconds: how often a served page fetches itself; 0 for a file.
    """
    library, script = _asset("echarts.min.js"), _asset("page.js")
    template = _environment().get_template("page.html.j2")
    return template.render(
        overview=overview,
        balance_verdict=render_runs.balance_verdict(overview.audit),
        refresh_seconds=refresh_seconds,
        stale={p.subject: p.sentence for p in overview.seen.verdict.problems if p.code == "stale"},
        statuses={short_name(each.query): each for each in overview.statuses},
        balance=shown_figures("source", overview.audit.balances),
        charts=charts.all_charts(overview),
        css=_asset("page.css"),
        library=library,
        script=script,
        script_sources=Markup(f"'{_hash(library)}' '{_hash(script)}'"),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("medallion.cli", "page"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: value if isinstance(value, Markup) else printable(str(value)),
    )
    environment.filters.update(cell=_cell, utc=_time, counted=counted, layer=layer_of)
    environment.filters.update(example=_example, failures=parse_failures)
    environment.tests["time"] = lambda value: isinstance(value, date)
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}  # in the order of the data
    return environment


@cache
def _asset(name: str) -> Markup:
    loader = _environment().loader
    assert loader is not None
    return Markup(loader.get_source(_environment(), name)[0])


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _cell(value: Any) -> str:
    """Return a value as the text of a table's cell."""
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, datetime):
        has_seconds = value.second or value.microsecond
        return value.replace(tzinfo=None).isoformat(" ", "auto" if has_seconds else "minutes")
    shown = shown_text(value)
    return shown if len(shown) <= _LONGEST_CELL else f"{shown[: _LONGEST_CELL - 1]}…"


def _time(micros: int | None) -> datetime | None:
    return None if micros is None else datetime.fromtimestamp(micros // 1_000_000, UTC)


def _example(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return rule, time and file of a quarantined row, and its other values in one string."""
    technical = {"rule", FAILED_RULES, INGESTED_AT, SOURCE_FILE, "_source_modified_at"}
    names = [name for name in row if name not in technical or name in TECHNICAL_COLUMNS[:2]]
    values = ", ".join(f"{name}: {cell_text(row[name])}" for name in names)
    return row["rule"], row.get(INGESTED_AT), row.get(SOURCE_FILE), values


class ReportServer(ThreadingHTTPServer):
    """A server of one page, which is created for each request, one at a time."""

    def __init__(self, config: Config, port: int) -> None:
        super().__init__((_ADDRESS, port), _Handler)
        self._config, self._lock = config, threading.Lock()

    def page(self) -> bytes:
        """Return the page; beside a stream it does not wait for unrecorded batches."""
        with self._lock:
            return report_html(take_overview(self._config, patience=0), REFRESH_SECONDS).encode()


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
        raise UsageError(f"--serve {port}: {error_reason(error)}; choose another port.") from None
    print_message(f"the report is at http://{_ADDRESS}:{server.server_port}/ until Ctrl-C")
    try:
        server.serve_forever(poll_interval=0.2)
    except KeyboardInterrupt:
        print_message("stopped")
    finally:
        server.server_close()
