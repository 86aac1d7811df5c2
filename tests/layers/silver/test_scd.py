"""Change records merged in batches, compared with all changes merged at once, or by Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.config.tables import CdcConfig
from medallion.config.values import Duration
from medallion.layers.silver.changes import tied_changes
from medallion.layers.silver.scd import ChangeMerge, numbers_as_text, table_rows, tie_message
from medallion.storage import delta_log, delta_tables
from tests.layers.silver.test_changes import (
    HISTORIES,
    KEYS,
    OF_DATABASE,
    Change,
    arrivals,
    change,
    expected,
    frame,
    history,
    rows_of,
)
from tests.support.lakehouse import Lakehouse, activity_source

CDC = CdcConfig("", "delete", "truncate", "?", 1, False, Duration.parse("2 days"))


@pytest.fixture(autouse=True)
def active_session(spark: SparkSession) -> Iterator[None]:
    """Reactivate the tests' session, because `createDataFrame` activates another one."""
    yield
    sessions: Any = SparkSession
    sessions._activeSession = spark
    java = sessions._get_j_spark_session_class(spark._jvm)
    java.setActiveSession(spark._jsparkSession)


class Merged:
    """A table of change records whose batches are static rows."""

    def __init__(self, spark: SparkSession, root: Path, **changes: Any) -> None:
        # A query has a separate session with the settings of its batch.
        self.spark = spark.newSession()
        cdc = replace(CDC, **changes)
        self.source = activity_source(keys=KEYS, event_time="", cdc=cdc, is_debezium=True)
        sources = {self.source.name: self.source}
        self.config: Config = replace(Lakehouse(None, root).config, sources=sources)
        self.table = self.config.layout.table(f"silver.{self.source.name}")
        self.log = self.config.layout.table(self.source.rows_table)
        checkpoint = self.config.layout.checkpoint(f"silver.{self.source.name}")
        checkpoint.local.mkdir(parents=True)
        (checkpoint / "metadata").local.write_text('{"id": "query"}')
        empty = frame(self.spark, [])
        rows, properties = table_rows(empty, self.source), self.config.properties("silver.a")
        delta_tables.create_table(self.table, rows.schema.json(), properties)
        self.messages = list[str]()
        self.merge = ChangeMerge(self.config, self.source, self.messages.append)

    def batch(self, number: int, *changes: Change) -> None:
        """Append changes to the log, and merge them."""
        rows = frame(self.spark, changes)
        rows.write.format("delta").mode("append").save(str(self.log))
        self.merge(rows, number)

    def rows(self) -> list[str]:
        return rows_of(self.spark.read.format("delta").load(str(self.table)))


# The days of each batch. `test_changes` compares all histories with plain Python.
BATCHES = ([0, 1, 2], [3, 4, 5, 6, 7])
MERGED = [change for change in HISTORIES if change["history"] < 120]
OF_DATABASE_MERGED = [change for change in OF_DATABASE if (change["history"] or 0) < 120]
HISTORY = {"stored_as_scd_type": 2}


@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        pytest.param(MERGED, {}, id="latest"),
        pytest.param(  # the test below has two changes
            MERGED, {"ignore_null_updates": True}, id="ignoring nulls", marks=pytest.mark.slow
        ),
        pytest.param(MERGED, HISTORY, id="history", marks=pytest.mark.slow),
        pytest.param(OF_DATABASE_MERGED, {}, id="latest of a database", marks=pytest.mark.slow),
        pytest.param(OF_DATABASE_MERGED, HISTORY, id="history of a database"),
    ],
)
def test_merge_in_batches_equals_merge_at_once(
    spark: SparkSession, tmp_path: Path, changes: list[Change], settings: dict[str, Any]
) -> None:
    """A batch that is repeated as another one changes nothing."""
    merged = Merged(spark, tmp_path, **settings)
    for number, days in enumerate(BATCHES):
        batch = [c for c in changes if c["_source_file"] in {f"{day}.json" for day in days}]
        merged.batch(number, *batch)
    if changes is MERGED and settings in ({}, HISTORY):
        merged.merge(frame(merged.spark, batch), number + 1)
    if settings == HISTORY:
        assert merged.rows() == expected(history(changes, ignore_nulls=False))
    elif changes is MERGED and not settings:
        assert merged.rows() == expected(arrivals(MERGED, days=2))
    else:
        log = merged.spark.read.format("delta").load(str(merged.log))
        assert merged.rows() == rows_of(table_rows(log, merged.source))


def test_null_keeps_the_value_of_an_earlier_batch(spark: SparkSession, tmp_path: Path) -> None:
    merged = Merged(spark, tmp_path, ignore_null_updates=True)
    merged.batch(0, change(0, 1, name="a", n=1))
    merged.batch(1, change(1, 2, name=None, n=2))
    assert merged.rows() == expected([change(1, 2, name="a", n=2)])


