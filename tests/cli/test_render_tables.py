"""Query results as text, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
from typing import Any

import pytest

from medallion.cli.render_tables import csv_lines, replay_json, replay_text, sql_json, sql_text
from medallion.cli.terminal import to_json
from medallion.runtime.replay import ReplayCounts
from medallion.sql.engine import Database, query
from medallion.sql.result import Result, batch_rows
from tests.support.sql import TEN, TEN_IN_SQL, write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("lakehouse")
    write(home, "gold.device_counts", f"SELECT {TEN_IN_SQL} AS window_start")
    return str(home)


INFINITE = "[CAST('nan' AS double), CAST('inf' AS double), -CAST('inf' AS double), NULL]"
OFFSET_TIME = "arrow_cast('2015-02-23T12:00:00', 'Timestamp(Second, Some(\"+02:00\"))')"
EXPRESSIONS: list[tuple[str, Any]] = [
    ("CAST('2015-02-23T10:18:54.958Z' AS timestamp)", "2015-02-23T10:18:54.958000Z"),
    ("(SELECT max(window_start) FROM gold.device_counts)", "2015-02-23T10:10:00Z"),
    (OFFSET_TIME, "2015-02-23T10:00:00Z"),
    ("arrow_cast(300000000000000000, 'Timestamp(Microsecond, None)')", "+11476-08-15T05:20:00"),
    ("INTERVAL '10 minutes'", "10 mins"),
    ("CAST(0 AS decimal(30, 10))", "0.0000000000"),
    (INFINITE, ["NaN", "Infinity", "-Infinity", None]),
    ("named_struct('at', CAST('2015-02-23' AS timestamp))", {"at": "2015-02-23T00:00:00Z"}),
    ("map(['k'], [1.5])", {"k": 1.5}),
    ("x'00ff'", "00ff"),
    ("'line\nend \"ü\"'", 'line\nend "ü"'),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_sql_json_every_value_is_strict_json(root: str, expression: str, expected: Any) -> None:
    def fail(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    printed = to_json(sql_json(query(root, f"SELECT {expression} AS v")))
    assert json.loads(printed, parse_constant=fail) == {"columns": ["v"], "rows": [[expected]]}


def test_sql_text_is_aligned() -> None:
    rows = [("a", 1, None), ("bc", 100, "x\ny\x1b[31m"), ("", None, "")]
    assert sql_text(Result(("device", "n", "note"), rows)).splitlines() == [
        "device |    n | note",
        "-------+------+-------------",
        "a      |    1 | NULL",
        "bc     |  100 | x\\ny\\x1b[31m",
        "       | NULL |",
    ]


def test_csv_lines_are_quoted_if_needed() -> None:
    rows = [("a,b", 1, None), ('say "x"', 2, TEN), ("two\nlines", 3, [1, "b"])]
    text = "".join(csv_lines(("t", "n", "v"), rows))
    assert text.startswith('t,n,v\r\n"a,b",1,\r\n"say ""x""",2,2015-02-23T10:10:00Z\r\n')
    assert list(csv.reader(io.StringIO(text, newline="")))[-1] == ["two\nlines", "3", '[1, "b"]']


def test_sql_text_without_rows_has_columns() -> None:
    assert sql_text(Result(("id",), [])) == "id\n--"
    assert sql_text(Result(("plan_type", "plan"), [(1, None)])) == "1:\nNone"
    assert [*csv_lines(("id",), [])] == ["id\r\n"]


def test_csv_lines_are_streamed(root: str) -> None:
    database = Database(root)
    _, batches = database.execute("SELECT value FROM generate_series(1, 100000000) AS t(value)")
    lines = csv_lines(("value",), (row for batch in batches for row in batch_rows(batch)))
    assert [next(lines) for _ in range(3)] == ["value\r\n", "1\r\n", "2\r\n"]


def test_sql_text_plan_keeps_lines(root: str) -> None:
    plan = sql_text(query(root, "EXPLAIN SELECT 1 AS n FROM gold.device_counts WHERE 1 > random()"))
    lines = plan.splitlines()
    assert {"logical_plan:", "physical_plan:"} <= {*lines}
    assert next(line for line in lines if "TableScan" in line).startswith("  ")
    assert "\\n" not in plan


def test_replay_reports_rows() -> None:
    counts = ReplayCounts(validated=7, replayed=2, duplicate=1, quarantined=4)
    assert replay_text(counts) == (
        "2 rows moved to silver, 1 duplicate removed; 4 rows in quarantine"
    )
    assert replay_json(counts) == {
        "validated_rows": 7,
        "replayed_rows": 2,
        "duplicate_rows": 1,
        "quarantined_rows": 4,
    }
    none_passed = ReplayCounts(validated=4, replayed=0, duplicate=0, quarantined=4)
    assert replay_text(none_passed).startswith("none of 4 rows passes the rules; ")
