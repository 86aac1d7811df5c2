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
    by_key,
    current_rows,
    history_rows,
    last_files,
    latest_changes,
    of_snapshots,
    tied_changes,
)

COLUMNS = {
    "history": "int",
    "id": "int",
    "name": "string",
    "n": "int",
    "tags": "map<string, string>",
    "_source_file": "string",
    "_source_position": "long",
    "_ingested_at": "timestamp",
    "_sequence": "int",
    "_is_delete": "boolean",
    "_is_truncate": "boolean",
    "_old_key": "struct<history: int, id: int>",
    "_unavailable": "array<string>",
}
SCHEMA = ", ".join(f"{name} {dtype}" for name, dtype in COLUMNS.items())
KEYS, VALUES = ("history", "id"), ("name", "n", "tags")
START = datetime(2026, 5, 1, tzinfo=UTC)
DAY = 86_400.0
Change = dict[str, Any]


def change(day: int, sequence: int, **values: Any) -> Change:
    """Return a change that arrives on a day, in a file of that day."""
    row: Change = {"history": 1, "id": 1, "n": 1, "name": None, "tags": None}
    row |= {"_source_file": f"{day}.json", "_ingested_at": START + timedelta(days=day)}
    row |= {"_source_position": 1, "_is_truncate": None, "_old_key": None, "_unavailable": None}
    return row | {"_sequence": sequence, "_is_delete": False} | values


def truncate(day: int, sequence: int) -> Change:
    nothing = dict.fromkeys(("history", "id", "n"))
    return change(day, sequence, **nothing, _is_delete=True, _is_truncate=True)


def random_history(number: int, of_database: bool = False) -> list[Change]:
    """Return random changes of up to three keys: out of order, resent, tied, deletes, and nulls.

    Those of a database also change keys, by an update or by a delete and an insert, and lack values
    that did not change.
    """
    rng = random.Random(number)
    history = list[Change]()
    for _ in range(rng.randrange(1, 14)):
        name, n = rng.choice([None, "a", "b"]), rng.choice([None, 1, 2])
        values: Change = {"history": number, "id": rng.randrange(3), "name": name, "n": n}
        values |= {"tags": rng.choice([None, {"t": "x"}, {"t": "y"}])}
        values |= {"_is_delete": rng.random() < 0.25}
        sequence = rng.randrange(9)
        if of_database:
            line, old = len(history), (values["id"] + rng.randrange(1, 3)) % 3
            sequence = 100_000 * sequence + 100 * number
            values |= {"_source_position": 100 * rng.randrange(3) + line}
            if not values["_is_delete"] and rng.random() < 0.4:
                values["_unavailable"] = rng.sample(["name", "n", "tags"], rng.randrange(1, 3))
                if rng.random() < 0.3:  # the only changes with their sequence
                    sequence += line + 1
                    values["_unavailable"].append("history")
                    position = {"_source_position": 100 * rng.randrange(3) + line + 1}
                    nothing = dict.fromkeys(("name", "n", "tags"))
                    deleted = {"history": number, "id": old, "_is_delete": True} | nothing
                    history.append(change(rng.randrange(8), sequence, **deleted, **position))
            if not values["_is_delete"] and rng.random() < 0.3 and sequence % 100 == 0:
                values["_old_key"] = {"history": number, "id": old}
        history.append(change(rng.randrange(8), sequence, **values))
        if rng.random() < 0.2:
            history.append(history[-1] | change_of_file(rng.randrange(8)))
    return history


def change_of_file(day: int) -> Change:
    return {name: change(day, 0)[name] for name in ("_source_file", "_ingested_at")}


HISTORIES = [change for number in range(400) for change in random_history(number)]
OF_DATABASE = [
    *(change for number in range(400) for change in random_history(number, of_database=True)),
    truncate(4, 250_000),
    truncate(2, 550_000),
]


def order(change: Change) -> tuple[Any, ...]:
    """Return the sort key of a key's changes; null is the smallest value."""
    technical = ("_sequence", "_ingested_at", "_source_file", "_source_position", "_is_delete")
    tags = None if change["tags"] is None else json.dumps(change["tags"])
    values = [(value is not None, value) for value in (change["name"], change["n"], tags)]
    return (*(change[name] for name in technical), *values)


