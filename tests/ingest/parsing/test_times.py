"""Timestamps in years 1 to 9999 are read to the microsecond; all others are rescued.

Expected values are microseconds since 1970, by RFC 3339, ISO 8601 and arithmetic.
"""

from __future__ import annotations

import json
import random
from calendar import timegm
from collections.abc import Mapping
from decimal import ROUND_FLOOR, Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.parse import parse_lines
from medallion.ingest.parsing.times import NANOSECONDS, is_timestamp_string

NOON = timegm((2018, 3, 2, 10, 2, 33)) * 1_000_000
MIDNIGHT = NOON - (10 * 3600 + 2 * 60 + 33) * 1_000_000
HOUR, MINUTE = 3_600_000_000, 60_000_000
# The calendar repeats every 400 years of 146,097 days.
YEAR_1 = (timegm((2001, 1, 1, 0, 0, 0)) - 5 * 146_097 * 86_400) * 1_000_000
YEAR_10000 = (timegm((2000, 1, 1, 0, 0, 0)) + 20 * 146_097 * 86_400) * 1_000_000

VALID_STRINGS = {
    "2018-03-02T10:02:33Z": NOON,
    "2018-03-02 10:02:33": NOON,
    "2018-03-02T10:02:33.5Z": NOON + 500_000,
    "2018-03-02T10:02:33.123456": NOON + 123_456,
    "2018-03-02T10:02:33.000001Z": NOON + 1,
    "2018-03-02T10:02:33.1234560Z": NOON + 123_456,  # trailing zeros lose nothing
    "2018-03-02T10:02:33.500000000+01:00": NOON + 500_000 - HOUR,
    "2018-03-02T10:02:33+0100": NOON - HOUR,
    "2018-03-02T10:02:33-00:30": NOON + 30 * MINUTE,
    "2018-03-02T10:02:33+18:00": NOON - 18 * HOUR,
    "2018-03-02T10:02:33+01:00:30": NOON - HOUR - 30_000_000,
    "2018-03-02T10:02:33+01": NOON - HOUR,
    "2018-03-02T11:02:33+01:00": NOON,
    "2018-03-02T10:02:33.000+0000": NOON,
    "2018-03-02T10:02:33": NOON,
    "2018-03-02 10:02:33 UTC": NOON,
    "2018-03-02 10:02:33 GMT+2": NOON - 2 * HOUR,
    "2018-3-2 1:2:3": MIDNIGHT + HOUR + 2 * MINUTE + 3_000_000,
    "2018-03-02T10:02": NOON - 33_000_000,
    " 2018-03-02 ": MIDNIGHT,
    "2018-03-02": MIDNIGHT,
    "0001-01-01T00:00:00Z": YEAR_1,
    "0001-01-01T01:00:00+01:00": YEAR_1,
    "9999-12-31T23:59:59.999999Z": YEAR_10000 - 1,
    "9999-12-31T23:59:59.999999000Z": YEAR_10000 - 1,
}
INVALID_STRINGS = [
    # Two times that would be one after truncation.
    *("2018-03-02T10:02:33.1234561Z", "2018-03-02T10:02:33.1234569Z"),
    *(
        "2018-03-02T10:02:33.0000001",
        "2018-03-02 1:2:3.1234567",
        "2018-03-02T10:02:33.12345600001Z",
    ),
    *("0000-12-31T23:59:59Z", "0000-01-01", "10000-01-01T00:00:00Z", "+10000-01-01", "12018-03-02"),
    *("0001-01-01T00:59:59+01:00", "9999-12-31T23:00:00-01:00", "-2018-03-02", "+2018-03-02"),
    *(
        "2018-03-02T24:00:00Z",
        "2016-12-31T23:59:60Z",
        "2018-03-02T10:60",
        "2018-02-29",
        "2018-13-01",
    ),
    *("2018-03-02t10:02:33Z", "2018-03-02T10:02:33z", "2018-03-02T10:02:33,5Z", "2018-W09-5"),
    *("2018-03-02T10:02:33+19:00", "2018-03-02T10:02:33+18:01", "2018-03-02T10:02:33+01:60"),
    # Java reads BST as Dhaka's time, and moves a time skipped by a zone to the next hour.
    *("2018-03-02 10:02:33 BST", "2018-03-11T02:30:00 America/New_York", "2018-03-02 10:02:33 CST"),
    *("2018-03-02T10:02:33Z[UTC]", "2018-03-02T10:02:33 Etc/GMT+5", "2018-061", "20180302T100233Z"),
    *("2018-03-02T10:02:33Z Z", "2018-03-02T10:02:33Zx", "\u0662018-03-02", "2018-03-02\u00a0"),
    # Spark ignores a line end.
    *("1519984953\n", "1519984953\u2028", "151998495312\u0085", "2018\n", "-2018\n"),
    *("2018-03-02\n", "2018-03-02T10:02:33Z\n", "2018-03-02T10:02\u2029"),
    *("1519984953", "15199849", "10115", "2018", "10:02", "now", "epoch", "", " ", "Infinity"),
    *("1234-5", "-2018", "2018-03", "2018-03    ", " 2018", "T1:2:3", "1:02:03-08:00"),
    *("2018-03-02T" + "1" * 70_000, "1" * 70_000, "2018-03-02" + " " * 70_000 + "x"),
]
SECONDS = [0, -1, 5, 10115, 1_519_984_953, -1_519_984_953, YEAR_1 // 10**6, YEAR_10000 // 10**6 - 1]
INVALID_NUMBERS = [
    *(str(YEAR_1 // 10**6 - 1), str(YEAR_10000 // 10**6), "999999999999", "-9223372036854"),
    *("9223372036854", "9223372036855", "1519984953000", "1519984953000000", "9223372036854775807"),
    *("1519984953.5", "1519984953.0", "1.5e9", "9" * 900, "-" + "9" * 900, "true", "[]", "{}"),
]
CASES: list[tuple[str, int | None]] = [
    *((json.dumps(text), instant) for text, instant in VALID_STRINGS.items()),
    *((str(seconds), seconds * 1_000_000) for seconds in SECONDS),
    *((json.dumps(text), None) for text in INVALID_STRINGS),
    *((number, None) for number in INVALID_NUMBERS),
    # Quoted digits, however they are escaped.
    *((json_value, None) for json_value in (r'"\u0031519984953"', r'"\u0032018"', r'"\u002d2018"')),
    *((f'"{digits}\u2028"', None) for digits in ("1519984953", "15199849", "2018")),
]
# The fast path; the exact path, because of an unknown field; a nested field.
SHAPES = ['{{"ts":{}}}', '{{"ts":{}, "new":0}}', '{{"at":{{"since":[{}]}}}}']
SCHEMA = {"ts": "timestamp", "at": "struct<since:array<timestamp>>", "day": "date"}
Results = dict[str, tuple[Any, dict[str, Any]]]


def read(
    spark: SparkSession, lines: list[str], value: str, schema: Mapping[str, str] = SCHEMA
) -> Results:
    """Return, for each line, the value of an expression and the rescued data."""
    frame = spark.createDataFrame(
        [(line, line) for line in lines], "value string, _source_file string"
    )
    parsed = parse_lines(frame.withColumn("_source_modified_at", F.current_timestamp()), schema)
    rows = parsed.selectExpr("_source_file", value, "_rescued_data", "_corrupt_record").collect()
    assert [line for line, *_, corrupt in rows if corrupt is not None] == []
    return {
        line: (value_read, json.loads(rescued or "{}")) for line, value_read, rescued, _ in rows
    }


@pytest.fixture(scope="module")
def instants(spark: SparkSession) -> Results:
    """Return, for each line, microseconds since 1970 and rescued data."""
    lines = [shape.format(json_value) for json_value, _ in CASES for shape in SHAPES]
    return read(spark, lines, "unix_micros(coalesce(ts, at.since[0]))")


@pytest.mark.parametrize(
    ("json_value", "instant"), CASES, ids=[json_value[:50] for json_value, _ in CASES]
)
def test_timestamp_is_exact_or_rescued(
    instants: Results, json_value: str, instant: int | None
) -> None:
    for shape in SHAPES:
        line = shape.format(json_value)
        value_read, rescued = instants[line]
        fields = json.loads(line)
        known = {} if instant is None else {name: fields[name] for name in fields if name != "new"}
        assert value_read == instant, line
        assert rescued == {name: value for name, value in fields.items() if name not in known}, line


DATES = {"2018-03-02": 17592, "2018-3-2": 17592, "1969-12-31": -1, " 2018-03-02 ": 17592}
DATES |= {"0001-01-01": YEAR_1 // 86_400_000_000, "9999-12-31": YEAR_10000 // 86_400_000_000 - 1}
INVALID_DATES = [
    "0000-12-31",
    "10000-01-01",
    "+2018-03-02",
    "-0001-01-01",
    "2018-02-29",
    "17592",
    "2018",
]
INVALID_DATES += ["2018-03-02Z", "2018-03-02T00:00:00", "2018-03-02T"]


def test_date_is_exact_or_rescued(spark: SparkSession) -> None:
    lines = [(json.dumps({"day": text}), text) for text in (*DATES, *INVALID_DATES)]
    results = read(spark, [line for line, _ in lines], "unix_date(day)")
    for line, text in lines:
        assert results[line] == ((DATES[text], {}) if text in DATES else (None, {"day": text}))


def test_is_timestamp_string_accepts_valid_strings() -> None:
    """Inference and parsing accept the same strings, except for surrounding blanks."""
    assert [
        text for text in VALID_STRINGS if text == text.strip() and not is_timestamp_string(text)
    ] == []
    out_of_range = {"0001-01-01T00:59:59+01:00", "9999-12-31T23:00:00-01:00"}
    wrong_offset = {text for text in INVALID_STRINGS if text[19:] in ("+19:00", "+18:01", "+01:60")}
    assert {
        text for text in INVALID_STRINGS if is_timestamp_string(text)
    } == out_of_range | wrong_offset


def random_times(count: int = 600) -> dict[str, tuple[int, str]]:
    """Return times with 0 to 9 digits of a second.

    The values are microseconds since 1970, rounded down, and the remaining digits.
    """
    random_, times = random.Random(7), {}
    for _ in range(count):
        day = (random_.choice([3, 1582, 1899, 1969, 1970, 2026, 9998]), random_.randint(1, 12))
        clock = (random_.randint(1, 28), random_.randrange(24), random_.randrange(60))
        second, fraction = (
            random_.randrange(60),
            random_.choice(["", "0", "9", "0000001", "9999999"]),
        )
        digits = fraction or "".join(random_.choices("0123456789", k=random_.randint(0, 9)))
        sign, hours, minutes = random_.choice("+-"), random_.randrange(15), random_.choice([0, 30])
        zone = random_.choice(["", "Z", f"{sign}{hours:02}:{minutes:02}"])
        text = f"{day[0]:04}-{day[1]:02}-{clock[0]:02}{random_.choice('T ')}"
        text += f"{clock[1]:02}:{clock[2]:02}:{second:02}"
        text += (f".{digits}" if digits else "") + zone
        # The calendar repeats every 400 years of 146,097 days.
        cycles = (day[0] - 2000) // 400
        seconds = Decimal(timegm((day[0] - 400 * cycles, day[1], *clock, second)))
        seconds += cycles * 146_097 * 86_400
        if zone not in ("", "Z"):
            seconds -= int(f"{sign}1") * (hours * 3600 + minutes * 60)
        micros = (seconds + Decimal(f"0.{digits or 0}")) * 1_000_000
        times[text] = int(micros.to_integral_value(ROUND_FLOOR)), digits[6:].rstrip("0")
    return times


def test_microseconds_are_read_and_nanoseconds_rescued(spark: SparkSession) -> None:
    """On every path, also before 1970."""
    times = random_times()
    shapes = {shape: [shape.format(json.dumps(text)) for text in times] for shape in SHAPES}
    lines = [line for shape_lines in shapes.values() for line in shape_lines]
    results = read(spark, lines, "unix_micros(coalesce(ts, at.since[0]))", SCHEMA)
    for shape_lines in shapes.values():
        for line, (micros, nanos) in zip(shape_lines, times.values(), strict=True):
            new = {name: 0 for name in ("new",) if name in line}
            expected = (None, json.loads(line)) if nanos else (micros, new)
            assert results[line] == expected, line
    assert {bool(nanos) for _, nanos in times.values()} == {True, False}


def test_is_timestamp_string_counts_digits_like_parsing() -> None:
    for text, (_, nanos) in random_times(200).items():
        assert is_timestamp_string(text, NANOSECONDS), text
        assert is_timestamp_string(text) == (not nanos), text