@pytest.fixture(scope="module")
def two_batches(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Merged:
    """Return a table after a batch that runs twice, one without rows, and one with a tie."""
    merged = Merged(spark, tmp_path_factory.mktemp("merged"))
    first = change(0, 1, id=5), change(1, 1, id=5)
    merged.batch(0, *first)
    merged.merge(frame(merged.spark, first), 0)
    merged.merge(frame(merged.spark, []), 1)
    assert merged.messages == []
    merged.batch(2, change(2, 1, id=5, n=7), change(2, 2, id=6, n=1), change(2, 2, id=6, n=2))
    return merged


def test_repeated_batch_is_one_commit(two_batches: Merged) -> None:
    table = two_batches.table
    commits = [delta_log.committed_version(table, "query", number) for number in range(3)]
    assert commits == [1, None, delta_tables.table_version(table)]
    assert commits[-1] == 2


def test_tie_message_has_an_example(spark: SparkSession, tmp_path: Path) -> None:
    merged = Merged(spark, tmp_path)
    log = frame(spark, [change(0, 1, id=5), change(0, 1, id=5, n=7), change(0, 1, id=6)])
    ties = tied_changes(log, merged.source.keys)
    assert tie_message(ties, merged.source) == (
        '1 sequence with different values for one key, such as {"history":1,"id":5,"_sequence":1}: '
        "the later file wins, and in a file the later line"
    )


def test_ties_of_a_batch_are_reported(two_batches: Merged) -> None:
    """A resent change is no tie; `audit --deep` finds the tie with batch 0."""
    name = two_batches.source.name
    assert two_batches.messages == [
        f"  silver.{name} batch 2: 1 sequence with different values for one key, "
        'such as {"history":1,"id":6,"_sequence":2}: the later file wins, and in a file the later '
        "line"
    ]


def test_replayed_delete_hides_earlier_rows(spark: SparkSession, tmp_path: Path) -> None:
    """A delete hides what is ingested within two days after it, also if it is merged last."""
    merged = Merged(spark, tmp_path)
    merged.batch(0, change(1, 5), change(3, 4), change(1, 5, id=2))
    merged.batch(1, change(0, 6, _is_delete=True), change(0, 6, id=2, _is_delete=True))
    assert merged.rows() == expected([change(3, 4)])


@pytest.mark.parametrize("scd_type", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_snapshot_that_is_not_applied_changes_nothing(
    spark: SparkSession, tmp_path: Path, scd_type: int
) -> None:
    """The second of three has too few keys, and the merge concerns all keys."""
    settings = {"snapshot": True, "stored_as_scd_type": scd_type, "track": ("name",)}
    merged = Merged(spark, tmp_path, **settings)
    merged.batch(0, *(change(0, 1, history=n) for n in (1, 2, 3, 4)))
    third = (change(2, 3, history=n) for n in (1, 2, 3))
    merged.batch(1, change(1, 2, history=2), *third)
    rows = merged.spark.read.format("delta").load(str(merged.table))
    if scd_type == 1:
        assert sorted(row.history for row in rows.collect()) == [1, 2, 3]
    else:
        spans = rows.select("history", "valid_from", "valid_to").collect()
        assert sorted(map(tuple, spans)) == [(1, 1, None), (2, 1, None), (3, 1, None), (4, 1, 3)]


@pytest.mark.parametrize(
    ("sequence", "texts"),
    [
        ("string(id)", ["10", "9"]),
        ("struct(1 as a, string(id) as `b c`)", ["10", "9"]),
        ("lpad(id, 4, '0')", []),
        ("concat('v', id)", []),
        ("concat('0/', if(id = 9, 'FFFFFEC', '10000000'))", ["0/10000000", "0/FFFFFEC"]),
        ("concat(id, '/16B3748')", ["10/16B3748", "9/16B3748"]),
        ("id", []),
        ("concat('177762960', id - 9, if(id = 9, '', '.5'))", []),
        (
            "concat('2026-05-01T10:00:00', if(id = 9, '', '.1234567'), 'Z')",
            ["2026-05-01T10:00:00.1234567Z", "2026-05-01T10:00:00Z"],
        ),
        (
            "concat('2026-10-25T02:', id * 3, ':00.1234567+0', 11 - id, ':00')",
            ["2026-10-25T02:27:00.1234567+02:00", "2026-10-25T02:30:00.1234567+01:00"],
        ),
        ("concat('2026-10-25T02:27:00', if(id = 9, '', '.1234567'), '+02:00')", []),
        ("string(null)", []),
    ],
)
def test_numbers_ordered_as_text_are_found(
    spark: SparkSession, sequence: str, texts: list[str]
) -> None:
    log = spark.range(9, 11).selectExpr(f"{sequence} as _sequence")
    assert numbers_as_text(log) == texts
