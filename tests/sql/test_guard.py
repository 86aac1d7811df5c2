"""Only statements that read pass; others are refused before the engine sees them."""

from __future__ import annotations

import pytest

from medallion.errors import UsageError
from medallion.sql.guard import parse_read_only

WRITES = ["INSERT", "UPDATE", "DELETE", "MERGE", "DROP", "ALTER", "CREATE", "COPY", "SET"]
HIDDEN = [
    "/* SELECT */ COPY (SELECT 1) TO 'OUT' -- SELECT",
    "/* /* */ COPY (SELECT 1) TO 'OUT' --*/ SELECT 1",
    "EXPLAIN /* SELECT */ analyze verbose copy (SELECT 1) to 'OUT'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO 'OUT'",
    "EXPLAIN EXPLAIN ANALYZE COPY (SELECT 1) TO 'OUT'",
    "DESC ANALYZE INSERT OVERWRITE gold.device_totals SELECT * FROM gold.device_totals",
    "describe delete from gold.device_totals",
    "EXPLAIN",
    "EXPLAIN ANALYZE SELECT 1",
    "(COPY (SELECT 1) TO 'OUT')",
    "WITH a AS (SELECT 1) INSERT INTO gold.device_counts SELECT * FROM gold.device_counts",
    "WITH a AS (DELETE FROM gold.device_counts) SELECT 1",
    "WITH x$a$ AS (SELECT 1) INSERT INTO gold.device_counts SELECT 1 AS z$a$",
    "WITH x@#$a$ AS (SELECT 1) INSERT INTO gold.device_counts SELECT 1 AS z$a$",
    "WITH a AS (SELECT 1 AS x{#) INSERT INTO gold.device_counts SELECT 1 --#}",
    "WITH a AS (SELECT 1 AS `x'`) INSERT INTO gold.device_counts SELECT 1 AS `'`",
    "SELECT * INTO t FROM gold.device_counts",
    "SELECT 1; SELECT 2",
    "SELECT 'a\\'; COPY (SELECT 1) TO 'OUT' --'",
]


@pytest.mark.parametrize(
    "statement", [*WRITES, *(f"EXPLAIN ANALYZE {word} t" for word in WRITES), *HIDDEN]
)
def test_parse_read_only_refuses_writes(statement: str) -> None:
    with pytest.raises(UsageError, match=r"^(only SELECT|one statement)[^\n]+$"):
        parse_read_only(statement)


@pytest.mark.parametrize("quote", ["q'[", "Q'a", "nq'!"])
def test_parse_read_only_refuses_oracle_quotes(quote: str) -> None:
    """For the engine, Oracle quotes start a string that ends at their closing sign."""
    with pytest.raises(UsageError, match="strings such as"):
        parse_read_only(f"WITH a AS (SELECT {quote}' INSERT INTO t SELECT 1 --'")


@pytest.mark.parametrize("statement", ["", "  ", ";", "-- nothing\n", "/* nothing */ ; ;"])
def test_parse_read_only_refuses_empty(statement: str) -> None:
    with pytest.raises(UsageError, match=r"^the statement is empty"):
        parse_read_only(statement)


def test_parse_read_only_dollar_tags() -> None:
    """A vowel sign is part of a name for the engine, but not of a word for Python."""
    with pytest.raises(UsageError, match="must start after a blank"):
        parse_read_only("WITH x\u093f$a$ AS (SELECT 1) INSERT INTO t SELECT 1 AS z\u093f$a$")
    assert parse_read_only("SELECT ($a$;$a$), $$;$$, 1=$b$;$b$")


def test_parse_read_only_operators_side_by_side() -> None:
    cases = "WHEN x = 1 THEN 2 " * 3000
    columns = ", ".join(["x BETWEEN 1 AND 2"] * 3000)
    assert parse_read_only(f"SELECT CASE {cases}END, {columns} FROM t")


def test_parse_read_only_long_list() -> None:
    numbers = "-1, -2, " * 5000
    statement = f"SELECT n <> 1, n::int, count(*) FROM gold.x WHERE n IN ({numbers}-3) OR (-n) >= 2"
    assert parse_read_only(statement).sql == statement


def test_parse_read_only_finds_tables() -> None:
    parsed = parse_read_only(
        "SELECT c.device FROM gold . /* gold.x */ device_counts AS c, silver.event"
    )
    assert {"gold.device_counts", "silver.event"} <= parsed.tables
    assert "gold.x" not in parsed.tables
    assert not parsed.lists_tables
    assert parse_read_only("show tables").lists_tables


def test_parse_read_only_columns_named_like_commands() -> None:
    columns = "max(update), sum(copy), coalesce(set, delete), t.into"
    assert parse_read_only(f"SELECT {columns} FROM t")
