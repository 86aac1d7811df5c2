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
from deltalake import DeltaTable
from py4j.protocol import Py4JError

from medallion.config.model import GoldTable, Statement
from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError
from medallion.layers.definition import refuse_changed
from medallion.runtime import pipeline as pipeline_module
from medallion.runtime import refresh
from medallion.runtime.pipeline import Pipeline, open_pipeline
from medallion.spark import session, signals
from medallion.spark.errors import StreamError
from medallion.state import pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.lines import event, recording
from tests.support.runs import record


def test_invalid_sql_names_its_table(lakehouse: Lakehouse) -> None:
    lakehouse.keep_only("event", "action_counts")
    valid = lakehouse.config
    source, counts = valid.sources["event"], valid.gold["action_counts"]
    lakehouse.fill("bronze")
    for column, name in (("Devise", "Devise"), ("nosuch(id)", "nosuch")):
        invalid = replace(source, silver={**source.silver, "action": column})
        lakehouse.config = replace(valid, sources={"event": invalid})
        expected = rf"silver\.event\.action in .*pipeline.yaml line \d+.*: there is no .*{name}\."
        with pytest.raises(ConfigError, match=expected):
            lakehouse.fill("silver")
    lakehouse.config = valid
    lakehouse.fill("silver")
    table = redefined(counts, measure={"n": "sum(acton)"})
    lakehouse.config = replace(valid, gold={"action_counts": table})
    expected = r"gold\.action_counts\.measure\.n in .*: there is no column acton; .* mean action\?"
    with pytest.raises(ConfigError, match=expected):
        lakehouse.fill("gold")
    for measure in ("count(*) / sum(count(*)) over ()", "explode(collect_list(device))"):
        table = redefined(replace(counts, output_mode="update"), measure={"n": measure})
        lakehouse.config = replace(valid, gold={"action_counts": table})
        with pytest.raises(
            ConfigError, match=r"yaml: gold\.action_counts has a window function \(OVER\)"
        ):
            lakehouse.fill("gold")
    # Valid SQL that no stream can run; its table is already created.
    table = redefined(counts, measure={"devices": "count(distinct device)"})
    lakehouse.config = replace(valid, gold={"action_counts": table})
    with pytest.raises(ConfigError, match=r"gold\.action_counts.*[Dd]istinct"):
        lakehouse.fill("gold")
    assert "devices" in delta_tables.column_names(
        lakehouse.config.layout.table("gold.action_counts")
    )
    # SQL that fails at the first row, when each table exists with these columns, most with state.
    lakehouse.land("event", "1.json", event("10:07:00"))
    lakehouse.fill("bronze", "silver")
    number = "cast(action as int)"
    lakehouse.config = replace(valid, gold=tables_in_each_mode(counts, f"avg({number})", number))
    with pytest.raises(StreamError) as error:
        lakehouse.fill("gold")
    assert str(error.value).count("[CAST_INVALID_INPUT]") == 3
    assert str(error.value).count(number) == 3  # the SQL that failed
    fails = "fails at a row, and its table stays as it is: [CAST_INVALID_INPUT] The value 'open'"
    pipeline = lakehouse.config.pipeline_file
    for part in (
        f"gold.action_counts.measure.n in {pipeline}",
        f"gold.updated.measure.n in {pipeline}",
        "gold.appended in appended.sql",
    ):
        assert f"{part} {fails}" in str(error.value)
    assert str(error.value).count("try_cast") >= 3, "the message says what to do"
    lakehouse.config = replace(valid, gold=tables_in_each_mode(counts, "max(action)", "action"))
    lakehouse.fill("gold")
    for name in lakehouse.config.gold:
        assert lakehouse.rows(f"gold.{name}", "n") == [("open",)]


def tables_in_each_mode(counts: GoldTable, measure: str, column: str) -> dict[str, GoldTable]:
    """Return a table in each output mode, with a column `n`."""
    complete = redefined(counts, measure={"events": "count(*)", "n": measure})
    update = replace(complete, name="updated", output_mode="update")
    sql = Statement(Path("appended.sql"), f"select {column} as n from silver_event")
    append = replace(complete, name="appended", definition=sql, output_mode="append")
    return {table.name: table for table in (complete, update, append)}


