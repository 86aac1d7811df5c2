"""Silver's two tables: each batch writes its rows once, and its commits have the counts."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion.errors import MedallionError, UsageError
from medallion.inspect.audit import run_audit
from medallion.layers.silver import writer
from medallion.layers.silver.writer import BatchCounts, SilverWriter
from medallion.spark import checkpoints, delta, jvm
from medallion.storage import delta_log
from medallion.storage.delta_log import Transaction
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

GOOD = (event("10:00:00"), event("10:00:01"), event("10:00:02", None))
BROKEN = (event("10:00:03").replace("2018", "2999"), "{")
TIMES = ["2018-03-02 10:00:00", "2018-03-02 10:00:01", "2018-03-02 10:00:02"]
QUARANTINED = [
    ("2999-03-02 10:00:03", None, ["future_event_time"]),
    (None, "{", ["malformed_line"]),
]


def tables(lakehouse: Lakehouse) -> tuple[list[Any], list[Any]]:
    """Return the times of silver's rows, and time, line and rule of quarantine's rows."""
    silver = [time for (time,) in lakehouse.rows("silver.event", "event_at")]
    quarantined = lakehouse.rows("quarantine.event", "ts", "_corrupt_record", "_failed_rules")
    return silver, [(time, line, rules[:1]) for time, line, rules in quarantined]


def test_batch_interrupted_between_its_tables_is_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver's rows are not written again, quarantined rows are.

    The next batch then has no row for silver.
    """
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("event")
    lakehouse.land("event", "1.json", *GOOD, GOOD[0], *BROKEN)
    lakehouse.fill("bronze")

    append = delta.write_once

    def append_silver_only(rows: Any, table: StoragePath, options: Any, **more: Any) -> bool:
        if table.parent.name == "quarantine":
            raise MedallionError("interrupted")
        return append(rows, table, options, **more)

    with monkeypatch.context() as patch:
        patch.setattr(delta, "write_once", append_silver_only)
        with pytest.raises(MedallionError, match="interrupted"):
            lakehouse.fill("silver")
    assert tables(lakehouse) == (TIMES, [])
    lakehouse.fill("silver")
    assert tables(lakehouse) == (TIMES, QUARANTINED)
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.balances["event"].duplicate_rows) == ((), 1)

    lakehouse.land("event", "2.json", *GOOD[:2], BROKEN[1])
    lakehouse.fill("bronze", "silver")
    assert tables(lakehouse) == (TIMES, [*QUARANTINED, QUARANTINED[1]])
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.balances["event"].duplicate_rows) == ((), 3)


@pytest.mark.parametrize(
    ("is_snapshot", "order"),
    [(True, ["q", "silver", "q"]), (False, ["silver", "q"])],
)
def test_keys_in_quarantine_are_written_before_the_log_of_a_snapshot(
    silver: SilverWriter,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    is_snapshot: bool,
    order: list[str],
) -> None:
    """A merge beside a stream may read both tables between the two commits.

    The second commit to quarantine has the number of the first, and is not made.
    """
    tables = list[str]()
    monkeypatch.setattr(delta, "write_once", lambda _, table, *__: tables.append(table.name))

    def write_counted(
        rows: DataFrame, _: object, table: StoragePath, *__: object, **___: object
    ) -> dict[str, int]:
        tables.append(table.name)
        return {"broken": 1}

    monkeypatch.setattr(writer, "write_counted", write_counted)
    silver.source = SimpleNamespace(  # type: ignore[assignment]
        silver_columns=["id"], cdc=SimpleNamespace(snapshot=is_snapshot)
    )
    rows = spark.sql(
        "select id, struct(id) as _bronze, false as _is_duplicate,"
        " if(id = 1, array('missing_name'), array()) as _failed_rules from range(2)"
    )
    silver._write(rows, "query", 0, rows_read=2)
    assert tables == order


@pytest.fixture
def silver(tmp_path: Path) -> SilverWriter:
    """Return a writer of `query`, without Spark."""
    paths = (StoragePath(tmp_path / name) for name in ("b", "silver", "q", "checkpoint"))
    query = SimpleNamespace(get={"query": object()}.get)
    silver = object.__new__(SilverWriter)
    silver.__dict__ |= {"tables": writer.SilverTables(*paths), "_query": "query"}
    silver.spark = SimpleNamespace(streams=query)  # type: ignore[assignment]
    return silver


@pytest.mark.parametrize(
    ("rows", "earliest", "may_have"),
    [
        ((3, 2), 1001, False),
        ((0, 5), None, False),
        ((3, 2), 1000, True),  # not after the watermark
        ((3, 1), 1001, True),  # Spark has not observed all rows
        (None, None, True),
    ],
)
def test_late_rows_are_read_unless_none_was_observed(
    silver: SilverWriter,
    monkeypatch: pytest.MonkeyPatch,
    rows: tuple[int, int] | None,
    earliest: int | None,
    may_have: bool,
) -> None:
    identified, others = rows or (None, None)
    observed = {
        "identified": {"rows": identified, "earliest": earliest},
        "others": {"rows": others},
    }
    monkeypatch.setattr(jvm, "observed_metrics", lambda _, part: observed[part] if rows else {})
    monkeypatch.setattr(checkpoints, "watermark", lambda *_: 1000)
    assert silver._may_have_late_rows(7, rows_read=5) == may_have


def test_counts_of_batches(silver: SilverWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit of an older version has no counts, and the table is to be rebuilt."""

    def commit(number: int, rows: int, application: str, metadata: str) -> Transaction:
        add = {"dataChange": True, "stats": f'{{"numRecords": {rows}}}'}
        info = {"userMetadata": metadata} if metadata else {}
        return Transaction(number, application, number, [{"commitInfo": info}, {"add": add}])

    counted = '{"rows_read": 9, "unmatched_rows": 1}'
    commits = {
        "silver": [
            commit(2, 3, "query-late", '{"unmatched_rows": 2}'),
            commit(2, 4, "query", counted),
            commit(1, 1, "query", ""),
        ],
        "q": [commit(2, 1, "query", "")],
    }

    def transactions(table: StoragePath, first: int, *_: str) -> list[Transaction]:
        return [each for each in commits[table.name] if each.number >= first]

    monkeypatch.setattr(delta_log, "transactions", transactions)
    monkeypatch.setattr(checkpoints, "late_id", lambda _: "query-late")
    # 9 rows read: 4 in silver, 3 late ones, 1 in quarantine.
    assert silver.batch_counts(range(2, 3)) == {2: BatchCounts(9, 1, 3, 3)}
    with pytest.raises(UsageError, match=r"an older version wrote it\. Rebuild the table"):
        silver.batch_counts(range(1, 3))
