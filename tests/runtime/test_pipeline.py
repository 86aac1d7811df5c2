"""Start of queries: invalid SQL, changed definitions, and errors confined to one query."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from medallion.config.model import GoldTable, Statement
from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError
from medallion.runtime import refresh
from medallion.runtime.opening import open_pipeline
from medallion.runtime.pipeline import Pipeline
from medallion.spark import session, signals
from medallion.spark.errors import StreamError
from medallion.state import pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.lines import event, recording
from tests.support.runs import record


@pytest.fixture(scope="module")
def filled_events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse with one event in all layers; a column has the same value in all rows."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("events") / "lakehouse")
    lakehouse.keep_only("event", "action_counts")
    source = lakehouse.config.sources["event"]
    source = replace(source, silver={**source.silver, "kind": "'app'"})
    lakehouse.config = replace(lakehouse.config, sources={"event": source})
    lakehouse.land("event", "1.json", event("10:07:00"))
    lakehouse.fill()
    return lakehouse


@pytest.fixture
def events(filled_events: Lakehouse, tmp_path: Path) -> Lakehouse:
    return filled_events.copy(tmp_path / "lakehouse")


def check(lakehouse: Lakehouse, name: str) -> None:
    """Check the settings of a query without starting it."""
    pipeline = lakehouse.pipeline()
    pipeline.start_flow(pipeline.flow(name), None)


def configure_silver(lakehouse: Lakehouse, **changes: Any) -> None:
    """Change settings of the source; `silver` has the changed columns, None without one."""
    source = lakehouse.config.sources["event"]
    silver = {**source.silver, **changes.get("silver", {})}
    changes = {**changes, "silver": {name: sql for name, sql in silver.items() if sql}}
    lakehouse.config = replace(lakehouse.config, sources={"event": replace(source, **changes)})


def configure_gold(lakehouse: Lakehouse, *tables: GoldTable) -> None:
    gold = {table.name: table for table in tables}
    lakehouse.config = replace(lakehouse.config, gold=gold)


def test_invalid_silver_sql_names_its_column(lakehouse: Lakehouse) -> None:
    """A run without input checks the SQL, as soon as bronze has a table."""
    lakehouse.keep_only("event")
    lakehouse.fill("bronze")
    valid = lakehouse.config
    configure_silver(lakehouse, silver={"action": "Devise"})
    expected = r"silver\.event\.action in .*pipeline.yaml .*: .* `Devise` cannot be resolved"
    with pytest.raises(ConfigError, match=expected):
        lakehouse.fill("silver")
    lakehouse.config = valid
    lakehouse.fill("silver")
    assert lakehouse.rows("silver.event") == []


def test_invalid_gold_sql_names_its_measure(events: Lakehouse) -> None:
    counts = events.config.gold["action_counts"]
    configure_gold(events, redefined(replace(counts, name="new"), measure={"n": "sum(acton)"}))
    expected = r"gold\.new\.measure\.n in .*: .* `acton` cannot be resolved.* \[`action`"
    with pytest.raises(ConfigError, match=expected):
        check(events, "gold.new")
    for measure in ("count(*) / sum(count(*)) over ()", "explode(collect_list(device))"):
        table = replace(counts, name="new", output_mode="update")
        configure_gold(events, redefined(table, measure={"n": measure}))
        with pytest.raises(ConfigError, match=r"yaml: gold\.new has a window function \(OVER\)"):
            check(events, "gold.new")
    configure_gold(events, redefined(replace(counts, name="new"), measure={"n": "rand()"}))
    with pytest.raises(ConfigError, match=r"yaml: gold\.new depends on the current time"):
        check(events, "gold.new")
    # Valid SQL that no stream can run; its table is already created.
    distinct = {"devices": "count(distinct device)"}
    configure_gold(events, redefined(replace(counts, name="new"), measure=distinct))
    with pytest.raises(ConfigError, match=r"gold\.new.*[Dd]istinct"):
        check(events, "gold.new")
    assert "devices" in delta_tables.column_names(events.config.layout.table("gold.new"))
    configure_gold(events, replace(counts, name="new"))
    check(events, "gold.new")  # the empty table is replaced
    assert "total_events" in delta_tables.column_names(events.config.layout.table("gold.new"))


def test_sql_that_fails_at_a_row_is_named(events: Lakehouse) -> None:
    """Each table exists with these columns, most with state, when its SQL is corrected."""
    counts = replace(events.config.gold["action_counts"], name="counts")
    number = "cast(action as int)"
    configure_gold(events, *tables_in_each_mode(counts, f"avg({number})", number))
    with pytest.raises(StreamError) as error:
        events.fill("gold")
    assert str(error.value).count("[CAST_INVALID_INPUT]") == 3
    assert str(error.value).count(number) == 3  # the SQL that failed
    fails = "fails at a row, and its table stays as it is: [CAST_INVALID_INPUT] The value 'open'"
    pipeline = events.config.pipeline_file
    for part in (
        f"gold.counts.measure.n in {pipeline}",
        f"gold.updated.measure.n in {pipeline}",
        "gold.appended in appended.sql",
    ):
        assert f"{part} {fails}" in str(error.value)
    assert str(error.value).count("try_cast") >= 3, "the message says what to do"
    configure_gold(events, *tables_in_each_mode(counts, "max(action)", "action"))
    events.fill("gold")
    for name in events.config.gold:
        assert events.rows(f"gold.{name}", "n") == [("open",)]


def tables_in_each_mode(counts: GoldTable, measure: str, column: str) -> list[GoldTable]:
    """Return a table in each output mode, with a column `n`."""
    complete = redefined(counts, measure={"events": "count(*)", "n": measure})
    update = replace(complete, name="updated", output_mode="update")
    sql = Statement(Path("appended.sql"), f"select {column} as n from silver_event")
    append = replace(complete, name="appended", definition=sql, output_mode="append")
    return [complete, update, append]


COUNTS = ("window_start", "window_end", "total_events")
TEN_MINUTES = [("2018-03-02 10:00:00", "2018-03-02 10:10:00", 1)]


def test_changed_gold_definition_is_refused(events: Lakehouse) -> None:
    """Counts of 10 minutes would continue as counts of 5; a refresh applies the change."""
    counts = events.config.gold["action_counts"]
    configure_gold(events, redefined(counts, window=Duration.parse("5 minutes")))
    expected = r"gold.action_counts has changed .*window: 10 minutes -> .* medallion apply"
    with pytest.raises(ConfigError, match=expected):
        check(events, "gold.action_counts")
    with pytest.raises(ConfigError, match=expected):
        events.fill("gold")
    assert events.rows("gold.action_counts", *COUNTS) == TEN_MINUTES
    configure_gold(events, redefined(counts, window=Duration.parse("600 seconds")))
    check(events, "gold.action_counts")
    configure_gold(events, redefined(counts, window=Duration.parse("5 minutes")))
    refresh.refresh_table(events.pipeline(), "gold.action_counts")
    five_minutes = [("2018-03-02 10:05:00", "2018-03-02 10:10:00", 1)]
    assert events.rows("gold.action_counts", *COUNTS) == five_minutes


def test_gold_without_a_checkpoint_may_have_changed(events: Lakehouse) -> None:
    """It is recomputed, and may have other columns; its next batches continue."""
    counts = events.config.gold["action_counts"]
    shutil.rmtree(events.config.layout.checkpoint("gold.action_counts"))
    measures = {"device": "max(device)", "total_events": "string(count(*))"}
    configure_gold(events, redefined(counts, window=Duration.parse("5 minutes"), measure=measures))
    events.fill("gold")
    assert events.rows("gold.action_counts", *measures) == [("p", "1")]
    silver, columns = events.layout.table("silver.event"), "event_at, device, action, kind"
    rows = ", ".join(
        f"(timestamp'2018-03-02T10:{m}:00Z', 'p', 'open', 'app')" for m in ("09", "13")
    )
    events.spark.sql(f"INSERT INTO delta.`{silver}` ({columns}) VALUES {rows}")
    events.fill("gold")
    counted = events.rows("gold.action_counts", "window_start", *measures)
    assert counted == [("2018-03-02 10:05:00", "p", "2"), ("2018-03-02 10:10:00", "p", "1")]
    log = (events.config.layout.table("gold.action_counts") / "_delta_log").local.glob("*.json")
    assert sum('"metaData"' in commit.read_text() for commit in log) == 2, "created, and recreated"


def test_gold_of_changed_silver_rows_is_refused(events: Lakehouse) -> None:
    """The error names medallion's remedy instead of Spark's, which users cannot apply."""
    silver = DeltaTable(events.config.layout.table("silver.event"))
    rows = QueryBuilder().register("rows", silver).execute("select * from rows")
    write_deltalake(silver, rows, mode="append")
    silver.update({"action": "'close'"})
    with pytest.raises(StreamError, match=r"modified or vacuumed.* refresh gold.action_counts"):
        events.fill("gold")


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        # A changed key order would let duplicates in.
        ({"keys": ("device", "event_at", "action")}, "keys: "),
        # Late rows need all columns of the table.
        ({"silver": {"more": "id"}}, "more"),
        ({"silver": {"kind": None}}, "kind"),
        ({"silver": {"kind": "1"}}, "column kind: string -> int"),
        # Otherwise old and new rows would have different values.
        ({"silver": {"kind": "'app 2'"}}, "kind"),
    ],
)
def test_changed_silver_definition_is_refused(
    filled_events: Lakehouse, tmp_path: Path, changed: dict[str, Any], part: str
) -> None:
    events = filled_events.copy(tmp_path / "lakehouse")
    configure_silver(events, **changed)
    expected = rf"definition of silver\.event has changed .*{part}.* medallion apply"
    with pytest.raises(ConfigError, match=expected):
        check(events, "silver.event")


def test_unsuitable_silver_sql_is_refused(events: Lakehouse) -> None:
    for sql, expected in (
        ("explode(array(1, 2))", "returns several rows, or none, for one"),
        ("string(window(ts, '1 hour').start)", "returns several rows, or none, for one"),
        ("now()", "current time"),
    ):
        configure_silver(events, silver={"kind": sql})
        with pytest.raises(ConfigError, match=rf"sources\.event\.silver .*{expected}"):
            check(events, "silver.event")
    keys = (*events.config.sources["event"].keys, "lat")
    configure_silver(events, silver={"kind": "'app'", "lat": "double(1)"}, keys=keys)
    with pytest.raises(ConfigError, match=r"sources\.event\.keys .*floating-point column lat"):
        check(events, "silver.event")
    configure_silver(events, silver={"lat": "1"})
    with pytest.raises(ConfigError, match=r'keys: \["event_at", "device", "action"\] -> '):
        check(events, "silver.event")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("rand() < 0.5", "silver.event depends on"),
        ("event_at > current_timestamp()", "silver.event depends on"),
        ("window(event_at, '1 hour').end > _ingested_at", "returns several rows, or none"),
    ],
)
def test_unsuitable_rule_is_refused(
    events: Lakehouse, tmp_path: Path, sql: str, expected: str
) -> None:
    events.copy_of_conf(tmp_path)
    events.expect(
        "silver.event",
        "future_event_time",  # replaces the built-in rule
        "unexpected_rows_expectation",
        "quarantine",
        unexpected_rows_query=f"SELECT * FROM {{batch}} WHERE {sql}",
    )
    with pytest.raises(ConfigError, match=rf"rule .*{expected}"):
        check(events, "silver.event")


def test_failed_start_stops_no_other_query(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse.keep_only("activity", "event")
    lakehouse.land("activity", "1.json", recording("10:07:00"))
    lakehouse.land("event", "1.json", event("10:07:00"))
    lakehouse.fill("bronze")
    notes = lakehouse.config.layout.checkpoint("silver.activity")
    notes.local.mkdir(parents=True)
    (notes / "medallion.json").local.write_text("{")
    write_runs = RunRecords.write

    def write(runs: RunRecords, rows: Iterable[Mapping[str, Any]]) -> None:
        row_list = list(rows)
        if any(row["state"] == "failed" for row in row_list):
            raise OSError(28, "No space left on device")
        write_runs(runs, row_list)

    def no_space(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        # A query that runs is awaited and recorded, although its settings cannot be written.
        patch.setattr(pending_work, "record_settings", no_space)
        patch.setattr(RunRecords, "write", write)  # the failure cannot be recorded either
        expected = r"medallion\.json is damaged\. .*its query continues.*; .*recorded: OSError"
        with pytest.raises(MedallionError, match=expected):
            lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.event")) == 1
    # A signal to the process group ends Java before Python; that is no failure.
    runs = lakehouse.rows("ops.runs")
    with signals.defer_signals():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            lakehouse.fill("silver")
    assert lakehouse.rows("ops.runs") == runs
    (notes / "medallion.json").local.unlink()
    (notes / "medallion.json").local.mkdir()  # a directory cannot be overwritten
    with pytest.raises(StreamError, match=r"silver\.activity cannot be started: IsADirectoryError"):
        lakehouse.fill("silver")
    (notes / "medallion.json").local.rmdir()
    lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.activity")) == 1


class Stopped:
    """Something that is stopped, and records when."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        self.name, self.order, self.error = name, order, error

    def stop(self) -> None:
        self.order.append(self.name)
        if self.error:
            raise self.error