def test_changed_gold_definition_is_refused(lakehouse: Lakehouse) -> None:
    """Counts of 10 minutes would continue as counts of 5; other tables are not affected."""
    config = lakehouse.config
    line = '{"id": "p", "action": "open", "ts": "2018-03-02T10:07:00"}'
    lakehouse.land("event", "1.json", line)
    sources = {"event": config.sources["event"]}
    gold = {name: t for name, t in config.gold.items() if t.tables == ("silver.event",)}
    lakehouse.config = replace(config, sources=sources, gold=gold)
    lakehouse.fill()
    before = lakehouse.rows("gold.action_counts")
    changed_definition = redefined(gold["action_counts"], window=Duration.parse("5 minutes"))
    lakehouse.config = replace(lakehouse.config, gold={**gold, "action_counts": changed_definition})
    lakehouse.land("event", "2.json", line.replace("07", "08"))
    lakehouse.fill("bronze", "silver")
    expected = (
        r"gold.action_counts has changed .*window was '10 minutes'.* refresh gold.action_counts"
    )
    with pytest.raises(ConfigError, match=expected):
        lakehouse.fill("gold")
    measures = {"one": "count(*)", "two": "count_if(device = 'p')"}
    swapped = dict(reversed(measures.items()))
    definitions = ({"measure": measures}, {"measure": swapped})
    refuse_changed(config, "gold.t", *definitions)
    with pytest.raises(ConfigError, match="measure was"):
        refuse_changed(config, "gold.t", *definitions, in_order=["measure"])
    assert lakehouse.rows("gold.action_counts") == before
    assert sum(row[-1] for row in lakehouse.rows("gold.user_activity", "total_events")) == 4
    counts = ("window_start", "window_end", "total_events")
    same_window = redefined(gold["action_counts"], window=Duration.parse("600 seconds"))
    lakehouse.config = replace(lakehouse.config, gold={"action_counts": same_window})
    lakehouse.fill("gold")
    ten_minutes = [("2018-03-02 10:00:00", "2018-03-02 10:10:00", 2)]
    assert lakehouse.rows("gold.action_counts", *counts) == ten_minutes
    lakehouse.config = replace(lakehouse.config, gold={"action_counts": changed_definition})
    refresh.refresh_table(lakehouse.pipeline(), "gold.action_counts")
    five_minutes = [("2018-03-02 10:05:00", "2018-03-02 10:10:00", 2)]
    assert lakehouse.rows("gold.action_counts", *counts) == five_minutes
    # A table without a checkpoint is recomputed, and may have other columns.
    shutil.rmtree(lakehouse.config.layout.checkpoint("gold.action_counts"))
    measures = {"device": "max(device)", "total_events": "string(count(*))"}
    recreated = redefined(changed_definition, measure=measures)
    lakehouse.config = replace(lakehouse.config, gold={"action_counts": recreated})
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.action_counts", *measures) == [("p", "2")]
    lakehouse.land("event", "3.json", line.replace("07", "09"), line.replace("07", "13"))
    lakehouse.fill()
    rows = lakehouse.rows("gold.action_counts", "window_start", *measures)
    assert rows == [("2018-03-02 10:05:00", "p", "3"), ("2018-03-02 10:10:00", "p", "1")]
    log = (lakehouse.config.layout.table("gold.action_counts") / "_delta_log").local.glob("*.json")
    assert sum('"metaData"' in commit.read_text() for commit in log) == 2, "created, and recreated"
    check_changed_rows_are_refused(lakehouse, line)


def check_changed_rows_are_refused(lakehouse: Lakehouse, line: str) -> None:
    """The error names medallion's remedy instead of Spark's, which users cannot apply."""
    lakehouse.land("event", "4.json", line.replace("07", "14"))
    lakehouse.fill("bronze", "silver")
    silver = DeltaTable(lakehouse.config.layout.table("silver.event"))
    silver.delete("date_part('minute', event_at) = 13")
    with pytest.raises(StreamError, match=r"modified or vacuumed.* refresh gold.action_counts"):
        lakehouse.fill("gold")


