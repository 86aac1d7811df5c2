"""Whatever bytes land, each line that is not blank is a row, and no value of it is lost."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from medallion.ops import ledger
from medallion.ops.ledger import ARCHIVED, INGESTED, REJECTED
from medallion.parsing.parse import parse
from medallion.sources.files.reject import why_not_text
from tests.support.lakehouse import Lakehouse

# Each example is many lines, or many files: Spark's time goes by the job. Always the same ones.
LINE_EXAMPLES, LINES = 25, 80
FILE_EXAMPLES, FILES = 5, 20
SETTINGS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink would be hundreds of jobs
    suppress_health_check=list(HealthCheck),
)

SCHEMA = {"id": "string", "n": "long", "x": "double", "ts": "timestamp", "yes": "boolean"}
SCHEMA["at"] = "struct<lat:double,n:long,tags:array<string>>"
BLANK = b" \t\r\n\v\f"

NAMES = st.one_of(st.sampled_from(["id", "n", "x", "ts", "yes", "at", "lat", "tags"]), st.text())
TIMES = st.one_of(st.datetimes().map(str), st.times().map(str), st.dates().map(str))
PLAIN = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), TIMES),
    *(st.floats(allow_nan=False, allow_infinity=False), st.text(), st.sampled_from(["1", "NaN"])),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=5)  # a name may be there twice
# What json.dumps never writes.
WRITTEN = st.sampled_from(
    [
        "1e400",
        "-1E+999",
        "9" * 320,
        r'"\ud800"',
        r'"\u0000?"',
        "-0",
        "1.50",
        "1e-400",
        '{"a":1,"a":2}',
    ]
)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    """A line of valid JSON: an object."""
    ascii_only, comma = draw(st.booleans()), draw(st.sampled_from([",", " ,\t"]))
    fields = [
        f"{json.dumps(name, ensure_ascii=ascii_only)}: {json.dumps(value, ensure_ascii=ascii_only)}"
        for name, value in draw(PAIRS)
    ]
    if draw(st.integers(0, 4)) == 0:
        fields.append(f"{json.dumps(draw(NAMES))}:{draw(WRITTEN)}")
    return f"{{{comma.join(fields)}}}".encode()


def _without_ends(line: bytes) -> bytes:
    return line.replace(b"\n", b"").replace(b"\r", b"")


GARBAGE = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=30).map(str.encode),
    objects().flatmap(lambda line: st.integers(0, len(line)).map(lambda end: line[:end])),
    st.tuples(objects(), st.sampled_from([b"}", b",", b"\0", b"{}", b"\xff"])).map(b"".join),
    VALUES.map(lambda value: json.dumps(value).encode()),
).map(_without_ends)
ANY_LINES = st.one_of(objects(), objects(), GARBAGE)


def pairs_of(line: bytes) -> list[tuple[str, Any]] | None:
    """The fields of a line by Python's own parser; None where it is no JSON object (RFC 8259)."""

    def refuse(name: str) -> None:
        raise ValueError(name)

    try:
        found = json.loads(line.decode(), object_pairs_hook=Pairs, parse_constant=refuse)
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
    return bool(one == other) or math.isclose(one, other, rel_tol=1e-15)


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
        return isinstance(value, str | int)
    return same(_as_json(typed), _without_nulls(value))


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
    for name, value in fields:
        in_rescued = any(name == other and same(value, found) for other, found in kept)
        assert in_rescued or says(row, name, value), (name, value, row)
    names = {name for name, _ in fields}
    assert all(row[name] is None for name in SCHEMA if name not in names)


@given(lines=st.lists(ANY_LINES, min_size=LINES // 2, max_size=LINES))
@settings(SETTINGS, max_examples=LINE_EXAMPLES)
def test_no_value_of_a_line_is_lost(spark: SparkSession, lines: list[bytes]) -> None:
    rows = [(bytearray(line), str(number)) for number, line in enumerate(lines)]
    frame = spark.createDataFrame(rows, "raw binary, _source_file string").selectExpr(
        "cast(raw as string) as value", "_source_file", "now() as _source_modified_at"
    )
    # Times as text: Python has no year 10000.
    found = parse(frame, SCHEMA).selectExpr("* except (ts)", "cast(ts as string) as ts").collect()
    assert len(found) == len(lines)
    for row in found:
        check(lines[int(row["_source_file"])], row)


ENDS = st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\n \t\n"])
TEXTS = st.builds(
    lambda start, lines, last: start + b"".join(itertools.chain(*lines)) + last,
    st.sampled_from([b"", b"", b"\xef\xbb\xbf", b"\n"]),
    st.lists(st.tuples(ANY_LINES, ENDS), max_size=8),
    st.one_of(st.just(b""), ANY_LINES),
)
ENDINGS = st.sampled_from([".json", "", ".gz", ".torn.gz"])


def rows_in(content: bytes) -> int:
    """Lines that are not blank; a mark of the order of bytes is no part of the first."""
    lines = re.split(rb"\r\n|\n|\r", content.removeprefix(b"\xef\xbb\xbf"))
    return sum(bool(line.strip(BLANK)) for line in lines)


@pytest.fixture(scope="module")
def lakehouse(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """One for all examples, so that the fields of each are columns of the next."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("properties") / "lakehouse")
    sources = {"event": lakehouse.config.sources["event"]}
    lakehouse.config = replace(lakehouse.config, sources=sources, gold={})
    return lakehouse


NUMBERS = itertools.count()


@given(files=st.lists(st.tuples(TEXTS, ENDINGS), min_size=FILES // 2, max_size=FILES))
@settings(SETTINGS, max_examples=FILE_EXAMPLES)
def test_every_file_is_rows_or_is_rejected(
    lakehouse: Lakehouse, files: list[tuple[bytes, str]]
) -> None:
    landing = lakehouse.config.layout.landing("event")
    landing.mkdir(parents=True, exist_ok=True)
    landed: dict[str, int | None] = {}
    for content, ending in files:
        path = landing / f"{next(NUMBERS)}{ending}"
        packed = gzip.compress(content) if ending.endswith(".gz") else content
        path.write_bytes(packed[:-4] if ".torn" in ending else packed)
        is_whole = ".torn" not in ending and why_not_text(path) is None
        landed[f"landing/event/{path.name}"] = rows_in(content) if is_whole else None
    lakehouse.pipeline().run("bronze")
    entries = {entry.path: entry for entry in ledger.read(lakehouse.config.layout)}
    in_bronze = Counter(file for (file,) in lakehouse.rows("bronze.event", "_source_file"))
    for name, rows in landed.items():
        entry = entries[name]
        assert entry.rows == rows
        assert in_bronze[name] == (rows or 0)
        assert entry.state in ((REJECTED,) if rows is None else (INGESTED, ARCHIVED))
        assert bool(entry.why) == (rows is None)
