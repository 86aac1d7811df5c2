"""Late rows: inserted into silver, or quarantined if configured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.layers.silver.writer import append_rows
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.recorder import record_flows
from medallion.spark.errors import StreamError
from medallion.spark.watch import await_all
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse, start_flows
from tests.support.lines import event

pytestmark = pytest.mark.usefixtures("production_streams")

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
    else:
        assert {(time,) for time in LATE_TIMES} < set(lakehouse.rows("silver.event", "event_at"))
    assert run_audit(lakehouse.config, everything=True).findings == ()
    # A run without new input inserts no late row twice.
    lakehouse.fill("bronze", "silver")
    assert run_audit(lakehouse.config).balances["event"] == balance


def test_late_rows_are_inserted_beside_a_stream_batch(
    after_first: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of the stream while late rows are appended is no Delta conflict."""
    silver = str(after_first.config.layout.table("silver.event"))

    def commit_again(value: str) -> str:
        existing = QueryBuilder().register("rows", DeltaTable(silver)).execute("select * from rows")
        write_deltalake(silver, existing, mode="append")
        return value

    def append_during_commit(rows: DataFrame, table: Path, options: Mapping[str, str]) -> None:
        committing = F.udf(commit_again, "string", useArrow=False)
        append_rows(rows.withColumn("action", committing("action")), StoragePath(table), options)

    monkeypatch.setattr("medallion.layers.silver.late.append_rows", append_during_commit)
    after_first.land("event", "2.json", event("09:00:00"), event("16:00:00"))
    after_first.fill("bronze", "silver")
    times = [time[11:] for (time,) in after_first.rows("silver.event", "event_at")]
    # The late row is inserted once; the concurrent commit repeats the other rows.
    assert times == ["09:00:00", *sorted(2 * ["10:00:00", "15:00:00", "16:00:00"])]


def test_rules_changed_during_a_query_do_not_apply(after_first: Lakehouse, tmp_path: Path) -> None:
    """Late rows are validated by the rules that the query started with."""
    lakehouse = after_first
    pipeline = ingest_late_row(lakehouse, tmp_path)
    started = start_flows(pipeline, "silver")
    add_only_q_rule(lakehouse)
    await_all((flow.started_run for flow in started), print)
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
    await_all((flow.started_run for flow in start_flows(pipeline, "silver")), print)
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
