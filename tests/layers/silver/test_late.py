"""Late rows: inserted into silver, or quarantined if configured."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.layers.silver.writer import SilverWriter
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.recorder import record_flows
from medallion.spark import delta
from medallion.spark.delta import write_once
from medallion.spark.errors import StreamError
from medallion.spark.watch import await_all
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse, start_flows
from tests.support.lines import event
from tests.support.settings import EVICTING_STREAMS, changed_settings

FIRST = (event("10:00:00"), event("15:00:00"))  # moves the watermark to 14:00
LATE = (
    event("09:00:00"),
    event("09:00:00"),  # a duplicate of a late row
    event("09:00:01"),
    event("10:00:00"),  # already in silver
    event("16:00:00"),  # on time
    event("09:00:02", device=None),  # null key: neither late nor a duplicate
    # Late, with times that Delta's change feed shifts by days or cannot represent.
    event("09:00:00").replace("2018-03-02", "1582-10-10"),
    event("09:00:00").replace("2018-03-02", "0001-01-01"),
)
LATE_TIMES = ["0001-01-01 09:00:00", "1582-10-10 09:00:00", "2018-03-02 09:00:00"]
LATE_TIMES += ["2018-03-02 09:00:01"]


def add_only_q_rule(lakehouse: Lakehouse) -> None:
    """Add a rule to silver that allows only device q."""
    kwargs = {"column": "device", "value_set": ["q"]}
    type_ = "expect_column_values_to_be_in_set"
    lakehouse.expect("silver.event", "only_q", type_, "quarantine", **kwargs)


def keep_only_events(lakehouse: Lakehouse, late: str) -> None:
    """Configure only the source event."""
    sources = {"event": replace(lakehouse.config.sources["event"], late=late)}
    lakehouse.config = replace(lakehouse.config, sources=sources, gold={})


@pytest.fixture(scope="module")
def first_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("late") / "lakehouse")
    keep_only_events(lakehouse, "admit")
    lakehouse.land("event", "0.json", *FIRST)
    with changed_settings(spark, EVICTING_STREAMS):
        lakehouse.fill("bronze", "silver")
    return lakehouse


@pytest.fixture
def after_first(first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy of the lakehouse after its first run."""
    return first_run.copy(tmp_path / "lakehouse")


def ingest_late_row(lakehouse: Lakehouse, conf: Path) -> Pipeline:
    """Ingest a late row and one on time into bronze, unread by silver."""
    lakehouse.copy_of_conf(conf)
    lakehouse.land("event", "2.json", event("09:00:00"), event("16:00:00"))
    pipeline = lakehouse.pipeline()
    pipeline.run("bronze")
    return pipeline


@pytest.mark.parametrize("late", ["admit", "quarantine"])
def test_late_rows(after_first: Lakehouse, late: str) -> None:
    lakehouse = after_first
    keep_only_events(lakehouse, late)
    lakehouse.land("event", "2.json", *LATE)
    lakehouse.fill("bronze", "silver")
    balance = run_audit(lakehouse.config).balances["event"]
    inserted = 4 if late == "admit" else 0
    assert balance == Balance(
        landed_lines=10,
        bronze_rows=10,
        silver_rows=2 + 2 + inserted,
        quarantined_rows=4 - inserted,
        duplicate_rows=2,
        late_rows=inserted,
        waiting_rows=0,
    )
    if late == "quarantine":
        quarantined = lakehouse.rows("quarantine.event", "ts", "_failed_rules")
        assert quarantined == [(time, ["late"]) for time in LATE_TIMES]
        assert run_audit(lakehouse.config, everything=True).findings == ()
    else:
        assert {(time,) for time in LATE_TIMES} < set(lakehouse.rows("silver.event", "event_at"))
    # A run without new input inserts no late row twice.
    lakehouse.fill("bronze", "silver")
    assert run_audit(lakehouse.config).balances["event"] == balance


def die_at(
    monkeypatch: pytest.MonkeyPatch, write: tuple[str, int], lakehouse: Lakehouse
) -> list[tuple[str, int]]:
    """Run silver, which dies before one of its writes: a layer, and how often it was written."""
    writes = list[tuple[str, int]]()

    def append(rows: DataFrame, table: StoragePath, *options: Any, **more: Any) -> bool:
        layer = table.parent.name
        writes.append((layer, sum(layer == name for name, _ in writes)))
        if writes[-1] == write:
            raise OSError("interrupted")
        return write_once(rows, table, *options, **more)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_once", append)
        with suppress(StreamError):
            lakehouse.fill("silver")
    return writes


