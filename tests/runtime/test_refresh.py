"""Refreshes of silver and gold: the same rows, and complete tables at any time."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.queries import queries
from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError, UsageError
from medallion.inspect.audit import run_audit
from medallion.runtime import refresh, resume
from medallion.runtime.pipeline import Pipeline
from medallion.spark import checkpoints
from medallion.state import journal
from medallion.storage import files
from medallion.storage.layout import LAYERS, StagingLayout
from medallion.storage.paths import StoragePath
from tests.support import PROJECT
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.lines import event

RUNS = (
    (event("10:00:00"), event("10:00:00"), event("15:00:00"), "{broken"),
    (event("09:00:00"), event("16:00:00"), event("09:00:01", None), event("09:00:01", None)),
)
FIRST = ["09:00:00", "09:00:01", "09:00:01", "10:00:00", "15:00:00", "16:00:00"]
# Waiting in bronze when silver is rebuilt: a duplicate, two new rows, and one without a time.
WAITING = (event("16:00:00"), event("16:00:01"), event("08:00:00"), '{"id": "p"}')
REBUILT = sorted([*FIRST, "08:00:00", "16:00:01"])
# After the refresh: duplicates of an old and of a rebuilt row, a new row, and a late one.
AFTER = (event("16:00:00"), event("08:00:00"), event("16:00:02"), event("07:00:00"))
SILVER = sorted([*REBUILT, "07:00:00", "16:00:02"])


def times(lakehouse: Lakehouse) -> list[str]:
    return sorted(row[0][11:19] for row in lakehouse.rows("silver.event", "event_at"))


def total(lakehouse: Lakehouse, table: str = "gold.action_counts") -> int:
    return sum(events for (events,) in lakehouse.rows(table, "total_events"))


@pytest.fixture(scope="module")
def after_two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse after two nightly runs with events; one row of the second is late."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("refresh") / "lakehouse")
    lakehouse.keep_only("event", "action_counts")
    table = replace(lakehouse.config.gold["action_counts"], output_mode="update")
    lakehouse.config = replace(lakehouse.config, gold={"action_counts": table})
    for number, lines in enumerate(RUNS):
        lakehouse.land("event", f"{number}.json", *lines)
        lakehouse.fill("bronze", "silver")
    lakehouse.fill("gold")
    assert times(lakehouse) == FIRST
    return lakehouse


@pytest.fixture
def filled(after_two_runs: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy that tests may change."""
    return after_two_runs.copy(tmp_path / "lakehouse")


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def after_a_kill(after_two_runs: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse whose silver table was replaced, but not its checkpoint.

    The refresh applies another definition, to rows that silver has not read before, too.
    """
    lakehouse = after_two_runs.copy(tmp_path_factory.mktemp("killed") / "lakehouse")
    columns = {**lakehouse.config.sources["event"].silver, "action": "upper(action)"}
    source = replace(lakehouse.config.sources["event"], silver=columns)
    lakehouse.config = replace(lakehouse.config, sources={"event": source})
    lakehouse.land("event", "waiting.json", *WAITING)
    lakehouse.fill("bronze")

    def die(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "start_generation", die)
        with pytest.raises(Killed):
            refresh.refresh_table(lakehouse.pipeline(), "silver.event")
    return lakehouse


@pytest.fixture
def killed(after_a_kill: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy that tests may change."""
    return after_a_kill.copy(tmp_path / "lakehouse")


def test_refresh_interrupted_at_each_step(
    killed: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers find a complete table at any time, and the next process completes the refresh."""
    kills = 0
    with monkeypatch.context() as patch:
        kill_at_each_step(killed, patch)
        while journal.rebuilds(killed.config):
            try:
                resume_commands(killed)
                for layer in ("silver", "gold"):
                    assert refresh.rebuild_pending(killed.pipeline(), layer) == []
            except Killed:
                kills += 1
    # After the last two steps of silver's swap, after gold is built, and after its three steps.
    assert kills == 2 + 1 + 3
    assert not (killed.root / "_refresh").exists()
    assert row_counts(killed, "silver.event") == {0, len(RUNS[0]) - 2, len(FIRST), len(REBUILT)}
    assert times(killed) == REBUILT
    assert {action for (action,) in killed.rows("silver.event", "action")} == {"OPEN"}
    assert killed.rows("gold.action_counts", "action", "total_events") == [
        ("OPEN", 1),  # 08:00
        ("OPEN", 1),  # 10:00
        ("OPEN", 1),  # 15:00
        ("OPEN", 2),  # 16:00
        ("OPEN", 3),  # 09:00
    ]
    figures = killed.rows("ops.runs", "state", "query", "rows_in", "rows_out", "quarantined_rows")
    refreshed = [row for row in figures if row[0] == "refreshed"]
    assert sorted(row[1:] for row in refreshed) == [
        ("gold.action_counts", len(REBUILT), 5, None),
        ("silver.event", 4 + 4 + 4, len(REBUILT), 2),
    ]
    assert run_audit(killed.config).is_balanced
    check_next_run(killed)


def row_counts(lakehouse: Lakehouse, table: str) -> set[int]:
    """Return the numbers of rows that readers have seen in a table."""
    path = lakehouse.config.layout.table(table)
    versions = range(DeltaTable(path).version() + 1)
    return {DeltaTable(path, version=v).to_pyarrow_table().num_rows for v in versions}


def check_next_run(lakehouse: Lakehouse) -> None:
    """The new checkpoint has read all rows once, and knows their keys."""
    lakehouse.land("event", "after.json", *AFTER)
    lakehouse.fill()
    assert times(lakehouse) == SILVER
    assert total(lakehouse) == len(SILVER)
    audit = run_audit(lakehouse.config)
    assert audit.findings == ()
    balance = audit.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.quarantined_rows) == (16, 10, 2)
    assert balance.duplicate_rows == 4


def resume_commands(lakehouse: Lakehouse) -> None:
    resume.resume_commands(lakehouse.pipeline(), LAYERS)


def kill_at_each_step(lakehouse: Lakehouse, patch: pytest.MonkeyPatch) -> None:
    """Make the process end after each write of the journal."""
    write_atomic = files.write_atomic

    def write(file: Path, text: str) -> None:
        write_atomic(file, text)
        if StoragePath(file.parent) == lakehouse.config.layout.journal:
            raise Killed

    patch.setattr(files, "write_atomic", write)


def test_swap_without_its_checkpoint_is_refused(killed: Lakehouse) -> None:
    """Without the refresh's notes the old checkpoint would read rows of the new table again."""
    killed.config = replace(killed.config, gold={})
    for directory in (killed.config.layout.journal, killed.config.layout.staging):
        directory.delete_prefix()
    with pytest.raises(UsageError, match=r"lacks the batches .* refresh silver\.event"):
        killed.fill("silver")
    runs = killed.rows("ops.runs", "number", "query", "state", "error")
    _, query, state, error = max(runs)
    assert (query, state) == ("silver.event", "failed")
    assert "lacks the batches" in error
    refresh.refresh_table(killed.pipeline(), "silver.event")
    assert times(killed) == REBUILT
    assert run_audit(killed.config).is_balanced


@pytest.mark.slow
def test_gates_validate_refreshed_rows(filled: Lakehouse) -> None:
    """Rows between two gates are validated once, without duplicates."""
    assert filled.nightly().is_good
    filled.land("event", "after.json", *WAITING)
    filled.fill()
    for _ in range(2):
        refresh.refresh_table(filled.pipeline(), "silver.event")
    report = filled.nightly()
    assert report.is_good, report
    assert times(filled) == REBUILT


@pytest.mark.slow  # test_blocked_gold has the gate, and the tests of `rebuilding` what waits for it
def test_silver_is_rebuilt_while_gold_is_blocked(filled: Lakehouse, tmp_path: Path) -> None:
    """A nightly run rebuilds silver, and its gate blocks gold.

    A refresh under a changed rule then repairs silver, and the next nightly run rebuilds gold.
    """
    gold = filled.rows("gold.action_counts")
    suites = filled.copy_of_conf(tmp_path) / "great_expectations/expectations"
    (suites / "gold/action_counts.json").unlink()
    suite = suites / "silver/event.json"
    document = json.loads(suite.read_text())
    plain_rules = list(document["expectations"])

    def expect_a_device(on_failure: str) -> None:
        rule = {
            "type": "expect_column_values_to_not_be_null",
            "kwargs": {"column": "device"},
            "meta": {"name": "no_device", "on_failure": on_failure},
        }
        suite.write_text(json.dumps({**document, "expectations": [*plain_rules, rule]}))

    expect_a_device("stop")
    pending = ("silver.event", "gold.action_counts")
    journal.require_rebuilds(filled.config, pending)
    report = filled.nightly()
    assert [f.expectation for gate in report.gates for f in gate.blocking_failures] == ["no_device"]
    assert report.snapshot.balances["event"].silver_rows == len(FIRST)
    assert filled.rows("gold.action_counts") == gold
    assert [*journal.rebuilds(filled.config)] == ["gold.action_counts"]
    with pytest.raises(MedallionError, match=r"gold\.action_counts is blocked: no_device"):
        refresh.refresh_table(filled.pipeline(), "gold.action_counts")

    expect_a_device("quarantine")
    refresh.refresh_table(filled.pipeline(), "silver.event")
    assert filled.rows("gold.action_counts") == gold
    assert [*journal.rebuilds(filled.config)] == ["gold.action_counts"]
    report = filled.nightly()
    assert report.is_good, report
    assert journal.rebuilds(filled.config) == {}
    # Two rows have no device, and one is broken.
    balance = report.snapshot.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.quarantined_rows) == (8, 4, 3)
    assert total(filled) == 4


@pytest.mark.slow  # `rebuilding` has a failed rebuild, without Spark
def test_failed_rebuild_stops_no_other(filled: Lakehouse) -> None:
    counts = filled.config.gold["action_counts"]
    valid = load({}, PROJECT).gold["user_activity"]
    filled.config = replace(filled.config, gold={"user_activity": valid, "action_counts": counts})
    pipeline = filled.pipeline()
    pipeline.start_flow(pipeline.flow("gold.user_activity"), None)  # creates the table
    invalid = redefined(valid, measure={"total_events": "count_if(nothing)"})
    gold = {"user_activity": invalid, "action_counts": counts}
    filled.config = replace(filled.config, gold=gold)
    records = len(filled.rows("ops.runs", "number"))
    with pytest.raises(MedallionError, match=r"gold\.user_activity\..*nothing"):
        refresh.refresh_table(filled.pipeline(), "silver.event")
    refreshed = filled.rows("ops.runs", "number", "query", "state")[records:]
    assert [row[1:] for row in sorted(refreshed)] == [
        ("silver.event", "refreshed"),
        ("gold.action_counts", "refreshed"),
    ]
    report = filled.run_without_gates()
    assert report.exit_status
    (expected,) = report.errors
    assert "gold.user_activity" in expected
    assert not any((filled.root / "_refresh").glob("*.*/_delta_log"))
    assert total(filled) == len(FIRST)
    filled.config = replace(filled.config, gold={**gold, "user_activity": valid})
    assert filled.run_without_gates().is_good
    # Each row is in two windows.
    assert total(filled, "gold.user_activity") == 2 * len(FIRST)
    assert journal.rebuilds(filled.config) == {}


@pytest.fixture
def rebuilding(home: Home, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stub pipeline of three pending gold tables: one is blocked, one cannot be built."""
    table = load({}, PROJECT).gold["device_totals"]
    tables = {name: replace(table, name=name) for name in "abc"}
    pipeline: Any = SimpleNamespace(config=replace(home.config, gold=tables), built=[], messages=[])
    pipeline.report = pipeline.messages.append
    pipeline.flow = lambda name: SimpleNamespace(name=name, upstream=())
    pipeline.blocking_gates = lambda flow: {"silver.x": "rule"} if flow.name == "gold.a" else {}

    def rebuild(_: Any, table: str) -> None:
        if table == "gold.b":
            raise RuntimeError("the disk is full")
        pipeline.built.append(table)

    monkeypatch.setattr(refresh, "_rebuild", rebuild)
    journal.require_rebuilds(home.config, ["gold.c", "gold.b", "gold.a"])
    return pipeline


def test_rebuild_pending_continues_after_a_failure(rebuilding: Any) -> None:
    ((flow, error),) = refresh.rebuild_pending(rebuilding, "gold")
    assert flow.name == "gold.b"
    assert "gold.b cannot be rebuilt" in str(error)
    assert "the disk is full" in journal.rebuilds(rebuilding.config)["gold.b"].failure
    assert rebuilding.built == ["gold.c"]
    assert rebuilding.messages == ["refresh   gold.a: waits until no gate blocks it"]


def test_rebuild_pending_without_some_tables(rebuilding: Any) -> None:
    assert refresh.rebuild_pending(rebuilding, "gold", {"gold.b", "gold.a"}) == []
    assert refresh.rebuild_pending(rebuilding, "silver") == []
    assert rebuilding.built == ["gold.c"]
    assert rebuilding.messages == []


def test_refresh_of_several_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, in the order of the queries: silver's readers are rebuilt with it."""
    config, refreshed = load({}, PROJECT), list[str]()
    flows = {query.name: query for query in queries(config)}
    pipeline = cast("Pipeline", SimpleNamespace(config=config, flow=flows.__getitem__))
    monkeypatch.setattr(refresh, "refresh_table", lambda _, table: refreshed.append(table))
    tables = ("gold.action_counts", "gold.device_totals", "silver.event", "bronze.activity")
    refresh.refresh_tables(pipeline, tables)
    assert refreshed == ["bronze.activity", "silver.event"]
    refresh.refresh_tables(pipeline, tables[1::-1])
    assert refreshed[2:] == [name for name in flows if name in tables[:2]]


def test_rebuild_late(rebuilding: Any) -> None:
    """A pending table is left to `rebuild_pending`, and one without late rows stays."""
    rebuilding.config.layout.journal.delete_prefix()
    journal.require_rebuilds(rebuilding.config, ["gold.b"])
    late = {"gold.a": 0, "gold.b": 1, "gold.c": 2}
    rebuilding.runs = SimpleNamespace(late_rows=late.__getitem__)
    assert refresh.rebuild_late(rebuilding) == []
    assert rebuilding.built == ["gold.c"]
    assert refresh.rebuild_late(rebuilding, {"gold.c"}) == []
    assert rebuilding.built == ["gold.c"]


def test_gold_rebuilt_with_another_measure(filled: Lakehouse) -> None:
    table = redefined(
        filled.config.gold["action_counts"],
        measure={"total_events": "count(*)", "devices": "count(distinct device)"},
    )
    filled.config = replace(filled.config, gold={"action_counts": table})
    layout = filled.layout
    # Left by a rebuild that failed: its rows must not be those of the new table.
    left = StagingLayout(layout.root, ("gold.action_counts",)).table("gold.action_counts")
    shutil.copytree(layout.table("gold.action_counts").local, left.local)
    refresh.refresh_table(filled.pipeline(), "gold.action_counts")
    rows = filled.rows("gold.action_counts", "window_start", "total_events", "devices")
    assert rows == [
        ("2018-03-02 09:00:00", 3, 1),
        ("2018-03-02 10:00:00", 1, 1),
        ("2018-03-02 15:00:00", 1, 1),
        ("2018-03-02 16:00:00", 1, 1),
    ]
    filled.fill("gold")
    assert filled.rows("gold.action_counts", "window_start", "total_events", "devices") == rows


def test_gold_waits_for_a_silver_refresh(filled: Lakehouse) -> None:
    """Its windows would mix two event times, also after the old one is restored."""
    valid, gold = filled.config, filled.rows("gold.action_counts")
    source = replace(valid.sources["event"], event_time="_ingested_at")
    filled.config = replace(valid, sources={"event": source})
    with pytest.raises(
        ConfigError, match=r"event_time of silver.event: event_at -> .* medallion apply"
    ):
        filled.pipeline().run("gold")
    filled.config = valid
    filled.pipeline().run("gold")
    pipeline = filled.pipeline()
    pipeline.start_flow(pipeline.flow("gold.action_counts"), None)
    assert filled.rows("gold.action_counts") == gold


def test_merged_rows_without_a_definition_are_refused(filled: Lakehouse) -> None:
    """Its groups would be merged into the existing ones."""
    checkpoint = filled.config.layout.checkpoint("gold.action_counts")
    before = filled.rows("gold.action_counts")
    gold = filled.config.gold
    hours = redefined(gold["action_counts"], window=Duration.parse("1 hour"))
    changed = replace(filled.config, gold={**gold, "action_counts": hours})
    for commit_file in (checkpoint / "commits").local.iterdir():
        commit_file.unlink()
    with pytest.raises(ConfigError, match=r"window: 10 minutes -> .* medallion apply"):
        Pipeline(filled.spark, changed, "test", print).run("gold")
    shutil.rmtree(checkpoint)
    with pytest.raises(UsageError, match=r"lacks the batches .* refresh gold.action"):
        Pipeline(filled.spark, changed, "test", print).run("gold")
    assert filled.rows("gold.action_counts") == before


def test_refresh_of_an_unknown_table_is_refused(lakehouse: Lakehouse, tmp_path: Path) -> None:
    for table in ("bronze.nothing", "silver.nothing", "gold", "ops.runs"):
        with pytest.raises(UsageError, match=r"cannot be rebuilt; these can: bronze\.activity"):
            refresh.layers_to_lock(lakehouse.config, table)
    assert refresh.layers_to_lock(lakehouse.config, "gold.device_counts") == ("gold",)
    assert set(refresh.layers_to_lock(lakehouse.config, "silver.event")) < set(LAYERS)
    with pytest.raises(MedallionError, match="run medallion run silver first"):
        refresh.refresh_table(lakehouse.pipeline(), "gold.device_counts")
