"""The verdict, from records written by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from medallion.cli.render_runs import verdict_json, verdict_text
from medallion.config.model import Config
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.ingest.schema import registry
from medallion.inspect import balance, freshness, ledger_files
from medallion.inspect.balance import Balance, BalanceSnapshot
from medallion.inspect.catalog import _quarantine_remedy
from medallion.inspect.ledger_files import Attention, file_problems
from medallion.inspect.problems import LakehouseVerdict, Problem, ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.inspect.verdict import Observations, observe
from medallion.quality.suites import Failure, Verdict, suite_path
from medallion.runtime.nightly import gate_row
from medallion.runtime.outcome import GateResult, Outcome, dismiss_files
from medallion.state import journal
from medallion.state.journal import Erasure, Replay
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RunRecords, RunState
from medallion.storage import locks, records
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import TableSpec
from tests.support import runs
from tests.support.home import Home
from tests.support.verdict import take_verdict

META = {"name": "m", "on_failure": "stop"}
SUITE = json.dumps({"expectations": [{"type": "t", "kwargs": {}, "meta": META}]})
EMPTY = RunState()
MONTH = Duration.parse("30 days")


@pytest.fixture
def config(home: Home) -> Config:
    return home.project_config


def codes(verdict: LakehouseVerdict) -> list[tuple[str, str]]:
    return [(problem.code.value, problem.subject) for problem in verdict.problems]


def entry(name: str, state: str, **more: Any) -> Entry:
    row = {"why": "no text", "reason_code": "unreadable", **more}
    return Entry("event", f"landing/event/{name}", 1, 5, 0, 0, state, **row)


def test_verdict_before_the_first_run_is_healthy(config: Config) -> None:
    verdict = take_verdict(config)
    assert (str(verdict), verdict.is_healthy, verdict.problems) == ("healthy", True, ())
    assert verdict_text(verdict) == "healthy"
    assert not config.layout.root.local.exists()


def test_verdict_five_faults(
    config: Config, home: Home, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All faults are listed, each with its remedy."""
    conf = tmp_path / "conf"
    event = replace(config.sources["event"], expect_every=Duration.parse("1 day"))
    config = replace(config, conf_dir=conf, sources={**config.sources, "event": event})
    suite = suite_path(conf, "silver.activity")
    suite.parent.mkdir(parents=True)
    suite.write_text(SUITE)
    runs.record(config, "silver.event", state="failed", error="it broke at 'secret'")
    table = "silver.activity"
    failure = Failure(table, "small", "stop", 2, 9, ("x=9", "x=8"), "2 of 9 rows are not small")
    large = Failure(table, "large", "stop", None, None, (), "its query found 3 rows")
    row = gate_row(GateResult(Verdict(table, 9, (failure, large)), 1, (), 0.5))
    RunRecords(config.layout).write([row])
    rows = [entry("a.png", "rejected"), entry("b.png", "rejected")]
    Ledger(config.layout, "event").write(rows)
    monkeypatch.setattr(StoragePath, "free_bytes", lambda _: 2**29)

    verdict = take_verdict(config)
    assert codes(verdict) == [
        ("failed", "silver.event"),
        ("blocked", "silver.activity"),
        ("rejected", "event"),
        ("stale", "event"),
        ("disk", str(config.layout.root)),
    ]
    assert not verdict.is_healthy
    line = (
        "NOT HEALTHY. failed: silver.event; blocked: silver.activity; rejected: event; "
        f"stale: event; disk: {config.layout.root}"
    )
    text_lines = verdict_text(verdict).splitlines()
    assert text_lines[0] == line
    assert text_lines[1:3] == [
        "  failed: silver.event: it broke at 'secret'",
        "    correct what the message names, then run medallion nightly",
    ]
    assert text_lines[3].startswith(
        "  blocked: silver.activity: small failed: 2 of 9 rows are not small, such as x=9; "
        "large failed: its query found 3 rows; no later run passed; this blocks gold."
    )
    assert "accept the rows: medallion nightly --accept small --accept large; or" in text_lines[4]
    assert (
        f"in {config.conf_dir.name}/great_expectations/expectations/silver/activity.json and run"
        in text_lines[4]
    )
    assert text_lines[5] == (
        "  rejected: event: 2 files, such as landing/event/a.png: no text; medallion files --state "
        "rejected names all"
    )
    assert text_lines[9].endswith("512 MiB are free")
    document = verdict_json(verdict)
    assert (document["healthy"], document["verdict"]) == (False, line)
    assert [problem["code"] for problem in document["problems"]] == [c for c, _ in codes(verdict)]
    # Remedies are sent to other systems by default, so they contain no values of rows.
    assert not any("secret" in problem.remedy for problem in verdict.problems)