def test_new_lakehouse_is_reported(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: MagicMock(version="4"))
    expected: list[str] = []
    for _ in range(2):
        with open_pipeline(home.config, "test", ["bronze"], expected.append):
            record(home.config, "bronze.activity")
    first, _, second, _ = expected
    assert first == f"medallion test on {home.layout.root} (a new lakehouse)"
    assert second == f"medallion test on {home.layout.root}"


@pytest.mark.parametrize("error", [None, Py4JError("gone")])
def test_queries_are_stopped_before_spark(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """A batch that continues without Spark would reject good files as unreadable."""
    order: list[str] = []
    spark = Stopped("spark", order)
    spark.version = "4"  # type: ignore[attr-defined]
    active = [Stopped("query", order, error), Stopped("another", order)]
    spark.streams = SimpleNamespace(active=active)  # type: ignore[attr-defined]
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    with (
        pytest.raises(KeyboardInterrupt),
        open_pipeline(lakehouse.config, "test", ["bronze"], lambda _: None),
    ):
        raise KeyboardInterrupt
    assert order == ["query", "another", "spark"]


def test_layer_runs_level_after_level(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query whose input was not created by a failed one is left out."""
    runs = list[list[str]]()

    def run_level(_: Pipeline, flows: list[Any]) -> list[tuple[Any, MedallionError]]:
        runs.append([flow.name for flow in flows])
        return [(flow, MedallionError("no")) for flow in flows if flow.name == "silver.c"]

    def flow(name: str, upstream: str) -> Any:
        paths = [lakehouse.config.layout.table(name)]
        inputs = {"upstream": [upstream], "targets": [name], "target_paths": paths}
        return SimpleNamespace(name=name, **inputs)

    monkeypatch.setattr(Pipeline, "_run_level", run_level)
    flows = [flow("silver.d", "silver.c"), flow("silver.b", "silver.a")]
    flows += [flow("silver.a", "bronze.a"), flow("silver.c", "bronze.c")]
    failures = lakehouse.pipeline().run_flows(flows)
    assert [flow_.name for flow_, _ in failures] == ["silver.c"]
    assert runs == [["silver.a", "silver.c"], ["silver.b"]]