CHANGED_DEFINITIONS: list[tuple[dict[str, Any], str]] = [
    ({"keys": ("device", "event_at", "action")}, "keys"),
    ({"silver": {"more": "id"}}, "more"),
    ({"silver": {"kind": "1"}}, "kind"),
    ({"silver": {"kind": None}}, "kind"),
    ({"silver": {"action": "upper(action)"}}, "action"),
    # Otherwise old and new rows would have different values.
    ({"silver": {"kind": "'app 2'"}}, "kind"),
]


def test_changed_silver_definition_is_refused(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """A changed key order would let duplicates in; late rows need all columns of the table."""
    source = lakehouse.config.sources["event"]
    source = replace(source, silver={**source.silver, "kind": "'app'"})
    lakehouse.config = replace(lakehouse.config, sources={"event": source}, gold={})
    lakehouse.land("event", "1.json", event("10:07:00"))
    lakehouse.fill("bronze", "silver")
    lakehouse.land("event", "2.json", event("10:07:00"))
    lakehouse.fill("bronze")
    for changed, part in CHANGED_DEFINITIONS:
        silver = {**source.silver, **changed.get("silver", {})}
        changed = {**changed, "silver": {name: sql for name, sql in silver.items() if sql}}
        lakehouse.config = replace(lakehouse.config, sources={"event": replace(source, **changed)})
        expected = rf"definition of silver\.event has changed .*{part}.* refresh silver\.event"
        with pytest.raises(ConfigError, match=expected):
            lakehouse.fill("silver")
        assert len(lakehouse.rows("silver.event")) == 1
    for sql, expected in (
        ("explode(array(1, 2))", "returns several rows, or none, for one"),
        (
            "string(window(ts, '1 hour').start)",
            "returns several rows, or none, for one",
        ),
        (
            "string(window(ts, '1 hour', '30 minutes').start)",
            "returns several rows, or none, for one",
        ),
        ("string(session_window(ts, '1 hour').start)", "returns several rows, or none, for one"),
        ("now()", "current time"),
        ("string(date /* of */ 'Today')", "current time"),
        ("(select max(id) from values ('a') as t(id))", "another table"),
    ):
        changed_definition = replace(source, silver={**source.silver, "kind": sql})
        config = replace(lakehouse.config, sources={"event": changed_definition})
        with pytest.raises(ConfigError, match=rf"sources\.event\.silver .*{expected}"):
            Pipeline(lakehouse.spark, config, "test", print).run("silver")
    silver = {**source.silver, "lat": "double(1)"}
    floating = replace(source, silver=silver, keys=(*source.keys, "lat"))
    inexact = replace(lakehouse.config, sources={"event": floating})
    with pytest.raises(ConfigError, match=r"sources\.event\.keys .*floating-point column lat"):
        Pipeline(lakehouse.spark, inexact, "test", print).run("silver")
    with_key = replace(source, silver={**source.silver, "lat": "1"}, keys=(*source.keys, "lat"))
    changed_keys = replace(lakehouse.config, sources={"event": with_key})
    with pytest.raises(ConfigError, match=r"keys was \['event_at', 'device', 'action'\]"):
        Pipeline(lakehouse.spark, changed_keys, "test", print).run("silver")
    suite = lakehouse.copy_of_conf(tmp_path) / "great_expectations/expectations/silver/event.json"
    rules = suite.read_text()
    for sql, expected in (
        ("rand() < 0.5", "silver.event depends on"),
        ("event_at > current_timestamp()", "silver.event depends on"),
        ("exists(values (1))", "silver.event depends on"),
        ("window(event_at, '1 hour').end > _ingested_at", "returns several rows, or none"),
    ):
        lakehouse.expect(
            "silver.event",
            "future_event_time",  # replaces the built-in rule
            "unexpected_rows_expectation",
            "quarantine",
            unexpected_rows_query=f"SELECT * FROM {{batch}} WHERE {sql}",
        )
        with pytest.raises(ConfigError, match=rf"rule .*{expected}"):
            lakehouse.fill("silver")
        suite.write_text(rules)
    refresh.refresh_table(lakehouse.pipeline(), "silver.event")
    lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.event")) == 1


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
    monkeypatch.setattr(pipeline_module, "report_lost_workers", lambda *_: None)
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