def test_verdict_warnings_are_healthy(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    runs.record(config, "silver.event", kind="gate", state="passed", warned_expectations="z_small")
    fields = '{"amount": {"rows": 2, "example": "12.5"}}'
    rescued = {"rows_in": 9, "rescued_rows": 2, "rescued_fields": fields}
    runs.record(config, "bronze.activity", **rescued)
    verdict = take_verdict(config)
    assert codes(verdict) == [("expectation", "silver.event"), ("rescued_values", "activity")]
    assert verdict.is_healthy
    line = "healthy, with 2 warnings. expectation: silver.event; rescued values: activity"
    assert str(verdict) == line
    # The next run of the gate and matching rows resolve both.
    runs.record(config, "silver.event", kind="gate", state="passed")
    runs.record(config, "bronze.activity", rows_in=9, rescued_rows=0)
    assert str(take_verdict(config)) == "healthy"


def test_verdict_warns_of_mostly_quarantined_rows(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    rows = pa.table({"_failed_rules": [["no_time"], ["no_time", "small"]]})
    write_deltalake(str(config.layout.table("quarantine.event")), rows)
    runs.record(config, "silver.event", rows_in=3, quarantined_rows=2)
    verdict = take_verdict(config)
    assert str(verdict) == "healthy, with 1 warning. quarantined rows: quarantine.event"
    assert verdict.problems[0].sentence == (
        "2 of 3 rows of the last run broke a rule; all rows by rule: no_time (2), small (1)"
    )
    assert verdict.problems[0].remedy.endswith("medallion replay quarantine.event")
    runs.record(config, "silver.event", rows_in=4, quarantined_rows=2)
    assert str(take_verdict(config)) == "healthy"


@pytest.mark.parametrize("cdc", [None, CdcConfig("at", "d", None, None, 1, False, MONTH)])
def test_verdict_of_deletes_in_quarantine(
    config: Config, monkeypatch: pytest.MonkeyPatch, cdc: CdcConfig | None
) -> None:
    """Their rows are still there, which no other figure shows."""
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    source = replace(config.sources["event"], cdc=cdc)
    config = replace(config, sources={"event": source}, gold={})
    rows = pa.table({"_failed_rules": [["no_key", "delete_not_applied"], ["no_key"]]})
    write_deltalake(str(config.layout.table("quarantine.event")), rows)
    verdict = take_verdict(config)
    seen = Observations(EMPTY, verdict=verdict)
    assert verdict.is_healthy == Outcome(seen=seen).is_good == (cdc is None)
    for problem in verdict.problems:
        assert problem.code is ProblemCode.DELETES
        assert problem.sentence == "1 delete broke a rule, so silver.event keeps the rows"
        assert problem.remedy.endswith("medallion replay quarantine.event")


@pytest.mark.parametrize(
    ("sizes", "sentence"),
    [
        ((4, 2), None),
        ((4, 1), "the snapshot 2 has 1 row and the one before it 4,"),
        ((4, 1, 1), "the snapshot 3 has 1 row and the one before it 4,"),
        ((4, 1, 2), None),
    ],
)
def test_verdict_of_a_snapshot_that_is_too_small(
    config: Config, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], sentence: str | None
) -> None:
    """It is held until one comes with half as many rows; one that lands twice counts once."""
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    cdc = CdcConfig("at", None, None, None, 1, False, MONTH, snapshot=True, max_deletes=0.5)
    source = replace(config.sources["event"], keys=("id",), cdc=cdc)
    config = replace(config, sources={"event": source}, gold={})
    rows = [(at, id_) for at, size in enumerate(sizes, 1) for id_ in range(size)] * 2
    log = pa.table(dict(zip(("_sequence", "id"), zip(*rows, strict=True), strict=True)))
    write_deltalake(str(config.layout.table("silver.event_changes")), log)
    verdict = take_verdict(config)
    assert verdict.is_healthy == (sentence is None)
    for problem in verdict.problems:
        assert problem.code is ProblemCode.SNAPSHOT
        assert sentence
        assert problem.sentence.startswith(sentence)


def test_verdict_of_snapshots_with_one_time(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last file by name is the second snapshot: two rows follow four, and then one."""
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    sequence = "_source_modified_at"
    cdc = CdcConfig(sequence, None, None, None, 1, False, MONTH, snapshot=True, max_deletes=0.5)
    source = replace(config.sources["event"], keys=("id",), cdc=cdc)
    config = replace(config, sources={"event": source}, gold={})
    files = {"a.csv": (1, 4), "c.csv": (2, 2), "b.csv": (2, 4), "d.zip#1": (3, 1)}
    rows = [(at, file, id_, 1) for file, (at, size) in files.items() for id_ in range(size)]
    columns = ("_sequence", "_source_file", "id", "_ingested_at")
    log = pa.table(dict(zip(columns, zip(*rows, strict=True), strict=True)))
    write_deltalake(str(config.layout.table("silver.event_changes")), log)
    assert take_verdict(config).is_healthy


@pytest.mark.parametrize(("max_past", "count"), [(None, 1), (Duration.parse("60 years"), 0)])
def test_verdict_warns_of_event_times_before_1990(
    config: Config, monkeypatch: pytest.MonkeyPatch, max_past: Duration | None, count: int
) -> None:
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    source = replace(config.sources["event"], max_past=max_past)
    config = replace(config, sources={"event": source}, gold={})
    times = [datetime(1970, 1, 21, 13, 47, 9, tzinfo=UTC), datetime(1990, 1, 1, tzinfo=UTC)]
    write_deltalake(str(config.layout.table("silver.event")), pa.table({"event_at": times}))
    verdict = take_verdict(config)
    assert verdict.is_healthy
    assert [problem.sentence for problem in verdict.problems] == [
        "event_at is before 1990 in 1 row, such as 1970-01-21 13:47"
    ] * count


def test_verdict_is_silent_about_messages_without_rows(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: BalanceSnapshot())
    rows = pa.table({"_failed_rules": [["heartbeat"], ["tombstone"]]})
    write_deltalake(str(config.layout.table("quarantine.event")), rows)
    runs.record(config, "silver.event", rows_in=2, quarantined_rows=2)
    assert str(take_verdict(config)) == "healthy"


def test_verdict_has_the_remedy_of_each_reason() -> None:
    files = [
        Entry(
            "event",
            f"landing/event/{name}",
            1,
            1,
            0,
            0,
            "rejected",
            reason_code=name,
            why=f"it is {name}",
        )
        for name in ("unreadable", "name_taken", "name_taken", "grew_after_reading")
    ]
    problems = file_problems(Attention(rejected=tuple(files)))
    assert [(p.sentence, p.remedy.partition(",")[0]) for p in problems] == [
        (
            "landing/event/grew_after_reading: it is grew_after_reading",
            "land the new lines under a new name",
        ),
        (
            "2 files, such as landing/event/name_taken: it is name_taken; medallion files --state "
            "rejected names all",
            "rename it if it has other rows",
        ),
        ("landing/event/unreadable: it is unreadable", "land a repaired file"),
    ]


def test_verdict_names_the_remedy_of_a_child_table(config: Config) -> None:
    """Its rows cannot be replayed."""
    child: Any = SimpleNamespace(name="item", parent="event")
    config = replace(config, silver={"item": child})
    remedies = [_quarantine_remedy(config, f"quarantine.{name}") for name in ("item", "event")]
    assert [remedy.rpartition("medallion ")[2] for remedy in remedies] == [
        "refresh silver.item",
        "replay quarantine.event",
    ]


def test_verdict_of_last_nightly_run(config: Config) -> None:
    """An error that belongs to no query counts until a nightly run succeeds."""
    row = {"kind": "run", "state": "failed", "error": "the docs cannot be written"}
    runs.record(config, "nightly", **row)
    (problem,) = take_verdict(config).problems
    assert (problem.code, problem.subject) == (ProblemCode.FAILED, "nightly")
    assert problem.sentence == "the docs cannot be written"
    runs.record(config, "silver.event", state="failed", error="it broke")
    assert codes(take_verdict(config)) == [("failed", "silver.event")], "it may be the cause"
    runs.record(config, "silver.event")
    runs.record(config, "nightly", kind="run", state="idle")
    assert str(take_verdict(config)) == "healthy"


def test_verdict_of_balances_and_files(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Attention(
        waiting=(entry("w", "pending"),),
        changed=(entry("c", "archived"),),
        folders=(entry("f", "pending"),),
    )
    monkeypatch.setattr(ledger_files, "find_attention", lambda _: files)
    stale = Problem(ProblemCode.STALE, "gold.x", "never had a row")
    monkeypatch.setattr(freshness, "stale_problems", lambda *_: [stale])
    balances = {"event": Balance(5, 5, 5, 0, 0, 0, 0), "activity": Balance(5, 4, 4, 0, 0, 0, 0)}
    unreadable = "silver.event", "unknown", None, None, None, None, None, None, "it is damaged"
    verdict = observe(
        config,
        [QueryStatus(*unreadable)],
        faults=BalanceSnapshot(balances).problems,
        unread=["landing/evnt: 1 file that no source of pipeline.yaml reads"],
        errors=["silver.event: it is damaged"],
    ).verdict
    assert codes(verdict) == [
        ("unreadable", "silver.event"),
        ("unbalanced", "activity"),
        ("waiting", "event"),
        ("changed", "event"),
        ("unreadable_folder", "landing/event/f"),
        ("stale", "gold.x"),
        ("unread_files", "landing"),
    ]
    assert verdict.problems[1].sentence == "activity: 5 lines were read, but bronze has 4 rows."


@pytest.mark.parametrize("has_schema", [True, False])
def test_verdict_of_malformed_files(
    config: Config, has_schema: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source whose files have malformed lines only has no schema: its other tables wait."""
    monkeypatch.setattr(registry, "has_known_columns", lambda *_: has_schema)
    files = {
        "all": replace(entry("all", "archived"), rows=3, corrupt_rows=3),
        "some": replace(entry("some", "archived"), rows=3, corrupt_rows=2),
        "empty": replace(entry("empty", "archived"), rows=0, corrupt_rows=0),
    }
    Ledger(config.layout, "event").write(files.values())
    found = take_verdict(config)
    assert codes(found) == [("malformed_files" if has_schema else "no_schema", "event")]
    assert found.is_healthy == has_schema
    assert found.problems[0].sentence.startswith(f"1 file, such as {files['all'].path}: no line")
    dismiss_files(config, "all", None)
    assert str(take_verdict(config)) == "healthy"


def test_verdict_of_unreadable_records(config: Config) -> None:
    runs.record(config, "silver.event")
    newest = max((config.layout.table("ops.runs") / "_delta_log").local.glob("*.json"))
    newest.write_bytes(b"")
    (problem,) = take_verdict(config).problems
    assert (problem.code, problem.subject) == (ProblemCode.UNREADABLE, "ops.runs")


def test_verdict_of_unfinished_refresh(config: Config) -> None:
    journal.require_rebuilds(config, ["gold.device_totals"])
    assert codes(take_verdict(config)) == [("unfinished_refresh", "gold.device_totals")]
    with locks.lock_layers(config.layout, ["gold"], "refresh"):
        assert take_verdict(config).problems == ()
    (config.layout.journal / "refresh-gold.device_totals.json").write_atomic("{")
    assert codes(take_verdict(config)) == [("unreadable", "journal")]


def test_verdict_of_a_killed_run(config: Config) -> None:
    for layer in ("bronze", "silver"):
        text = '{"command": "nightly", "pid": 4730, "since": 62460000000}'
        config.layout.lock(layer).write_atomic(text)
    (problem,) = take_verdict(config).problems
    assert problem.line == (
        "killed: nightly: the run of 1970-01-01 17:21 UTC (pid 4730) was killed; the next nightly "
        "run continues it"
    )


def test_verdict_of_unfinished_replay_and_erasure(config: Config) -> None:
    journal.write_entry(config.layout, journal.Entry("quarantine.event", Replay(1, 2, {})))
    erasure = Erasure("a", "silver.event", "device = 'x'", False, {})
    journal.write_entry(config.layout, journal.Entry("silver.event", erasure))
    lines = [(p.code, p.sentence, p.remedy) for p in take_verdict(config).problems]
    assert lines == [
        (
            "unfinished_erase",
            "unfinished erase of silver.event",
            "complete it with medallion erase, without arguments",
        ),
        (
            "unfinished_replay",
            "unfinished replay of quarantine.event",
            "complete it with medallion nightly",
        ),
    ]


def test_verdict_text_names_a_shared_remedy_once() -> None:
    problems = [Problem(ProblemCode.FAILED, name, f"{name}: no", "run it") for name in "ab"]
    problems.append(Problem(ProblemCode.STALE, "c", "old", "ask"))
    assert verdict_text(LakehouseVerdict(tuple(problems))).splitlines() == [
        "NOT HEALTHY. failed: a, b; stale: c",
        "  failed: a: no",
        "  failed: b: no",
        "    run it",
        "  stale: c: old",
        "    ask",
    ]


@pytest.mark.parametrize("writer", [None, "medallion stream"])
def test_verdict_has_no_balance_beside_a_writer(
    config: Config, writer: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches may not be recorded yet."""
    unbalanced = {"event": Balance(5, 4, 4, 0, 0, 0, 0)}
    snapshot = BalanceSnapshot(balances=unbalanced)
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: snapshot)
    monkeypatch.setattr(locks, "lock_holder", lambda *_: writer)
    assert codes(take_verdict(config)) == ([] if writer else [("unbalanced", "event")])


def test_verdict_of_missing_data_files(config: Config) -> None:
    table = config.layout.table("silver.event")
    records.append_records(table, TableSpec({"n": "long"}), [{"n": 1}])
    (file,) = table.local.glob("*.parquet")
    file.unlink()
    (problem,) = take_verdict(config).problems
    assert (problem.code, problem.subject) == (ProblemCode.UNREADABLE, "tables")
    assert "silver.event" in problem.sentence


def test_verdict_names_each_problem_in_words() -> None:
    problems = (
        Problem(ProblemCode.STALE, "gold.a", "b", "c"),
        Problem(ProblemCode.UNREAD, "x.json", "b", "c"),
    )
    assert [problem.is_warning for problem in problems] == [False, True]
    lines = [str(LakehouseVerdict(problems)), str(LakehouseVerdict(problems[1:]))]
    assert lines == [
        "NOT HEALTHY. stale: gold.a; unread files: x.json",
        "healthy, with 1 warning. unread files: x.json",
    ]


def test_observe_ignores_balances_while_a_process_writes(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer ends during the snapshot: its figures may be from before and after a commit."""
    holders = iter(["pid 7"])
    monkeypatch.setattr(locks, "lock_holder", lambda *_: next(holders, None))
    wrong = BalanceSnapshot({"event": Balance(2, 1, 1, 0, 0, 0, 0)})
    monkeypatch.setattr(balance, "take_snapshot", lambda *_: wrong)
    assert codes(observe(config).verdict) == []
    assert codes(observe(config).verdict) == [("unbalanced", "event")]
