"""Alerts by command and by URL, and the metrics file, after commands without Spark."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from medallion.cli import main
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.operations import OnFailure
from medallion.errors import MedallionError, UsageError
from medallion.inspect.problems import LakehouseVerdict, Problem, ProblemCode
from medallion.runtime import hooks
from medallion.runtime.alerts import send_alerts
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RunRecords
from tests.support import PROJECT, runs
from tests.support.home import Home

VERDICT = LakehouseVerdict(
    (
        Problem(ProblemCode.FAILED, "silver.event", "cannot cast 'secret' & <!channel>", "retry"),
        Problem(ProblemCode.REJECTED, "event", "'secret'", "repair it", "unreadable, a.csv"),
        Problem(ProblemCode.UNREAD, "landing", "1 file", "move it"),
    )
)


class Receiver:
    """An HTTP server that keeps the posted requests."""

    def __init__(self) -> None:
        self.posted, self.status, receiver_ = list[Any](), 200, self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver_.posted.append((self.path, self.headers["Content-Type"], json.loads(body)))
                self.send_response(receiver_.status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Keep the test's output clean."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    thread = threading.Thread(target=receiver.server.serve_forever)
    thread.start()
    yield receiver
    receiver.server.shutdown()
    thread.join()
    receiver.server.server_close()


def alerting(home: Home, **on_failure: Any) -> Config:
    return replace(home.project_config, on_failure=OnFailure(**on_failure))


def test_alert_is_posted_without_values_of_rows(home: Home, receiver: Receiver) -> None:
    config = alerting(home, post=f"{receiver.url}/hook")
    error = MedallionError("cannot cast 'secret'")
    assert list(send_alerts(config, "nightly", 1, VERDICT, error)) == []
    ((path, content_type, document),) = receiver.posted
    assert (path, content_type) == ("/hook", "application/json")
    assert "secret" not in json.dumps(document)
    first, *rest = document["text"].splitlines()
    assert first.startswith("medallion nightly on ")
    assert first.endswith(f":{home.layout.root} ended with status 1.")
    assert rest == [
        "NOT HEALTHY. failed: silver.event; rejected: event; unread files: landing",
        "  failed: silver.event",
        "    retry",
        "  rejected: event: unreadable, a.csv",
        "    repair it",
        "medallion status has the messages.",
    ]
    names = ("code", "subject", "sentence", "detail", "remedy", "is_warning")
    assert [tuple(problem[n] for n in names) for problem in document["problems"]] == [
        ("failed", "silver.event", "", "", "retry", False),
        ("rejected", "event", "unreadable, a.csv", "unreadable, a.csv", "repair it", False),
        ("unread_files", "landing", "", "", "move it", True),
    ]
    assert (document["command"], document["exit_status"]) == ("nightly", 1)


def test_alert_with_details_escapes_them_for_slack(home: Home, receiver: Receiver) -> None:
    config = alerting(home, post=receiver.url, details=True)
    assert list(send_alerts(config, "nightly", 1, VERDICT)) == []
    ((_, _, document),) = receiver.posted
    line = "  failed: silver.event: cannot cast 'secret' &amp; &lt;!channel&gt;"
    assert line in document["text"].splitlines()
    assert document["problems"][0]["sentence"] == VERDICT.problems[0].sentence


def test_alert_has_the_message_of_usage_errors(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "text"
    config = alerting(home, command=("sh", "-c", f"cat > '{file}'"))
    error = UsageError("another process writes bronze")
    assert list(send_alerts(config, "run", 2, LakehouseVerdict(), error)) == []
    assert file.read_text().splitlines()[1:] == ["another process writes bronze"]


def test_failed_alerts_are_reported(home: Home, receiver: Receiver) -> None:
    receiver.status = 404
    config = alerting(home, command=("false",), post=f"{receiver.url}/secret")
    lines = list(send_alerts(config, "nightly", 1, VERDICT))
    assert lines == [
        "on_failure.command: the alert was not sent: false ended with 1.",
        "on_failure.post: the alert was not sent: the server answered 404.",
    ]
    config = alerting(home, command=("/no/such",), post="http://127.0.0.1:1/secret")
    lines = list(send_alerts(config, "nightly", 1, VERDICT))
    assert lines == [
        "on_failure.command: the alert was not sent: /no/such: No such file or directory.",
        "on_failure.post: the alert was not sent: Connection refused.",
    ]
    config = alerting(home, variable="SLACK_URL")
    (line,) = send_alerts(config, "nightly", 1, VERDICT)
    assert line == "on_failure.post: the alert was not sent: SLACK_URL is not set."


@pytest.mark.parametrize(
    ("command", "status", "posts"),
    [("nightly", 1, 1), ("stream", 70, 1), ("nightly", 0, 0), ("status", 1, 0), ("sql", 2, 0)],
)
def test_only_failed_runs_send_alerts(
    command: str, status: int, posts: int, home: Home, receiver: Receiver
) -> None:
    config = alerting(home, post=receiver.url)
    assert list(hooks.after_command(config, command, status)) == []
    assert len(receiver.posted) == posts


def test_crashed_hook_is_reported(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("medallion.inspect.status.query_statuses", crash)
    config = alerting(home, command=("true",))
    assert list(hooks.after_command(config, "nightly", 1)) == [
        "alerts and metrics: RuntimeError: no."
    ]


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Configure the project with additional keys in pipeline.yaml, and a separate root."""
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    with (tmp_path / "conf/pipeline.yaml").open("a") as file:
        file.write(text)
    monkeypatch.setenv("MEDALLION_CONF", str(tmp_path / "conf"))
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path / "home"))


