"""The latest state and the history of change records, compared with plain Python."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion.layers.silver.changes import (
    current_rows,
    history_rows,
    latest_changes,
    tied_changes,
)

SCHEMA = """history int, id int, name string, n int, tags map<string, string>, _source_file string,
    _ingested_at timestamp, _sequence int, _is_delete boolean"""
KEYS = ("history", "id")
START = datetime(2026, 5, 1, tzinfo=UTC)
DAY = 86_400.0
Change = dict[str, Any]


def change(day: int, sequence: int, **values: Any) -> Change:
    """Return a change that arrives on a day, in a file of that day."""
    row: Change = {"history": 1, "id": 1, "n": 1, "name": None, "tags": None}
    row |= {"_source_file": f"{day}.json", "_ingested_at": START + timedelta(days=day)}
    return row | {"_sequence": sequence, "_is_delete": False} | values


def random_history(number: int) -> list[Change]:
    """Return random changes of up to three keys: out of order, resent, tied, deletes, and nulls."""
    rng = random.Random(number)
    history = []
    for _ in range(rng.randrange(1, 14)):
        name, n = rng.choice([None, "a", "b"]), rng.choice([None, 1, 2])
        values: Change = {"history": number, "id": rng.randrange(3), "name": name, "n": n}
        values |= {"tags": rng.choice([None, {"t": "x"}, {"t": "y"}])}
        values |= {"_is_delete": rng.random() < 0.25}
        history.append(change(rng.randrange(8), rng.randrange(9), **values))
        if rng.random() < 0.2:
            history.append(history[-1] | change_of_file(rng.randrange(8)))
    return history


def change_of_file(day: int) -> Change:
    return {name: change(day, 0)[name] for name in ("_source_file", "_ingested_at")}


HISTORIES = [change for number in range(400) for change in random_history(number)]


def order(change: Change) -> tuple[Any, ...]:
    """Return the sort key of a key's changes; null is the smallest value."""
    technical = ("_sequence", "_ingested_at", "_source_file", "_is_delete")
    tags = None if change["tags"] is None else json.dumps(change["tags"])
    values = [(value is not None, value) for value in (change["name"], change["n"], tags)]
    return (*(change[name] for name in technical), *values)


def by_key(changes: Iterable[Change]) -> Iterable[list[Change]]:
    """Yield the sorted changes of each key."""
    rows = sorted(changes, key=lambda c: (c["history"], c["id"], *order(c)))
    for _, group in groupby(rows, key=lambda c: (c["history"], c["id"])):
        yield list(group)


def last_of_each_sequence(changes: list[Change]) -> list[Change]:
    return list({change["_sequence"]: change for change in changes}.values())


def replayed(changes: list[Change], ignore_nulls: bool) -> list[Change | None]:
    """Return the row after each change, None after a delete."""
    rows = list[Change | None]()
    for change in changes:
        row = dict(change)
        if ignore_nulls and rows and (previous := rows[-1]):
            for name in ("name", "n", "tags"):
                row[name] = previous[name] if row[name] is None else row[name]
        rows.append(None if change["_is_delete"] else row)
    return rows


def latest_state(changes: Iterable[Change], ignore_nulls: bool) -> list[Change]:
    last = (
        replayed(last_of_each_sequence(key_changes), ignore_nulls)[-1]
        for key_changes in by_key(changes)
    )
    return [row for row in last if row]


def history(changes: Iterable[Change], ignore_nulls: bool) -> list[Change]:
    result = []
    for key_changes in by_key(changes):
        steps = last_of_each_sequence(key_changes)
        ends = [step["_sequence"] for step in steps[1:]] + [None]
        for row, end in zip(replayed(steps, ignore_nulls), ends, strict=True):
            if row:
                span = {"valid_from": row.pop("_sequence"), "valid_to": end}
                result.append(row | span | {"is_current": end is None})
    return result


