"""The command line: arguments, messages and exit statuses."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import yaml
from markupsafe import escape

from medallion.cli import commands, main
from medallion.config.loader import load
from medallion.errors import ConfigError, MedallionError, UsageError
from medallion.inspect.balance import Balance, BalanceSnapshot
from medallion.quality.suites import suite_path
from medallion.runtime import opening, stream
from medallion.runtime.outcome import Outcome
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RunRecords
from medallion.storage import locks, records, table_specs
from medallion.storage.layout import Layout
from medallion.storage.text import Reporter
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse, rows_of

COMMANDS = {
    "init": ["DIR"],
    "setup": ["--kafka", "--s3", "--classes"],
    "add": ["--dry-run", "--land"],
    "check": ["--json"],
    "land": ["--source", "--batches", "--files", "--rows", "--seed", "--dirty", "--sample"],
    "run": ["bronze,silver,gold", "--trigger"],
    "nightly": ["--accept", "--quiet"],
    "stream": ["--trigger"],
    "sql": ["STATEMENT", "--file", "--as-of", "--csv", "--parquet"],
    "thrift": ["--host", "--port"],
    "audit": ["--deep"],
    "replay": ["table", "--where", "--rescued"],
    "backfill": ["source", "path"],
    "apply": ["TABLE", "--yes"],
    "drop": ["table", "--yes"],
    "refresh": ["TABLE"],
    "report": ["--output", "--serve"],
    "erase": ["table", "--where", "--cascade", "--dry-run", "--purge"],
    "status": [],
    "maintain": [],
    "files": ["pattern", "--source", "--state"],
    "schema": ["source"],
}
WITHOUT_JSON = {"init", "setup", "run", "stream", "thrift", "refresh", "apply", "drop"}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main([command, "--help"])
    output = capsys.readouterr().out
    assert all(word in output for word in [*COMMANDS[command], "--debug", "--conf"])
    assert ("--json" in output) == (command not in WITHOUT_JSON)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main.main(["--help"])
    output = capsys.readouterr().out
    assert set(re.findall(r"^    ([a-z]+) ", output, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize(
    "arguments",
    [
        *([], ["nothing"], ["run", "copper"], ["nightly", "--trigger", "4 seconds"]),
        *(["backfill", "event", ""], ["backfill", "event", " "], ["report", "--output", ""]),
    ],
)
def test_main_usage_error_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main.main(arguments)
    output = capsys.readouterr().err
    assert all(word in output for word in ["usage: medallion", *arguments[:1]])


@pytest.mark.parametrize(
    ("error", "status", "output"),
    [
        (MedallionError("the data failed"), 1, "medallion: the data failed\n"),
        (UsageError("not so"), 2, "medallion: not so\n"),
        (ConfigError("a key"), 2, "medallion: a key\n"),
        (PermissionError(13, "Permission denied", "/x"), 2, "medallion: /x: Permission denied.\n"),
        (OSError(28, "No space left on device"), 2, "medallion: No space left on device.\n"),
        (KeyboardInterrupt(), 130, "medallion: interrupted; the next run resumes from here.\n"),
        (ZeroDivisionError("by 0"), 70, "medallion crashed: ZeroDivisionError: by 0; --debug sho"),
    ],
)
def test_main_exit_status_of_each_error(
    error: BaseException,
    status: int,
    output: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "status", fail)
    monkeypatch.chdir(PROJECT)
    assert main.main(["status"]) == status
    captured = capsys.readouterr()
    assert captured.err.startswith(output)
    assert len(captured.err.splitlines()) == 1
    assert captured.out == ""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set the lakehouse's root for commands of the test; it does not exist yet."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path / "lakehouse"))
    return tmp_path / "lakehouse"


def refused_message(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the one-line error of a command that is refused."""
    assert main.main(arguments) == 2
    output = capsys.readouterr().err
    assert len(output.splitlines()) == 1, output
    assert output.startswith("medallion: ")
    return output