def of_one_key(changes: Iterable[Change]) -> list[Change]:
    """Return the changes of a key each, with the deletes that others imply."""
    changes = list(changes)
    result = [change for change in changes if not change["_is_truncate"]]
    nothing: Change = {"name": None, "n": None, "tags": None, "_is_delete": True}
    nothing |= {"_unavailable": None}
    result += [c | nothing | c["_old_key"] for c in result if c["_old_key"]]
    keys = {(change["history"], change["id"]) for change in result}
    for each in changes:
        if each["_is_truncate"]:
            result += [each | {"history": history, "id": id_} for history, id_ in keys]
    return result


class Moves:
    """The values of rows whose key changed, from the rows that had them before."""

    def __init__(self, changes: Iterable[Change], ignore_nulls: bool) -> None:
        self.ignore_nulls, self.rows = ignore_nulls, dict[Any, list[Change]]()
        self.deleted = dict[int, set[Any]]()
        for row in sorted(of_one_key(changes), key=order):
            key = (row["history"], row["id"])
            self.rows.setdefault(key, []).append(row)
            if row["_is_delete"]:
                self.deleted.setdefault(row["_sequence"], set()).add(key)
        self.found = dict[int, Change]()

    def before_delete(self, key: Any, sequence: int) -> Change:
        """Return what is known of a row that the last delete with a sequence ends, if any."""
        known, result = Change(), Change()
        for row in self.rows.get(key, []):
            if row["_is_delete"]:
                result = known if known and row["_sequence"] == sequence else result
                known = {}
            else:
                known |= self.known(self.with_values(row))
        return result

    def known(self, row: Change) -> Change:
        """Return the values that a row does not lack."""
        lacking = {*(row["_unavailable"] or ())}
        lacking |= {n for n in VALUES if self.ignore_nulls and row[n] is None}
        return {name: row[name] for name in VALUES if name not in lacking}

    def with_values(self, row: Change) -> Change:
        """Return a row with the values of the one that it moved."""
        if id(row) not in self.found:
            self.found[id(row)] = row
            lacking, keys = row["_unavailable"] or [], {*self.deleted.get(row["_sequence"], ())}
            if row["_old_key"]:
                keys = {tuple(row["_old_key"].values())}
            if lacking and (row["_old_key"] or "history" in lacking) and len(keys) == 1:
                old = self.before_delete(next(iter(keys)), row["_sequence"])
                still = [name for name in lacking if name not in old]
                self.found[id(row)] = row | {n: old[n] for n in lacking if n in old}
                self.found[id(row)]["_unavailable"] = still
        return self.found[id(row)]


def changes_by_key(changes: Iterable[Change], ignore_nulls: bool) -> Iterable[list[Change]]:
    """Yield the sorted changes of each key."""
    moves = Moves(changes, ignore_nulls)
    for _, rows in sorted(moves.rows.items()):
        yield [moves.with_values(row) for row in rows]


def last_of_each_sequence(
    changes: list[Change], ignore_nulls: bool
) -> list[tuple[int, Change | None]]:
    """Return each sequence, with the row after its last change."""
    rows = zip(changes, replayed(changes, ignore_nulls), strict=True)
    return list({change["_sequence"]: row for change, row in rows}.items())


def replayed(changes: list[Change], ignore_nulls: bool) -> list[Change | None]:
    """Return the row after each change, None after a delete."""
    rows, known = list[Change | None](), Change()
    for change in changes:
        row = dict(change)
        for name in VALUES:
            is_kept = ignore_nulls and row[name] is None
            if is_kept or name in (row["_unavailable"] or ()):
                row[name] = known.get(name, row[name])
            else:
                known[name] = row[name]
        known = {} if change["_is_delete"] else known
        rows.append(None if change["_is_delete"] else row)
    return rows


def latest_state(changes: Iterable[Change], ignore_nulls: bool) -> list[Change]:
    last = (
        last_of_each_sequence(key_changes, ignore_nulls)[-1][1]
        for key_changes in changes_by_key(changes, ignore_nulls)
    )
    return [row for row in last if row]


