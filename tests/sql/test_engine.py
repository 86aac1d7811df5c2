"""The analyst's door: names, values, errors, and that it really only reads."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import QueryBuilder, write_deltalake

from medallion.cli.render.sql import as_csv, as_json, as_text, csv_lines
from medallion.cli.render.terminal import document
from medallion.errors import UsageError
from medallion.sql.engine import Result, query, stream

TEN = datetime(2015, 2, 23, 10, 10, tzinfo=UTC)


def _write(root: Path, name: str, rows: str) -> None:
    path = root / name.replace(".", "/")
    path.mkdir(parents=True)
    write_deltalake(str(path), QueryBuilder().execute(rows).read_all())


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("a lakehouse #1")
    ten = """arrow_cast('2015-02-23T10:10:00Z', 'Timestamp(Microsecond, Some("UTC"))')"""
    counted = f"SELECT {ten} AS window_start, device, total_recordings"
    pairs = "(VALUES ('nexus4_1', 1), ('nexus4_2', 9)) AS t(device, total_recordings)"
    _write(home, "gold.device_counts", f"{counted} FROM {pairs}")
    _write(home, "silver.event", f"VALUES ('open', {ten}), (NULL, NULL)")
    _write(home, "quarantine.event", "SELECT 'x' AS id WHERE false")
    _write(home, "bronze.activity", f'SELECT {ten} AS "Recorded_At", 7 AS "Index"')
    (home / "gold" / "not_a_table").mkdir()
    return str(home)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT device FROM gold.device_counts ORDER BY device",
        'SELECT device FROM "gold"."device_counts" ORDER BY device;',
        "SELECT device FROM `gold`.device_counts ORDER BY device ; -- gold.nothing; really",
        "SELECT c.device FROM gold . /* gold.x */ device_counts AS c ORDER BY 1",
        "SELECT gold.device FROM gold.device_counts AS gold ORDER BY gold.device",
        "WITH c AS (SELECT * FROM gold.device_counts) SELECT device FROM c ORDER BY device",
        "select device from GOLD.Device_Counts order by device",
        "-- first\n/* second; */ SELECT device FROM gold.device_counts ORDER BY device",
        "SELECT device FROM gold.device_counts WHERE device <> 'drop; gold.x' ORDER BY device",
    ],
)
def test_a_table_is_found_however_it_is_written(root: str, statement: str) -> None:
    assert query(root, statement) == Result(("device",), [("nexus4_1",), ("nexus4_2",)])


def test_text_in_a_statement_is_left_alone(root: str) -> None:
    statement = """SELECT 'gold.device_counts; -- it''s' AS a, "device" AS "gold.x"
                   FROM gold.device_counts LIMIT 1"""
    assert query(root, statement).columns == ("a", "gold.x")
    assert query(root, statement).rows[0][0] == "gold.device_counts; -- it's"


def test_mixed_case_columns_need_no_quotes_and_layers_join(root: str) -> None:
    statement = "SELECT Recorded_At, Index FROM bronze.activity, silver.event"
    assert query(root, statement).rows == [(TEN, 7), (TEN, 7)]


def test_only_the_tables_that_are_named_are_opened(root: str, tmp_path: Path) -> None:
    broken = tmp_path / "gold" / "broken" / "_delta_log"
    broken.mkdir(parents=True)
    (broken / f"{0:020}.json").write_text("{not json")
    _write(tmp_path, "gold.sound", "SELECT 1 AS n")
    assert query(str(tmp_path), "SELECT n FROM gold.sound").rows == [(1,)]
    with pytest.raises(UsageError, match=r"^gold\.broken cannot be read: [^\n]+$"):
        query(str(tmp_path), "SELECT * FROM gold.broken")


def test_tables_are_listed_and_described(root: str) -> None:
    listed = query(root, "SHOW TABLES;")
    assert listed.columns == ("layer", "table")
    assert listed.rows[0] == ("bronze", "activity")
    assert [layer for layer, _ in listed.rows] == ["bronze", "gold", "quarantine", "silver"]
    described = query(root, "DESCRIBE gold.device_counts").rows
    assert [row[0] for row in described] == ["window_start", "device", "total_recordings"]
    known = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'event'"
    assert {row[0] for row in query(root, known).rows} == {"silver", "quarantine"}
    assert len(query(root, "SHOW COLUMNS FROM silver.event").rows) == 2


def test_a_table_without_rows_keeps_its_columns(root: str) -> None:
    empty = query(root, "SELECT * FROM quarantine.event")
    assert empty == Result(("id",), [])
    assert as_text(empty) == "id\n--"
    assert as_csv(empty) == "id\r\n"


WRITES = ["INSERT", "UPDATE", "DELETE", "MERGE", "DROP", "ALTER", "CREATE", "COPY", "SET"]
HIDDEN = [
    "/* SELECT */ COPY (SELECT 1) TO 'OUT' -- SELECT",
    "/* /* */ COPY (SELECT 1) TO 'OUT' --*/ SELECT 1",
    "EXPLAIN /* SELECT */ analyze verbose copy (SELECT 1) to 'OUT'",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO 'OUT'",
    "EXPLAIN EXPLAIN ANALYZE COPY (SELECT 1) TO 'OUT'",
    "EXPLAIN",
    "(COPY (SELECT 1) TO 'OUT')",
    "WITH a AS (SELECT 1) INSERT INTO gold.device_counts SELECT * FROM gold.device_counts",
    "WITH a AS (DELETE FROM gold.device_counts) SELECT 1",
    "SELECT * INTO t FROM gold.device_counts",
    "SELECT 1; SELECT 2",
    "SELECT 'a\\'; COPY (SELECT 1) TO 'OUT' --'",
]


@pytest.mark.parametrize(
    "statement", [*WRITES, *(f"EXPLAIN ANALYZE {word} t" for word in WRITES), *HIDDEN]
)
def test_it_only_reads(root: str, statement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deltalake.QueryBuilder", lambda *_: pytest.fail("the engine was asked"))
    with pytest.raises(UsageError, match=r"^(only SELECT|one statement)[^\n]+$"):
        query(root, statement)


def test_the_engine_refuses_the_rest(root: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for statement in (f"DESC ANALYZE COPY (SELECT 1) TO '{out}'", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(UsageError):
            query(root, statement)
    assert not out.exists()


@pytest.mark.parametrize("explain", ["EXPLAIN", "explain analyze verbose", "EXPLAIN FORMAT TREE"])
def test_explain_works(root: str, explain: str) -> None:
    plan = query(root, f"{explain} SELECT device FROM gold.device_counts")
    assert plan.columns == ("plan_type", "plan")


@pytest.mark.parametrize("statement", ["", "  ", ";", "-- nothing\n", "/* nothing */ ; ;"])
def test_an_empty_statement_is_refused(root: str, statement: str) -> None:
    with pytest.raises(UsageError, match=r"^the statement is empty"):
        query(root, statement)


@pytest.mark.parametrize("name", ["gold.nope", "nope", "gold.not_a_table", "elsewhere.nope"])
def test_an_unknown_table_is_named_with_those_there_are(root: str, name: str) -> None:
    with pytest.raises(UsageError) as error:
        query(root, f"SELECT * FROM {name}")
    assert str(error.value) == (
        f"there is no table {name} under {root}; the tables are bronze.activity, "
        "gold.device_counts, quarantine.event, silver.event"
    )


def test_before_the_first_nightly_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "gold" / "x" / "_delta_log").mkdir(parents=True)  # begun, nothing committed
    with pytest.raises(UsageError, match=r"no table gold\.x "):
        query(str(tmp_path), "SELECT * FROM gold.x")
    with pytest.raises(UsageError, match="no nightly has run yet"):
        query(str(tmp_path / "gold" / "x"), "SELECT * FROM gold.device_counts")
    with pytest.raises(UsageError, match=r"no lakehouse at .*/nowhere"):
        query(str(tmp_path / "nowhere"), "SELECT 1")


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT nope FROM gold.device_counts", "No field named nope. Valid fields are"),
        ("SELECT CAST(device AS int) FROM gold.device_counts", "nexus4_1"),
        ("SELEC 1", "not SELEC"),
    ],
)
def test_the_engines_complaints_take_one_line(root: str, statement: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        query(root, statement)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


INFINITE = "[CAST('nan' AS double), CAST('inf' AS double), -CAST('inf' AS double), NULL]"
EAST = "arrow_cast('2015-02-23T12:00:00', 'Timestamp(Second, Some(\"+02:00\"))')"
EXPRESSIONS: list[tuple[str, Any]] = [
    ("CAST('2015-02-23T10:18:54.958Z' AS timestamp)", "2015-02-23T10:18:54.958000Z"),
    ("(SELECT max(window_start) FROM gold.device_counts)", "2015-02-23T10:10:00Z"),
    (EAST, "2015-02-23T10:00:00Z"),
    ("arrow_cast(300000000000000000, 'Timestamp(Microsecond, None)')", "+11476-08-15T05:20:00"),
    ("INTERVAL '10 minutes'", "10 mins"),
    ("CAST(0 AS decimal(30, 10))", "0.0000000000"),
    (INFINITE, ["NaN", "Infinity", "-Infinity", None]),
    ("named_struct('at', CAST('2015-02-23' AS timestamp))", {"at": "2015-02-23T00:00:00Z"}),
    ("map(['k'], [1.5])", [["k", 1.5]]),
    ("x'00ff'", "00ff"),
    ("'line\nend \"ü\"'", 'line\nend "ü"'),
]


@pytest.mark.parametrize(("expression", "expected"), EXPRESSIONS)
def test_every_value_fits_strict_json(root: str, expression: str, expected: Any) -> None:
    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    printed = document(as_json(query(root, f"SELECT {expression} AS v")))
    assert json.loads(printed, parse_constant=refuse) == {"columns": ["v"], "rows": [[expected]]}


def test_values_stay_python_values(root: str) -> None:
    statement = "SELECT CAST(1.5 AS decimal(4, 2)), CAST('2015-02-23' AS date), max(window_start)"
    rows = query(root, f"{statement} FROM gold.device_counts").rows
    assert rows == [(Decimal("1.50"), date(2015, 2, 23), TEN)]


@pytest.mark.parametrize("text", ["2015-02-23T10:10:00Z", "2015-02-23 10:10:00"])
def test_times_compare_as_utc(root: str, text: str) -> None:
    statement = f"SELECT count(*) FROM gold.device_counts WHERE window_start = '{text}'"
    assert query(root, statement).rows == [(2,)]


def test_a_table_on_screen() -> None:
    rows = [("a", 1, None), ("bc", 100, "x\ny\x1b[31m"), ("", None, "")]
    assert as_text(Result(("device", "n", "note"), rows)).splitlines() == [
        "device |    n | note",
        "-------+------+-------------",
        "a      |    1 | NULL",
        "bc     |  100 | x\\ny\\x1b[31m",
        "       | NULL |",
    ]


def test_csv_is_quoted_where_it_must_be() -> None:
    rows = [("a,b", 1, None), ('say "x"', 2, TEN), ("two\nlines", 3, [1, "b"])]
    text = as_csv(Result(("t", "n", "v"), rows))
    assert text.startswith('t,n,v\r\n"a,b",1,\r\n"say ""x""",2,2015-02-23T10:10:00Z\r\n')
    assert list(csv.reader(io.StringIO(text, newline="")))[-1] == ["two\nlines", "3", '[1, "b"]']


def test_a_large_result_is_streamed(root: str) -> None:
    columns, rows = stream(root, "SELECT value FROM generate_series(1, 100000000) AS t(value)")
    lines = csv_lines(columns, rows)
    assert [next(lines) for _ in range(3)] == ["value\r\n", "1\r\n", "2\r\n"]


def test_importing_it_is_cheap() -> None:
    code = "import sys, medallion.sql.engine; sys.exit('deltalake' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