ARGUMENTS = {"add": ["x", "/x"], "run": ["gold"], "sql": ["SELECT 1"], "schema": ["event"]}
ARGUMENTS |= {"replay": ["quarantine.event"], "drop": ["silver.x"], "backfill": ["event", "/x"]}
ARGUMENTS |= {"refresh": ["silver.event"]}


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"init", "setup"}))
def test_newer_format_is_refused_by_each_command(
    root: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    Layout(root).format.write_atomic('{"format": 99, "release": "9.0.0"}')
    message = refused_message(capsys, command, *ARGUMENTS.get(command, ()))
    assert "has the format 99 of medallion 9.0.0" in message
    assert [path.name for path in root.iterdir()] == ["_format.json"]


READ_COMMANDS = (["status"], ["audit"], ["files"], ["schema", "event"], ["sql", "SELECT 1"])
REFRESH = ["refresh", "silver.event"]  # nothing to rebuild, so it starts no Spark


def test_main_misspelled_root_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = f"there is no lakehouse at {root}: medallion nightly creates it, and "
    for command in (*READ_COMMANDS, REFRESH):
        assert output in refused_message(capsys, *command)
    root.write_text("a file")
    for command in (*READ_COMMANDS, REFRESH):
        assert str(root) in refused_message(capsys, *command)
    assert "Not a directory" in refused_message(capsys, "land")


def test_main_errors_come_before_spark(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Starting Spark takes ten seconds."""

    def no_spark(*_: object) -> None:
        raise AssertionError("Spark would be started")

    monkeypatch.setattr(opening, "open_pipeline", no_spark)
    root.mkdir()
    for table, missing in (
        ("silver.event", "bronze.event"),
        ("gold.action_counts", "silver.event"),
    ):
        layer = missing.partition(".")[0]
        output = f"{missing} does not exist yet: run medallion run {layer} first."
        assert output in refused_message(capsys, "refresh", table)
    gate = {"kind": "gate", "state": "held", "failed_expectations": "it"}
    RunRecords(Layout(root)).write([gate | {"query": "silver.event"}])
    assert main.main(["run", "gold"]) == 70, "tables of activity are not blocked"
    assert "Spark would be started" in capsys.readouterr().err
    RunRecords(Layout(root)).write([gate | {"query": "silver.activity"}])
    for command in (["run", "gold"], ["run", "gold", "--trigger", "4 seconds"]):
        assert main.main(command) == 1
        error = capsys.readouterr().err
        assert error.startswith("medallion: gold.")
        assert " is blocked: it on silver." in error


@pytest.mark.parametrize("command", ["run", "stream", "refresh", "apply", "replay", "erase"])
def test_invalid_suite_is_refused_before_a_command(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    """These commands first refuse what `check` finds, and `load` does not."""
    monkeypatch.setattr(opening, "open_pipeline", None)
    conf = shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    suite_path(conf, "silver.event").write_text("nothing")
    more = ("--conf", str(conf), *ARGUMENTS.get(command, ()))
    message = refused_message(capsys, command, *more)
    assert "silver/event.json is not a Great Expectations suite" in message
    assert not root.exists()


def test_run_reports_each_message_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check for work and the query both poll, but each message is printed once."""

    @contextmanager
    def poll_twice(
        _: object, command: str, layers: object, report: Reporter, *__: object
    ) -> Iterator[Any]:
        for line in ("no such folder", "another line", "no such folder"):
            report(line)
        yield SimpleNamespace(run=report)

    monkeypatch.setattr(opening, "open_pipeline", poll_twice)
    assert main.main(["run", "bronze"]) == 0
    assert capsys.readouterr().out.split("\n") == ["no such folder", "another line", "bronze", ""]


@pytest.mark.parametrize(
    ("arguments", "command", "layers", "trigger"),
    [
        (["stream"], "stream", ["bronze", "silver", "gold"], "4 seconds"),
        (["stream", "--trigger", "2 s"], "stream", ["bronze", "silver", "gold"], "2 s"),
        (["run", "silver", "--trigger", "9 s"], "run silver", ["silver"], "9 s"),
    ],
)
def test_stream_runs_its_layers_at_an_interval(
    arguments: list[str],
    command: str,
    layers: list[str],
    trigger: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pipeline_, streams, opened = MagicMock(), list[Any](), list[Any]()

    @contextmanager
    def open_pipeline(_: object, *arguments: object, **_more: object) -> Iterator[Any]:
        opened.append((arguments[0], list(arguments[1])))  # type: ignore[call-overload]
        yield pipeline_

    monkeypatch.setattr(opening, "open_pipeline", open_pipeline)
    monkeypatch.setattr(stream, "run_stream", lambda *arguments: streams.append(arguments))
    assert main.main(arguments) == 0
    assert opened == [(command, layers)]
    assert [(p, list(names), text) for p, names, text in streams] == [(pipeline_, layers, trigger)]


def test_stream_refuses_the_trigger_of_one_run(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = "medallion stream keeps running: give an interval, or use nightly."
    assert message in refused_message(capsys, "stream", "--trigger", "available-now")


def test_main_unwritable_output_is_an_error(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Standard output is on a full disk."""
    root.mkdir()
    for command in (["status"], ["sql", "--csv", "select 1 as n"]):
        with Path("/dev/full").open("w") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert main.main(command) == 2
        output = "medallion: the output cannot be written: No space left on device.\n"
        assert capsys.readouterr().err == output


def test_land_sample_needs_its_sources(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command succeeds, because `make nightly` continues with the run."""
    output = "--sample lands the sample files as they are: leave --batches out."
    assert output in refused_message(capsys, "land", "--sample", "--batches", "2", "--dirty")
    assert not root.exists()
    (tmp_path / "conf").mkdir()
    orders = {"event_time": "at", "keys": ["at"], "silver": {"at": "ts"}}
    (tmp_path / "conf/pipeline.yaml").write_text(yaml.safe_dump({"sources": {"orders": orders}}))
    monkeypatch.setenv("MEDALLION_CONF", str(tmp_path / "conf"))
    assert main.main(["land", "--sample"]) == 0
    assert "which no source here reads: none landed" in capsys.readouterr().out
    assert main.main(["land", "--sample", "--json"]) == 0
    assert capsys.readouterr().out == "{}\n"


def test_land_without_a_reader(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "conf"
    shutil.copytree(PROJECT / "conf", conf)
    file = conf / "pipeline.yaml"
    settings = yaml.safe_load(file.read_text())
    del settings["sources"]["activity"]
    file.write_text(yaml.safe_dump({"sources": settings["sources"], "gold": {}}))
    monkeypatch.setenv("MEDALLION_CONF", str(conf))
    for command in (["land"], ["land", "--source", "activity"]):
        output = refused_message(capsys, *command)
        assert (
            "has no source activity of JSON lines that reads activity-000001-00001.json" in output
        )
        assert output.endswith("use --source event.\n")
    assert main.main(["land", "--source", "event", "--rows", "9"]) == 0
    assert capsys.readouterr().out.startswith(f"landed in {root}/landing\n")
    assert {path.name for path in (root / "landing").iterdir()} >= {"event"}
    assert not (root / "landing/activity").exists()


def test_main_missing_configuration(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEDALLION_CONF", str(root / "nowhere"))
    assert str(root / "nowhere/pipeline.yaml") in refused_message(capsys, "audit")


@pytest.mark.parametrize(
    ("statement", "output"),
    [
        ("selec 1", "not SELEC"),
        ("select * from gold.nothing", "gold.nothing"),
        ("drop table gold.x", "not DROP"),
    ],
)
def test_sql_invalid_statement(
    root: Path, capsys: pytest.CaptureFixture[str], statement: str, output: str
) -> None:
    root.mkdir()
    assert main.main(("sql", statement, "--json")) == 2
    line, *pointer = capsys.readouterr().err.splitlines()
    assert output in line
    assert pointer == (
        ["  select * from gold.nothing", f"  {' ' * 14}{'^' * 12}"] * ("gold.n" in output)
    )
    assert "in quotes" in refused_message(capsys, "sql", *statement.split())


@pytest.mark.parametrize(("number", "form"), [(signal.SIGINT, "--json"), (signal.SIGTERM, "--csv")])
def test_sql_ends_on_interrupt(tmp_path: Path, number: signal.Signals, form: str) -> None:
    """A shell shows the exit status 128 plus the signal's number: 130 and 143."""
    rows = ", ".join(f"generate_series(1, 100000) AS t{n}(v)" for n in range(4))
    statement = f"SELECT sum(t0.v * t1.v + t2.v * t3.v) AS n FROM {rows}"
    query = Cli(Lakehouse(None, tmp_path)).start("sql", form, statement)
    deadline = time.monotonic() + 60
    while not is_engine_running(query.pid, number) and time.monotonic() < deadline:
        time.sleep(0.05)
    query.send_signal(number)
    try:
        assert query.communicate(timeout=60)[1] == ""
    finally:
        query.kill()
    assert query.returncode == -number


def is_engine_running(process: int, number: int) -> bool:
    """Return whether a process has threads, and no handler of Python for a signal."""
    status = Path(f"/proc/{process}/status").read_text()
    lines = dict(line.split(":", 1) for line in status.splitlines())
    handled = int(lines["SigIgn"], 16) | int(lines["SigCgt"], 16)
    return int(lines["Threads"]) > 1 and not handled >> (number - 1) & 1


@pytest.mark.parametrize(
    ("source", "path", "output"),
    [
        ("nothing", ".", "there is no source nothing"),
        ("event", "no/such", "no such file or folder"),
    ],
)
def test_backfill_missing_path(
    root: Path, capsys: pytest.CaptureFixture[str], source: str, path: str, output: str
) -> None:
    assert output in refused_message(capsys, "backfill", source, path)
    assert not root.exists()


def test_land_json_has_the_documented_keys(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["land", "--rows", "50", "--files", "3", "--source", "event", "--json"]
    assert main.main(arguments) == 0
    landed = json.loads(capsys.readouterr().out)
    contract = {"files", "lines", "malformed", "invalid", "duplicates", "late", "unknown_fields"}
    assert set(landed) == {"event"}
    assert contract <= set(landed["event"])
    assert (landed["event"]["files"], landed["event"]["lines"]) == (3, 50)
    assert len([file for file in (root / "landing/event").iterdir() if file.is_file()]) == 3


def test_files_escapes_control_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file name with an escape sequence is shown by `files` and `sql`."""
    entry = Entry("event", "landing/event/\x1b[2J\n.json", 1, 5, 0, 0)
    Ledger(Layout(tmp_path), "event").write([entry])
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path))
    assert main.main(["files"]) == 0
    assert "landing/event/\\x1b[2J\\n.json" in capsys.readouterr().out
    assert main.main(["sql", "SELECT path FROM ops.files"]) == 0
    assert "landing/event/\\x1b[2J\\n.json" in capsys.readouterr().out
    assert main.main(["sql", "SELECT path FROM ops.files", "--json"]) == 0
    assert "landing/event/\\u001b[2J\\n.json" in capsys.readouterr().out
    assert main.main(["sql", 'SELECT "\x1b[2J" FROM ops.files']) == 2
    assert "\x1b" not in capsys.readouterr().err


def replace_layers(monkeypatch: pytest.MonkeyPatch, outcome: Outcome) -> None:
    """Let a nightly run that has work end with this outcome."""
    monkeypatch.setattr("medallion.runtime.opening.open_pipeline", MagicMock())
    nightly = SimpleNamespace(run=lambda: outcome)
    monkeypatch.setattr("medallion.runtime.nightly.Nightly", lambda *_: nightly)


@pytest.mark.parametrize("is_busy", [True, False])
def test_nightly_reports_pending_files(
    is_busy: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Ledger(Layout(tmp_path), "event").write([Entry("event", "landing/event/.a", 1, 5, 0, 0)])
    idle = "medallion.runtime.planner.end_if_idle"
    monkeypatch.setattr(idle, lambda *_: None if is_busy else Outcome())
    replace_layers(monkeypatch, Outcome())
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path))
    assert main.main(["nightly"]) == 0
    output = "1 file not ingested yet: medallion files --state pending"
    assert output in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("command", [["nightly"], ["run", "bronze"]])
def test_nightly_fails_until_a_rejection_is_reported(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Only recorded reports count: the run that rejected the file died before its end."""
    path = "landing/event/a.png"
    row = Entry("event", path, 1, 5, 0, 0, "rejected", "no text", reason_code="unreadable")
    Ledger(Layout(tmp_path), "event").write([row])
    monkeypatch.setattr("medallion.runtime.planner.end_if_idle", lambda *_: Outcome())
    monkeypatch.setattr("medallion.runtime.opening.open_pipeline", MagicMock())
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path))
    line = f"rejected: event: {path}: no text"
    assert main.main(["audit", "--json"]) == 0
    audited = json.loads(capsys.readouterr().out)
    assert audited["sources"]["event"]["rejected_files"] == 1
    assert audited["problems"][0]["sentence"] == f"{path}: no text"
    assert main.main(["status"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "NOT HEALTHY. rejected: event"
    assert [line_ for line_ in lines if path in line_] == [f"  {line}"]
    assert main.main(["status", "--json"]) == 1
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["code"], problem["subject"]) == ("rejected", "event")
    assert problem["sentence"] == f"{path}: no text"
    assert "medallion files --dismiss PATTERN" in problem["remedy"]

    assert main.main(command) == 1
    captured = capsys.readouterr()
    assert f"medallion: {line}" in captured.err
    assert "balanced" not in captured.out
    assert main.main(command) == 0
    captured = capsys.readouterr()
    assert line in captured.out
    assert captured.err == ""
    assert main.main(["audit"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "balanced, but rejected: event"

    assert main.main(["files", "--dismiss", "*.json"]) == 2
    assert "--dismiss *.json: no reported file" in capsys.readouterr().err
    assert main.main(["files", "--dismiss", "*.png", "--json"]) == 0
    (dismissed,) = json.loads(capsys.readouterr().out)["files"]
    assert (dismissed["path"], dismissed["state"]) == (path, "rejected")
    assert dismissed["dismissed_at"].endswith("Z")
    assert main.main(command) == 0
    assert line not in capsys.readouterr().out
    assert main.main(["audit"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "balanced"
    assert main.main(["files", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == [dismissed]


def test_nightly_idle_is_recorded_and_reports_stale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The record distinguishes a quiet run from a dead cron job."""
    conf = tmp_path / "conf"
    shutil.copytree(PROJECT / "conf", conf)
    monkeypatch.setenv("MEDALLION_CONF", str(conf))
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path / "home"))
    idle = "medallion.runtime.planner.end_if_idle"
    monkeypatch.setattr(idle, lambda *_: Outcome(is_idle=True))
    assert main.main(["nightly", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ok"] is True
    assert (document["healthy"], document["verdict"]) == (True, "healthy")
    table = Layout(tmp_path / "home").table("ops.runs")
    assert rows_of(table.local, "kind", "query", "command", "state", "number") == [
        ("run", "nightly", "nightly", "idle", 1)
    ]
    text = (conf / "pipeline.yaml").read_text()
    key = "    event_time: event_at\n"
    (conf / "pipeline.yaml").write_text(text.replace(key, f"{key}    expect_every: 1 h\n"))
    line = "stale: event: never had a row (expect_every: 1 hour)"
    assert main.main(["nightly"]) == 1
    assert f"medallion: {line}" in capsys.readouterr().err
    assert main.main(["status"]) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert (first, second) == ("NOT HEALTHY. stale: event", f"  {line}")
    assert len(rows_of(table.local, "number")) == 2
    assert main.main(["nightly", "--quiet"]) == 1
    assert capsys.readouterr().out.splitlines()[:2] == [first, second]
    (conf / "pipeline.yaml").write_text(text)
    assert main.main(["nightly", "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_lakehouse_line_names_who_works_on_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load({"MEDALLION_HOME": str(root)}, PROJECT)
    assert commands._lakehouse_line(config) == f"lakehouse {root}"
    holder = "pid 7 (erase, since 17:40 UTC)"
    monkeypatch.setattr(locks, "lock_holder", lambda *_: holder)
    assert commands._lakehouse_line(config) == f"lakehouse {root}: {holder} works on it"


@pytest.mark.parametrize(("answer", "confirmed"), [("y", True), ("YES", True), ("", False)])
def test_confirmation_needs_a_terminal(
    answer: str, confirmed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = argparse.Namespace(yes=False)
    with pytest.raises(UsageError, match=r"Rebuild\? There is no terminal .* with --yes"):
        commands._is_confirmed(options, "Rebuild?")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _: answer)
    assert commands._is_confirmed(options, "Rebuild?") == confirmed
    assert commands._is_confirmed(argparse.Namespace(yes=True), "Rebuild?")


def test_commands_report_a_damaged_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Readable tables are shown, and the exit status reports the unreadable ones."""
    layout, output = Layout(tmp_path), {}
    for name in ("bronze.event", "quarantine.activity", "gold.device_totals", "ops.files"):
        spec = replace(table_specs.table_spec(name), columns={"n": "long"})
        records.append_records(layout.table(name), spec, [{"n": 1}, {"n": 2}])
        if name != "bronze.event":
            newest = max((layout.table(name) / "_delta_log").local.glob("*.json"))
            newest.write_bytes(b"")
            output[name] = f"{name}: {newest}"
    monkeypatch.setattr("medallion.runtime.planner.end_if_idle", lambda *_: None)
    snapshot = BalanceSnapshot({"event": Balance(2, 2, 2, 0, 0, 0, 0)})
    replace_layers(monkeypatch, Outcome(snapshot=snapshot))
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path))

    assert main.main(["nightly"]) == 1
    captured = capsys.readouterr()
    assert "gold.device_totals: cannot be read" in captured.out.splitlines()
    assert "balanced" not in captured.out
    assert [line.partition(" is corrupt")[0] for line in captured.err.splitlines()] == [
        f"medallion: {output[name]}" for name in ("gold.device_totals", "ops.files")
    ]
    assert main.main(["nightly", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["sources"]["event"]["bronze_rows"] == 2

    assert main.main(["report", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [line.partition(" is corrupt")[0] for line in document["unreadable"]] == [
        output[name] for name in ("ops.files", "quarantine.activity", "gold.device_totals")
    ]
    assert document["healthy"] is False
    page = Path(document["page"]).read_text(encoding="utf-8")
    assert page.count("is corrupt or truncated") >= 3  # the verdict names them as well
    for text in document["unreadable"]:
        assert escape(text) in page

    assert main.main(["status", "--json"]) == 1
    queries = json.loads(capsys.readouterr().out)["queries"]
    assert [q["waiting_rows"] for q in queries if q["query"] == "silver.event"] == [2]


def test_sql_csv_is_escaped_on_terminals_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(PROJECT)
    monkeypatch.setenv("MEDALLION_HOME", str(tmp_path))
    arguments = ["sql", "--csv", "SELECT '\x1b[2Jé' AS v"]
    for language in ("utf-8", "ascii"):
        buffer = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding=language, newline=""))
        assert main.main(arguments) == 0
        assert buffer.getvalue().decode() == "v\r\n\x1b[2Jé\r\n"
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="ascii"))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main.main(arguments) == 0
    assert buffer.getvalue() == b"v\n\\x1b[2J\\u00e9\n"


@pytest.mark.parametrize("flag", ["kafka", "s3", "classes"])
def test_setup_takes_flags(flag: str) -> None:
    options = main._parser().parse_args(["setup", f"--{flag}"])
    assert [name for name in ("kafka", "s3", "classes") if getattr(options, name)] == [flag]


@pytest.mark.parametrize(("more", "port"), [([], None), (["--serve"], 8321), (["--serve", "0"], 0)])
def test_served_report_has_a_port(more: list[str], port: int | None) -> None:
    options = main._parser().parse_args(["report", *more])
    assert options.serve == port
