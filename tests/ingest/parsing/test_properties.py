"""No value of any line is lost."""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from itertools import zip_longest
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from medallion.ingest.parsing.parse import parse_lines
from tests.support.any_lines import ANY_LINES

EXAMPLES, LINES = 5 * settings().max_examples, 80

SCHEMA = {"id": "string", "n": "long", "x": "double", "ts": "timestamp", "yes": "boolean"}
SCHEMA["at"] = "struct<lat:double,n:long,tags:array<string>,amount:decimal(38,4)>"
SCHEMA |= {"amount": "decimal(10,2)", "prices": "map<string,double>"}


def pairs_of(line: bytes) -> list[tuple[str, Any]] | None:
    """Parse a line with Python's parser; return None if it is not a JSON object (RFC 8259)."""

    def reject(name: str) -> None:
        raise ValueError(name)

    try:
        parsed = json.loads(line.decode(), object_pairs_hook=Pairs, parse_constant=reject)
        json.dumps(parsed, ensure_ascii=False).encode()  # fails on an unpaired surrogate
    except ValueError:
        return None
    return parsed if isinstance(parsed, Pairs) else None


class Pairs(list[Any]):
    """An object's fields, including duplicates."""


def is_equal(one: Any, other: Any) -> bool:
    """Compare two JSON values, numbers with the precision of a double."""
    if isinstance(one, Pairs) and isinstance(other, Pairs):
        by_name = [sorted(pairs, key=lambda pair: pair[0]) for pairs in (one, other)]
        return len(one) == len(other) and all(
            a == b and is_equal(x, y) for (a, x), (b, y) in zip(*by_name, strict=True)
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_equal, one, other))
    if isinstance(one, bool) or isinstance(other, bool) or not _are_numbers(one, other):
        return type(one) is type(other) and bool(one == other)
    if one == other:
        return True
    try:
        return math.isclose(one, other, rel_tol=1e-15)
    except OverflowError:  # an integer beyond a double's range
        return False


def _are_numbers(*values: Any) -> bool:
    return all(isinstance(value, int | float) for value in values)


def has_value(row: Row, name: str, value: Any) -> bool:
    """Return whether a column has the JSON value."""
    dtype = SCHEMA.get(name)
    if dtype is None:
        return False
    typed = row[name]
    if typed is None or value is None:
        return typed is None and value is None
    if dtype == "string":
        if isinstance(value, str):
            return bool(typed == value)
        return is_equal(json.loads(typed, object_pairs_hook=Pairs), value)
    if dtype == "timestamp":
        return bool(typed == instant(value))
    if dtype.startswith("decimal"):
        return bool(typed == exact_decimal(value))
    if dtype.startswith("map"):
        return is_equal(Pairs(typed.items()), value)
    return is_equal(_as_json(typed, value), _without_nulls(value))


def exact_decimal(value: Any) -> Decimal | None:
    """Return the number by Python's parser; the text of a float in the lines is its repr."""
    try:
        return Decimal(value.strip(" ") if isinstance(value, str) else repr(value))
    except InvalidOperation:
        return None


def instant(value: Any) -> int | None:
    """Return microseconds since 1970 by Python's parser, or None if they are not exact."""
    if isinstance(value, int):
        micros = value * 1_000_000
    else:
        try:
            time = datetime.fromisoformat(value)
        except (TypeError, ValueError):
            return None
        if re.search(r"[.][0-9]{6}[0-9]*[1-9]", value):  # Python truncates them
            return None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        micros = (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return micros if -62_135_596_800_000_000 <= micros < 253_402_300_800_000_000 else None


def _as_json(typed: Any, value: Any) -> Any:
    """Return a nested value as JSON; a string has the text of a value that is no string."""
    if isinstance(typed, Row):
        values = dict(value) if isinstance(value, Pairs) else {}
        items = typed.asDict().items()
        return Pairs((n, _as_json(item, values.get(n))) for n, item in items if item is not None)
    if isinstance(typed, str) and not isinstance(value, str | None):
        return json.loads(typed, object_pairs_hook=Pairs)
    if isinstance(typed, Decimal):
        return int(typed) if typed == int(typed) else float(typed)
    if isinstance(typed, list):
        items_ = value if isinstance(value, list) else []
        return [_as_json(one, other) for one, other in zip_longest(typed, items_)]
    return typed


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Pairs):
        return Pairs((name, inner_value) for name, inner_value in value if inner_value is not None)
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
    """No value of the line is lost, and none is added."""
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
    rescued_fields = pairs_of((rescued or "{}").encode(errors="surrogatepass"))
    assert rescued_fields is not None
    spelled = respelled(Pairs(fields))
    for (name, value), (column, inner_value) in zip(fields, spelled, strict=True):
        in_rescued = any(
            (name == other and is_equal(value, rescued_value))
            or (column == other and is_equal(inner_value, rescued_value))
            for other, rescued_value in rescued_fields
        )
        assert in_rescued or has_value(row, column, inner_value), (name, value, row)
    names = {name for name, _ in spelled}
    assert all(row[name] is None for name in SCHEMA if name not in names)


def generate_lines() -> list[bytes]:
    """Return all examples at once, for one Spark job."""
    all_lines: list[bytes] = []

    @given(lines=st.lists(ANY_LINES, min_size=LINES // 2, max_size=LINES))
    @settings(max_examples=EXAMPLES)
    def draw(lines: list[bytes]) -> None:
        all_lines.extend(lines)

    draw()
    return all_lines


def test_no_value_of_a_line_is_lost(spark: SparkSession) -> None:
    lines = generate_lines()
    assert len(lines) >= EXAMPLES * LINES // 2
    rows = [(bytearray(line), str(number)) for number, line in enumerate(lines)]
    frame = spark.createDataFrame(rows, "raw binary, _source_file string").selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    parsed_rows = (
        parse_lines(frame, SCHEMA).selectExpr("* except (ts)", "unix_micros(ts) as ts").collect()
    )
    assert len(parsed_rows) == len(lines)
    for row in parsed_rows:
        check(lines[int(row["_source_file"])], row)