def history(changes: Iterable[Change], ignore_nulls: bool) -> list[Change]:
    result = []
    for key_changes in changes_by_key(changes, ignore_nulls):
        steps = last_of_each_sequence(key_changes, ignore_nulls)
        ends = [sequence for sequence, _ in steps[1:]] + [None]
        for (_, row), end in zip(steps, ends, strict=True):
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
    return spark.createDataFrame([tuple(c[n] for n in COLUMNS) for c in changes], SCHEMA)


def log_frame(
    spark: SparkSession, changes: Iterable[Change], ignore_nulls: bool = False
) -> DataFrame:
    """Return changes of one key each, as the functions of `changes` take them."""
    log = frame(spark, changes)
    return by_key(log, KEYS, log, is_complete=True, ignore_nulls=ignore_nulls)


of_histories = pytest.mark.parametrize(
    ("changes", "ignore_nulls"),
    [
        pytest.param(HISTORIES, False, id="rows"),
        pytest.param(HISTORIES, True, id="rows, ignoring nulls"),
        pytest.param(OF_DATABASE, False, id="database"),
        pytest.param(OF_DATABASE, True, id="database, ignoring nulls", marks=pytest.mark.slow),
    ],
)
_LOGS = dict[tuple[int, bool], DataFrame]()


def kept_log(spark: SparkSession, changes: list[Change], ignore_nulls: bool) -> DataFrame:
    """Return `log_frame` of random histories, which the values of moved rows make slow."""
    key = (id(changes), ignore_nulls)
    if key not in _LOGS:
        _LOGS[key] = log_frame(spark, changes, ignore_nulls).localCheckpoint()
    return _LOGS[key]


def rows_of(rows: DataFrame) -> list[str]:
    return sorted(repr(sorted(row.asDict().items())) for row in rows.collect())


def expected(rows: Iterable[Change]) -> list[str]:
    times = ({"_ingested_at": row["_ingested_at"].replace(tzinfo=None)} for row in rows)
    shown = [row | time for row, time in zip(rows, times, strict=True)]
    for row in shown:
        for name in ("_is_delete", "_is_truncate", "_old_key", "_unavailable"):
            row.pop(name, None)
    return sorted(repr(sorted(row.items())) for row in shown)


@of_histories
def test_current_rows_of_random_histories(
    spark: SparkSession, changes: list[Change], ignore_nulls: bool
) -> None:
    rows = current_rows(kept_log(spark, changes, ignore_nulls), KEYS, 100 * DAY, ignore_nulls)
    assert rows_of(rows) == expected(latest_state(changes, ignore_nulls))


@of_histories
def test_history_rows_of_random_histories(
    spark: SparkSession, changes: list[Change], ignore_nulls: bool
) -> None:
    rows = history_rows(kept_log(spark, changes, ignore_nulls), KEYS, ignore_nulls)
    assert rows_of(rows) == expected(history(changes, ignore_nulls))


def random_snapshots(number: int) -> list[Change]:
    """Return complete tables of up to eight keys; some are much smaller, or arrive late."""
    rng, rows = random.Random(number), list[Change]()
    for sequence in range(1, 9):
        size, day = rng.choice([0, 1, 4, 5, 6, 8]), rng.randrange(8)
        for id_ in rng.sample(range(8), size):
            values = {"name": rng.choice("ab"), "n": sequence, "id": id_}
            # Null for a row in quarantine.
            rows.append(
                change(day, sequence, **values, _is_delete=rng.choice([False] * 6 + [None]))
            )
    return rows


def snapshot_states(rows: list[Change]) -> list[tuple[int, dict[int, Change]]]:
    """Return sequence and rows of each snapshot that is at least half as large as the last one.

    A key in quarantine keeps its row.
    """
    applied, before, size = list[tuple[int, dict[int, Change]]](), dict[int, Change](), 0
    for sequence, group in groupby(
        sorted(rows, key=lambda c: c["_sequence"]), lambda c: c["_sequence"]
    ):
        found = {row["id"]: None if row["_is_delete"] is None else row for row in group}
        valid = sum(map(bool, found.values()))
        if valid and 2 * valid >= size:
            new = {id_: row or before.get(id_) for id_, row in found.items()}
            before, size = {id_: row for id_, row in new.items() if row}, valid
            applied.append((sequence, before))
    return applied


