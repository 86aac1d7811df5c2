"""The Thrift server, queried by Beeline from PySpark's jars."""

from __future__ import annotations

import signal
import socket
from pathlib import Path

import pytest

from medallion.cli.main import main
from tests.support.command import Cli, run_beeline
from tests.support.sql import write

COUNTS = "SELECT * FROM (VALUES ('a', 1), ('b', 2)) AS t(device, n)"
VIEWS = """
views:
  total: SELECT sum(n) AS n FROM gold.device_counts
  later: SELECT * FROM gold.not_there
"""


def test_thrift_port_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error is found before Spark starts."""
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path / "lakehouse"))
    assert main(["thrift"]) == 2
    assert "there is no lakehouse" in capsys.readouterr().err
    (tmp_path / "lakehouse").mkdir()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert main(["thrift", "--port", port]) == 2
    assert f"127.0.0.1:{port}: Address already in use; choose" in capsys.readouterr().err


@pytest.mark.slow
def test_thrift_serves_tables_and_views(cli: Cli, tmp_path: Path) -> None:
    root = tmp_path / "lakehouse"
    write(root, "gold.device_counts", COUNTS)
    cli.lakehouse.keep_only("event", to=tmp_path)
    cli.write_spark_settings(small=True)
    file = tmp_path / "conf/pipeline.yaml"
    file.write_text(file.read_text() + VIEWS)
    server = cli.start("thrift", "--port", "0")
    assert server.stdout is not None
    assert "views.later: " in server.stdout.readline()
    url, _, rest = server.stdout.readline().partition(" ")
    assert (url.partition("127.0.0.1")[0], rest) == ("jdbc:hive2://", "until Ctrl-C\n")

    assert (
        run_beeline(url, "SELECT * FROM gold.device_counts ORDER BY n")[1] == "device,n\na,1\nb,2\n"
    )
    assert run_beeline(url, "SELECT * FROM total")[1] == "n\n3\n"
    status, _, err = run_beeline(url, "SELECT * FROM gold.device_count")
    assert (status != 0, "TABLE_OR_VIEW_NOT_FOUND" in err) == (True, True)
    server.send_signal(signal.SIGINT)
    out, err = server.communicate(timeout=60)
    assert (server.returncode, out) == (0, "stopped\n")
    assert " ERROR " not in err