@pytest.mark.parametrize("late", ["admit", pytest.param("quarantine", marks=pytest.mark.slow)])
def test_batch_killed_at_each_write(
    after_first: Lakehouse, late: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver's rows, quarantine's, late rows, and the end of the batch: in this order."""
    lakehouse = after_first
    keep_only_events(lakehouse, late)
    broken = event("17:00:00").replace("2018", "2999")
    lakehouse.land("event", "2.json", *LATE, broken)
    lakehouse.fill("bronze")
    inserted = 4 if late == "admit" else 0
    last = ("silver" if late == "admit" else "quarantine", 1)
    expected = [("silver", 0), ("quarantine", 0), last]
    # Each is repeated from the start; Delta skips the commits that are done.
    assert die_at(monkeypatch, expected[0], lakehouse) == expected[:1]
    assert len(lakehouse.rows("silver.event")) == 2
    assert die_at(monkeypatch, expected[1], lakehouse) == expected[:2]
    assert len(lakehouse.rows("silver.event")) == 2 + 2
    assert lakehouse.rows("quarantine.event") == []
    assert die_at(monkeypatch, last, lakehouse) == expected
    assert len(lakehouse.rows("quarantine.event")) == 1
    # This process writes all, and dies before the batch's end.
    with monkeypatch.context() as patched:
        patched.setattr(SilverWriter, "_may_have_late_rows", write_late_rows_and_die)
        with pytest.raises(StreamError, match="interrupted"):
            lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.event")) == 4 + inserted
    lakehouse.fill("silver")
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.findings, audit.balances["event"]) == (
        (),
        Balance(
            landed_lines=11,
            bronze_rows=11,
            silver_rows=4 + inserted,
            quarantined_rows=1 + 4 - inserted,
            duplicate_rows=2,
            late_rows=inserted,
            waiting_rows=0,
        ),
    )


def write_late_rows_and_die(silver: SilverWriter, batch: int, _: int) -> bool:
    silver.write_late_rows(batch)
    raise OSError("interrupted")


def test_batch_without_late_rows_reads_bronze_once(
    after_first: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows on time are compared with nothing, also if some are duplicates."""
    lakehouse = after_first
    monkeypatch.setattr(SilverWriter, "write_late_rows", None)
    lakehouse.land("event", "2.json", *2 * [event("16:00:00")], event("15:00:00"))
    lakehouse.fill("bronze", "silver")
    balance = run_audit(lakehouse.config).balances["event"]
    assert (balance.silver_rows, balance.duplicate_rows, balance.late_rows) == (3, 2, 0)


def test_rules_changed_during_a_query_do_not_apply(after_first: Lakehouse, tmp_path: Path) -> None:
    """Late rows are validated by the rules that the query started with."""
    lakehouse = after_first
    pipeline = ingest_late_row(lakehouse, tmp_path)
    started = start_flows(pipeline, "silver")
    add_only_q_rule(lakehouse)
    await_all(flow.started_run for flow in started)
    assert record_flows(pipeline.runs, started) == {}
    assert len(lakehouse.rows("silver.event")) == 4
    assert lakehouse.rows("quarantine.event") == []
    assert run_audit(lakehouse.config).is_balanced


@pytest.mark.parametrize("late", ["admit", pytest.param("quarantine", marks=pytest.mark.slow)])
def test_rules_changed_after_an_interruption_apply_to_new_rows(
    after_first: Lakehouse, tmp_path: Path, late: str
) -> None:
    """The interrupted batch keeps the rules and the setting `late` that it started with.

    The changed rule and setting apply to the following batches, in the same run.
    """
    lakehouse = after_first
    keep_only_events(lakehouse, late)
    pipeline = ingest_late_row(lakehouse, tmp_path)
    # Interrupt the batch before it is recorded.
    await_all(flow.started_run for flow in start_flows(pipeline, "silver"))
    add_only_q_rule(lakehouse)
    keep_only_events(lakehouse, "quarantine" if late == "admit" else "admit")
    # Rows that arrived since are not part of that batch.
    lakehouse.land("event", "3.json", event("17:00:00"))
    lakehouse.fill("bronze")
    # Not a nightly run: its gate would apply the new suite and block the old rows.
    lakehouse.fill("silver")
    inserted = 1 if late == "admit" else 0
    assert len(lakehouse.rows("quarantine.event")) == 2 - inserted
    assert len(lakehouse.rows("silver.event")) == 3 + inserted
    assert ("2018-03-02 17:00:00", ["only_q"]) in lakehouse.rows(
        "quarantine.event", "ts", "_failed_rules"
    )
    assert run_audit(lakehouse.config).is_balanced


def test_corrected_expression_applies_at_once(lakehouse: Lakehouse, tmp_path: Path) -> None:
    """A failed batch that has written nothing does not pin the wrong expression, or rule.

    Rows before 1970, where Spark's watermark starts, are not late if there were no earlier rows.
    """
    keep_only_events(lakehouse, "quarantine")
    source = lakehouse.config.sources["event"]

    def set_action(sql: str) -> None:
        changed = replace(source, silver={**source.silver, "action": sql})
        lakehouse.config = replace(lakehouse.config, sources={"event": changed})

    rows = [event("10:00:00").replace("2018", year) for year in ("1950", "1960")]
    lakehouse.land("event", "1.json", *rows)
    lakehouse.fill("bronze")
    # Spark's error does not contain the SQL of this expression.
    set_action("string(to_date(action, 'yyyy'))")
    error = r"\[CANNOT_PARSE_TIMESTAMP\]"
    message = rf"silver\.event\.action in .*pipeline\.yaml fails at a row.*{error}.* return null"
    with pytest.raises(StreamError, match=message):
        lakehouse.fill("silver")
    set_action("coalesce(string(try_cast(action as int)), 'none')")
    lakehouse.copy_of_conf(tmp_path)
    regex = {"column": "action", "regex": "(?P<any>.)"}  # Python's syntax; Java's differs
    type_ = "expect_column_values_to_match_regex"
    suite = lakehouse.expect("silver.event", "spelled", type_, "quarantine", **regex)
    with pytest.raises(
        StreamError, match=r"the rule spelled of silver\.event in .* fails at a row"
    ):
        lakehouse.fill("silver")
    suite.write_text(suite.read_text().replace("?P<any>", "?<any>"))
    lakehouse.fill("silver")
    assert lakehouse.rows("silver.event", "event_at", "action") == [
        (f"{year}-03-02 10:00:00", "none") for year in (1950, 1960)
    ]
    assert lakehouse.rows("quarantine.event") == []
    assert run_audit(lakehouse.config).is_balanced