def snapshot_spans(states: list[tuple[int, dict[int, Change]]]) -> list[tuple[Any, ...]]:
    """Return id, name, n of the last snapshot, and span of each state; `name` starts another."""
    spans, open_spans = [], dict[int, list[Any]]()
    for sequence, state in states:
        for id_ in [*open_spans]:
            if id_ not in state or state[id_]["name"] != open_spans[id_][1]:
                spans.append((*open_spans.pop(id_), sequence))
        for id_, row in state.items():
            span = open_spans.setdefault(id_, [id_, row["name"], 0, sequence])
            span[2] = row["n"]
    return [*spans, *((*span, None) for span in open_spans.values())]


@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(n, marks=pytest.mark.slow) for n in (2, 3))]
)
def test_snapshots(spark: SparkSession, number: int) -> None:
    """A row that the next snapshot lacks was deleted; `name` is the tracked column."""
    rows = random_snapshots(number)
    states, changes = snapshot_states(rows), of_snapshots(frame(spark, rows), KEYS, 0.5)
    changes = changes.drop("_is_truncate", "_old_key", "_unavailable")
    current = current_rows(changes, KEYS, 100 * DAY).collect()
    assert {(row.id, row.n) for row in current} == {
        (id_, row["n"]) for id_, row in states[-1][1].items()
    }
    spans = history_rows(changes, KEYS, track=["name"]).collect()
    assert sorted((r.id, r.name, r.n, r.valid_from, r.valid_to) for r in spans) == sorted(
        snapshot_spans(states), key=lambda span: (*span[:4], span[4] or 99)
    )


def test_last_file_of_a_time_is_the_snapshot(spark: SparkSession) -> None:
    """Of files that `cp` wrote in one millisecond; the members of an archive are one file."""
    at = {"_ingested_at": START}
    rows = [
        *(change(0, 1, id=n, _source_file="a.csv", **at) for n in (1, 2, 3)),
        *(change(0, 1, id=n, _source_file="b.csv", **at) for n in (1, 3)),
        *(change(0, 2, id=1, _source_file=f"c.zip#{n}", n=n, **at) for n in (1, 2)),
        change(0, 2, id=4, _source_file="c.zip#1", **at),
        change(1, 3, id=5, _source_file="e.csv"),
        change(2, 3, id=6, _source_file="d.csv"),
    ]
    log = last_files(frame(spark, rows))
    assert log.columns == list(COLUMNS)
    files = {tuple(row) for row in log.select("_sequence", "_source_file", "id").collect()}
    assert files == {
        (1, "b.csv", 1),
        (1, "b.csv", 3),
        (2, "c.zip#1", 1),
        (2, "c.zip#2", 1),
        (2, "c.zip#1", 4),
        (3, "d.csv", 6),
    }


def test_current_rows_forget_old_deletes(spark: SparkSession) -> None:
    rows = current_rows(log_frame(spark, HISTORIES), KEYS, 2 * DAY)
    assert rows_of(rows) == expected(arrivals(HISTORIES, days=2))


def test_history_of_a_late_change_splits_its_span(spark: SparkSession) -> None:
    changes = [change(0, 10, n=1), change(0, 30, n=3), change(1, 20, n=2)]
    rows = history_rows(log_frame(spark, changes), KEYS).orderBy("valid_from")
    spans = [(r.n, r.valid_from, r.valid_to, r.is_current) for r in rows.collect()]
    assert spans == [(1, 10, 20, False), (2, 20, 30, False), (3, 30, None, True)]


def test_latest_changes_have_deletes(spark: SparkSession) -> None:
    changes = [change(0, 1), change(0, 2, _is_delete=True), change(0, 1, id=2)]
    rows = latest_changes(log_frame(spark, changes), KEYS).orderBy("id").collect()
    assert [(row.id, row._sequence, row._is_delete) for row in rows] == [
        (1, 2, True),
        (2, 1, False),
    ]


def test_tied_changes_differ_in_values(spark: SparkSession) -> None:
    """A resent change has the values of the first one."""
    changes = [change(0, 1), change(1, 1), change(0, 2), change(0, 2, n=5), change(3, 3)]
    tied = tied_changes(log_frame(spark, [*changes, change(3, 3, tags={"a": "b"})]), KEYS)
    assert sorted(row._sequence for row in tied.collect()) == [2, 3]
