"""Spark SQL of the configuration, analyzed without Spark."""

from __future__ import annotations

import pytest

from medallion.config.expressions import (
    arrival_column,
    column_names,
    has_current_time,
    nearest_name,
    without_strings,
)


@pytest.mark.parametrize(
    "sql",
    [
        "at > timestamp'now'",
        "at > TIMESTAMP \t' Now UTC'",
        "at > timestamp_ntz'tomorrow'",
        'day = date "yesterday"',
        "day = date/* of */'today'",
        "at < timestamp r'now'",
        "action <> 'it\\'s' and day = date -- of\n'today'",
        r"path = r'c:\' and day = date'today'",
    ],
)
def test_has_current_time_of_literals(sql: str) -> None:
    assert has_current_time(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "at > timestamp'2018-03-02' and day > date'epoch'",
        "action = 'now'",
        "`date` = 'today'",
        "action = \"date'today'\"",
        "action = 'it\\'s date \"today\"'",
        "-- date'today'\nday = to_date('today')",
        "/* date'today' */ my_date = 'today'",
    ],
)
def test_has_current_time_ignores_strings(sql: str) -> None:
    assert not has_current_time(sql)


def test_without_strings_removes_quoted_text() -> None:
    sql = r"""a = 'it\'s' and `b c` = "x\"y" and d = r'c:\' or e = 1"""
    assert without_strings(sql) == "a = '' and '' = '' and d = '' or e = 1"


@pytest.mark.parametrize(
    ("sql", "column"),
    [
        ("date(_ingested_at)", "_ingested_at"),
        ("coalesce(ts, `_SOURCE_MODIFIED_AT`)", "_SOURCE_MODIFIED_AT"),
        ("my_ingested_at || '_ingested_at' -- _ingested_at", None),
        ('row._ingested_at || "_source_modified_at" /* _ingested_at */', None),
        ("_source_file", None),
    ],
)
def test_arrival_column(sql: str, column: str | None) -> None:
    assert arrival_column(sql) == column


@pytest.mark.parametrize(
    ("sql", "names"),
    [
        ("coalesce(ts, time)", ["ts", "time"]),
        ("case when trim(id) <> '' then id end", ["id"]),
        ("try_cast(amount AS double) + tax", ["amount", "tax"]),
        ("cast(x as decimal(10, 2)) * y", ["x", "y"]),
        ("cast(x as struct<a: int, b: array<string>>).a", ["x"]),
        ("user.name", ["user"]),
        ("`user name`.`a b`", ["user name"]),
        ("transform(items, item -> item.price * rate)", ["items", "rate"]),
        ("aggregate(xs, 0, (total, x) -> total + x)", ["xs"]),
        ("extract(year from sold_at)", ["sold_at"]),
        ("sold_at + INTERVAL 1 DAY", ["sold_at"]),
        ("'a.b' || c -- not d", ["c"]),
        ("timestamp'2026-01-01' < at AND at IS NOT NULL", ["at"]),
        ("count(*) filter (where action = 'open')", ["action"]),
        ("sum(1e3 * amount)", ["amount"]),
        ("event.device = activity.device", ["event", "activity"]),
        ("if(date > date'2026-01-01', timestamp, current_timestamp)", ["date", "timestamp"]),
        ("`it's` || \"it's\" || x", ["it's", "x"]),
    ],
)
def test_column_names(sql: str, names: list[str]) -> None:
    assert column_names(sql) == names


def test_nearest_name() -> None:
    columns = ["shop", "Amount", "sold_at"]
    assert [nearest_name(n, columns) for n in ("shopp", "amont", "soldat", "region")] == [
        *("shop", "Amount", "sold_at", None),
    ]
