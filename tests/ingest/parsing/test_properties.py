"""Whatever a line is, no value of it is lost."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from medallion.ingest.parsing.parse import parse_lines
from tests.support.any_lines import ANY_LINES

EXAMPLES, LINES = 5 * settings().max_examples, 80

SCHEMA = {"id": "string", "n": "long", "x": "double", "ts": "timestamp", "yes": "boolean"}
SCHEMA["at"] = "struct<lat:double,n:long,tags:array<string>>"


def pairs_of(line: bytes) -> list[tuple[str, Any]] | None:
    """The fields of a line by Python's own parser; None where it is no JSON object (RFC 8259)."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(line.decode(), object_pairs_hook=Pairs, parse_constant=refuse)
        json.dumps(found, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except ValueError:
        return None
    return found if isinstance(found, Pairs) else None


class Pairs(list[Any]):
    """An object's fields, each as often as it is there."""


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers as precisely as a double is."""
    if isinstance(one, Pairs) and isinstance(other, Pairs):
        by_name = [sorted(pairs, key=lambda pair: pair[0]) for pairs in (one, other)]
        return len(one) == len(other) and all(
            a == b and same(x, y) for (a, x), (b, y) in zip(*by_name, strict=True)
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool) or not _are_numbers(one, other):
        return type(one) is type(other) and bool(one == other)
    if one == other:
        return True
    try:
        return math.isclose(one, other, rel_tol=1e-15)
    except OverflowError:  # a whole number beyond a double's range
        return False


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def says(row: Row, name: str, value: Any) -> bool:
    """Whether a column says what the JSON value does."""
    kind = SCHEMA.get(name)
    if kind is None:
        return False
    typed = row[name]
    if typed is None or value is None:
        return typed is None and value is None
    if kind == "string":
        if isinstance(value, str):
            return bool(typed == value)
        return same(json.loads(typed, object_pairs_hook=Pairs), value)
    if kind == "timestamp":
        return bool(typed == instant(value))
    return same(_as_json(typed), _without_nulls(value))


def instant(value: Any) -> int | None:
    """Microseconds since 1970 of a time by Python's own parser; None where they do not say it."""
    if isinstance(value, int):
        found = value * 1_000_000
    else:
        try:
            time = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return None
        if re.search(r"[.][0-9]{6}[0-9]*[1-9]", value):  # Python cuts them off
            return None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        found = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return found if -62_135_596_800_000_000 <= found < 253_402_300_800_000_000 else None


def _as_json(typed: Any) -> Any:
    if isinstance(typed, Row):
        found = typed.asDict().items()
        return Pairs((name, _as_json(value)) for name, value in found if value is not None)
    if isinstance(typed, list):
        return [_as_json(value) for value in typed]
    return typed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Pairs):
        return Pairs((name, inner) for name, inner in value if inner is not None)
    return value


def respelled(fields: Pairs) -> Pairs:
    """Return the fields with the names of columns, if a name differs only in case."""
    known = {name.lower(): name for name in SCHEMA}
    names = [name.lower() for name, _ in fields]
    return Pairs(
        (known.get(name.lower(), name) if names.count(name.lower()) == 1 else name, value)
        for name, value in fields
    )


def check(line: bytes, row: Row) -> None:
    """No value of a line is lost, and no other one invented."""
    fields = pairs_of(line)
    rescued, corrupt = row["_rescued_data"], row["_corrupt_record"]
    if fields is None:
        try:
            text = line.decode()
        except UnicodeDecodeError:
            text = line.decode("latin-1")
        assert (corrupt, rescued) == (text, None)
        assert all(row[name] is None for name in SCHEMA)
        return
    assert corrupt is None
    kept = pairs_of((rescued or "{}").encode(errors="surrogatepass"))
    assert kept is not None
    spelled = respelled(Pairs(fields))
    for (name, value), (column, inner) in zip(fields, spelled, strict=True):
        in_rescued = any(
            (name == other and same(value, found)) or (column == other and same(inner, found))
            for other, found in kept
        )
        assert in_rescued or says(row, column, inner), (name, value, row)
    names = {name for name, _ in spelled}
    assert all(row[name] is None for name in SCHEMA if name not in names)


def drawn() -> list[bytes]:
    """All examples at once: Spark's time goes by the job."""
    found: list[bytes] = []

    @given(lines=st.lists(ANY_LINES, min_size=LINES // 2, max_size=LINES))
    @settings(max_examples=EXAMPLES)
    def draw(lines: list[bytes]) -> None:
        found.extend(lines)

    draw()
    return found


def test_no_value_of_a_line_is_lost(spark: SparkSession) -> None:
    lines = drawn()
    assert len(lines) >= EXAMPLES * LINES // 2
    rows = [(bytearray(line), str(number)) for number, line in enumerate(lines)]
    frame = spark.createDataFrame(rows, "raw binary, _source_file string").selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    found = (
        parse_lines(frame, SCHEMA).selectExpr("* except (ts)", "unix_micros(ts) as ts").collect()
    )
    assert len(found) == len(lines)
    for row in found:
        check(lines[int(row["_source_file"])], row)
