"""Spark SQL of the configuration, analyzed without Spark."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

from medallion.config.expressions import (
    arrival_column,
    column_names,
    has_current_time,
    nearest_name,
    refuse_wrong_condition,
    sql_problem,
    tokenize,
)
from medallion.errors import UsageError


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


def test_tokenize_strings() -> None:
    sql = r"""a = 'it\'s' and `b c` = "x\"y" and d = r'c:\' or e = 1"""
    strings = [token.text for token in tokenize(sql) if token.token_type.name.endswith("STRING")]
    assert strings == ["it's", 'x"y', "c:\\"]
    assert tokenize("a = 'without an end") == []


def test_import_is_lazy() -> None:
    """Most commands read no SQL, and sqlglot takes 0.1 s to import."""
    code = "import sys, medallion.runtime.check; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
        ("desc", ["desc"]),
        ("make_date(year, month, day)", ["year", "month", "day"]),
        ("first + position - interval '1' day", ["first", "position"]),
        ("first(first) over (partition by range order by asc desc)", ["first", "range", "asc"]),
        ("a.b.c[0] || try_cast(b['k'].c as string)", ["a", "b"]),
        ("transform(xs, X -> transform(x.ys, (y, i) -> x.z + Y + w))", ["xs", "w"]),
        ("timestampdiff(DAYOFYEAR, a, b) + timediff(HOUR, c, d)", ["b", "a"]),
        ("cast(a as string collate utf8_lcase)", ["a"]),
        ("SELECT * FROM {batch} WHERE lenght(regio) > 2 -- why", ["regio"]),
        ("", []),
    ],
)
def test_column_names(sql: str, names: list[str]) -> None:
    assert column_names(sql) == names


@pytest.mark.parametrize("sql", ["a mod b", "'", "map(a)", "(" * 500 + "a" + ")" * 500, "a; b"])
def test_column_names_of_unknown_syntax(sql: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Spark knows more syntax than sqlglot, and reports errors."""
    assert column_names(sql) is None
    assert column_names("get_json_object(a, '$.b[')") == ["a"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("sum((id)", "has a ( without its )"),
        ("max(id))", "has a ) without its ("),
        ("concat(')', \"(\")", None),
        ("max('a)", "has a string or a comment without its end"),
        ("coun(*)", "calls coun, which is not a function of Spark (did you mean count?)"),
        ("if(a, dat_trunc('day', at), at)", "calls dat_trunc, which is not a function of Spark"),
        ("a.b IN (1, 2) AND EXISTS(xs, x -> x > 0)", None),
        ("TRY_CAST(a AS DECIMAL(10, 2)) OVER (PARTITION BY b)", None),
        ("desc", None),
        ("select count(*) as n from silver.a a join silver.b b using (id)", None),
        ("  ", None),
    ],
)
def test_sql_problem(sql: str, problem: str | None) -> None:
    found = sql_problem(sql)
    assert found == problem or (problem and (found or "").startswith(problem))


def test_sql_problem_knows_all_functions(spark: SparkSession) -> None:
    names = [row.function for row in spark.sql("show functions").collect()]
    functions = [name for name in names if name.replace("_", "a").isalnum()]
    assert len(functions) > 500
    calls = {name: sql_problem(f"{name}(a, b)") for name in functions}
    assert {name: problem for name, problem in calls.items() if problem} == {}


def test_nearest_name() -> None:
    columns = ["shop", "Amount", "sold_at", "Url"]
    assert [nearest_name(n, columns) for n in ("shopp", "amont", "soldat", "region", "ulr")] == [
        *("shop", "Amount", "sold_at", None, "Url"),
    ]


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("(id = 1", "has a ( without its )"),
        (
            "custmer = 1",
            "reads custmer, which is not a column of silver.orders (did you mean customer?)",
        ),
        ("zip = 1", "reads zip, which is not a column of silver.orders; there are customer, id"),
        ("lenght(id) = 1", "calls lenght, which is not a function of Spark (did you mean length?)"),
    ],
)
def test_refuse_wrong_condition(condition: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--where {message}.")):
        refuse_wrong_condition("--where", condition, {"id", "customer"}, "silver.orders")


def test_right_conditions_are_not_refused() -> None:
    for condition in ("ID = 1 and customer.name is null", "true"):
        refuse_wrong_condition("--where", condition, {"id", "customer"}, "silver.orders")
