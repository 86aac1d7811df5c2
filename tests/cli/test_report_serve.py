"""The report served on the loopback address."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from medallion.cli import report
from medallion.cli.report import ReportServer, serve_report
from medallion.errors import UsageError
from tests.support.home import Home
from tests.support.runs import record


@pytest.fixture
def server(home: Home) -> Iterator[ReportServer]:
    home.layout.root.local.mkdir(parents=True)
    server = ReportServer(home.config, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def get(server: ReportServer, path: str = "/", host: str = "") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    connection.request("GET", path, headers={"Host": host} if host else {})
    response = connection.getresponse()
    return response.status, response.read().decode()


def test_server_serves_the_page(server: ReportServer) -> None:
    status, page = get(server)
    assert status == 200
    assert '<body data-refresh="5">' in page
    assert get(server, "/other")[0] == 404
    assert server.server_address[0] == "127.0.0.1"


def test_server_refuses_other_hosts(server: ReportServer) -> None:
    """A website's name that resolves to 127.0.0.1 is not the server's."""
    assert get(server, host=f"evil.example:{server.server_port}")[0] == 403
    assert get(server, host=f"localhost:{server.server_port}")[0] == 200


def test_server_creates_the_page_for_each_request(server: ReportServer, home: Home) -> None:
    assert "1234567" not in get(server)[1]
    record(home.config, "bronze.activity", rows_in=1234567)
    assert "1234567" in get(server)[1]


def test_server_reports_errors(
    server: ReportServer, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(home.layout.root))

    monkeypatch.setattr(report, "take_overview", fail)
    assert get(server) == (503, f"{home.layout.root}: Permission denied.")


def test_serve_report_port_in_use(server: ReportServer, home: Home, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"--serve {server.server_port}: Address already in use"):
        serve_report(home.config, server.server_port)
    with pytest.raises(UsageError, match=r"--serve 70000: .*choose another port"):
        serve_report(home.config, 70000)