def test_main_sends_alerts_of_errors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    receiver: Receiver,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The URL comes from the environment; the exit status stays that of the run."""
    project(tmp_path, monkeypatch, "\non_failure: { post: '${HOOK}', command: [ 'false' ] }\n")
    monkeypatch.setenv("HOOK", receiver.url)

    def fail(*_: object) -> None:
        raise UsageError("another process writes bronze.")

    monkeypatch.setattr("medallion.runtime.planner.end_if_idle", fail)
    assert main.main(["nightly"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "medallion: on_failure.command: the alert was not sent: false ended with 1.",
        "medallion: another process writes bronze.",
    ]
    ((_, _, document),) = receiver.posted
    assert document["text"].splitlines()[1] == "another process writes bronze."
    with (tmp_path / "conf/pipeline.yaml").open("a") as file:
        file.write("sorces: {}\n")
    assert main.main(["nightly"]) == 2
    assert "sorces is not a known key" in receiver.posted[-1][2]["text"]


def test_metrics_of_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project(tmp_path, monkeypatch, "")
    file = tmp_path / "metrics/medallion.prom"
    monkeypatch.setenv("MEDALLION_METRICS_FILE", str(file))
    config = load()
    runs.record(config, "silver.event", state="failed", error="no", started_at=5_000_000, rows_in=9)
    runs.record(config, "nightly", kind="run", state="idle", started_at=7_000_000, seconds=2.5)
    archived = Entry("event", "landing/event/a", 1, 5, 3_000_000, 4_000_000, "archived", rows=2)
    rejected = Entry("event", "landing/event/b", 1, 5, 3_000_000, 4_000_000, "rejected", "no text")
    Ledger(config.layout, "event").write([archived, rejected])
    assert main.main(["status", "--json"]) == 1
    captured = capsys.readouterr()
    assert "medallion: MEDALLION_METRICS_FILE: FileNotFoundError: No such file" in captured.err
    assert json.loads(captured.out)["healthy"] is False

    file.parent.mkdir()
    assert main.main(["status"]) == 1
    families = text_string_to_metric_families(file.read_text())
    values = {
        (sample.name.removeprefix("medallion_"), *sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }
    expected = {
        ("healthy",): 0,
        ("problems", "failed"): 1,
        ("problems", "rejected"): 1,
        ("problems", "stale"): 0,
        ("nightly_timestamp_seconds",): 7,
        ("nightly_duration_seconds",): 2.5,
        ("query_timestamp_seconds", "silver.event"): 5,
        ("query_failed", "silver.event"): 1,
        ("query_rows_in", "silver.event"): 9,
        ("query_waiting_rows", "silver.event"): 0,
        ("arrival_timestamp_seconds", "event"): 3,
    }
    assert {key: values.get(key) for key in expected} == expected
    assert values["free_bytes",] > 0
    assert ("arrival_timestamp_seconds", "activity") not in values
    assert list(file.parent.iterdir()) == [file]
    assert len(RunRecords(config.layout).run_state.last) == 1