def arrivals(changes: Iterable[Change], days: int) -> list[Change]:
    """Return the latest state if changes are applied as they arrive; deletes last `days`."""
    rows, deletes = dict[Any, Change](), list[Change]()
    for change in sorted(changes, key=lambda c: (c["_ingested_at"], order(c))):
        key, row = (change["history"], change["id"]), rows.get((change["history"], change["id"]))
        remembered = timedelta(days=days)
        is_newer = row is None or order(change) > order(row)
        if change["_is_delete"]:
            deletes.append(change)
            if is_newer:
                rows.pop(key, None)
        elif is_newer and not any(
            (delete["history"], delete["id"]) == key
            and order(delete) > order(change)
            and change["_ingested_at"] <= delete["_ingested_at"] + remembered
            for delete in deletes
        ):
            rows[key] = change
    return list(rows.values())


def frame(spark: SparkSession, changes: Iterable[Change]) -> DataFrame:
    names = [part.split()[0] for part in SCHEMA.replace("<string, string>", "").split(",")]
    return spark.createDataFrame([tuple(c[n] for n in names) for c in changes], SCHEMA)


def rows_of(rows: DataFrame) -> list[str]:
    return sorted(repr(sorted(row.asDict().items())) for row in rows.collect())


def expected(rows: Iterable[Change]) -> list[str]:
    times = ({"_ingested_at": row["_ingested_at"].replace(tzinfo=None)} for row in rows)
    shown = [row | time for row, time in zip(rows, times, strict=True)]
    for row in shown:
        row.pop("_is_delete", None)
    return sorted(repr(sorted(row.items())) for row in shown)


@pytest.mark.parametrize("ignore_nulls", [False, True])
def test_current_rows_of_random_histories(spark: SparkSession, ignore_nulls: bool) -> None:
    rows = current_rows(frame(spark, HISTORIES), KEYS, 100 * DAY, ignore_nulls)
    assert rows_of(rows) == expected(latest_state(HISTORIES, ignore_nulls))


@pytest.mark.parametrize("ignore_nulls", [False, True])
def test_history_rows_of_random_histories(spark: SparkSession, ignore_nulls: bool) -> None:
    rows = history_rows(frame(spark, HISTORIES), KEYS, ignore_nulls)
    assert rows_of(rows) == expected(history(HISTORIES, ignore_nulls))


def test_current_rows_forget_old_deletes(spark: SparkSession) -> None:
    rows = current_rows(frame(spark, HISTORIES), KEYS, 2 * DAY)
    assert rows_of(rows) == expected(arrivals(HISTORIES, days=2))


def test_history_of_a_late_change_splits_its_span(spark: SparkSession) -> None:
    changes = [change(0, 10, n=1), change(0, 30, n=3), change(1, 20, n=2)]
    rows = history_rows(frame(spark, changes), KEYS).orderBy("valid_from")
    spans = [(r.n, r.valid_from, r.valid_to, r.is_current) for r in rows.collect()]
    assert spans == [(1, 10, 20, False), (2, 20, 30, False), (3, 30, None, True)]


def test_latest_changes_have_deletes(spark: SparkSession) -> None:
    changes = [change(0, 1), change(0, 2, _is_delete=True), change(0, 1, id=2)]
    rows = latest_changes(frame(spark, changes), KEYS).orderBy("id").collect()
    assert [(row.id, row._sequence, row._is_delete) for row in rows] == [
        (1, 2, True),
        (2, 1, False),
    ]


def test_tied_changes_differ_in_values(spark: SparkSession) -> None:
    """A resent change has the values of the first one."""
    changes = [change(0, 1), change(1, 1), change(0, 2), change(0, 2, n=5), change(3, 3)]
    tied = tied_changes(frame(spark, [*changes, change(3, 3, tags={"a": "b"})]), KEYS)
    assert sorted(row._sequence for row in tied.collect()) == [2, 3]
