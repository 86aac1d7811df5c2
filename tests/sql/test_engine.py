"""The SQL engine: names, values and errors."""

from __future__ import annotations

import re
import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from medallion.errors import MedallionError, UsageError
from medallion.sql.engine import query
from tests.support.sql import TEN, TEN_IN_SQL, write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> str:
    home = tmp_path_factory.mktemp("a lakehouse +1")
    columns = f"SELECT {TEN_IN_SQL} AS window_start, device, total_recordings"
    pairs = "(VALUES ('nexus4_1', 1), ('nexus4_2', 9)) AS t(device, total_recordings)"
    write(home, "gold.device_counts", f"{columns} FROM {pairs}")
    write(home, "silver.event", f"VALUES ('open', {TEN_IN_SQL}), (NULL, NULL)")
    write(home, "quarantine.event", "SELECT 'x' AS id WHERE false")
    write(home, "bronze.activity", f'SELECT {TEN_IN_SQL} AS "Recorded_At", 7 AS "Index"')
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
def test_query_finds_tables_in_any_spelling(root: str, statement: str) -> None:
    assert query(root, statement).rows == [("nexus4_1",), ("nexus4_2",)]


def test_query_unsupported_root_is_refused(tmp_path: Path) -> None:
    """For the lakehouse `b%41`, delta-rs would read the log of `bA`."""
    write(tmp_path / "bA", "gold.n", "SELECT 1 AS n")
    write(tmp_path / "other", "gold.n", "SELECT 2 AS n")
    (tmp_path / "other").rename(tmp_path / "b%41")
    (tmp_path / "link").symlink_to("b%41")
    for name in ("b%41", "link"):
        with pytest.raises(UsageError, match="Delta tables cannot be stored"):
            query(str(tmp_path / name), "SELECT n FROM gold.n")


def test_query_keeps_strings(root: str) -> None:
    statement = """SELECT 'gold.device_counts; -- it''s' AS a, "device" AS "gold.x"
                   FROM gold.device_counts LIMIT 1"""
    assert query(root, statement).columns == ("a", "gold.x")
    assert query(root, statement).rows[0][0] == "gold.device_counts; -- it's"


def test_query_mixed_case_columns(root: str) -> None:
    statement = "SELECT Recorded_At, Index FROM bronze.activity, silver.event"
    assert query(root, statement).rows == [(TEN, 7), (TEN, 7)]


def test_query_opens_only_named_tables(root: str, tmp_path: Path) -> None:
    corrupt_log = tmp_path / "gold" / "broken" / "_delta_log"
    corrupt_log.mkdir(parents=True)
    (corrupt_log / f"{0:020}.json").write_text("{not json")
    write(tmp_path, "gold.sound", "SELECT 1 AS n")
    assert query(str(tmp_path), "SELECT n FROM gold.sound").rows == [(1,)]
    with pytest.raises(
        MedallionError, match=r"^gold\.broken: [^\n]+json is corrupt or truncated: "
    ):
        query(str(tmp_path), "SELECT * FROM gold.broken")


def test_tables_are_listed_and_described(root: str) -> None:
    listed = query(root, "SHOW TABLES;")
    assert listed.columns == ("layer", "table")
    assert listed.rows[0] == ("bronze", "activity")
    assert [layer for layer, _ in listed.rows] == ["bronze", "gold", "quarantine", "silver"]
    described = query(root, "DESCRIBE gold.device_counts").rows
    assert [row[0] for row in described] == ["window_start", "device", "total_recordings"]
    schemas = "SELECT table_schema FROM information_schema.tables WHERE table_name = 'event'"
    assert {row[0] for row in query(root, schemas).rows} == {"silver", "quarantine"}
    assert len(query(root, "SHOW COLUMNS FROM silver.event").rows) == 2


def test_query_longest_chains(root: str) -> None:
    union = query(root, "SELECT 1 AS n" + " UNION ALL SELECT 1" * 1000)
    assert union.rows == [(1,)] * 1001
    assert query(root, f"SELECT 1{'+1' * 1000}").rows == [(1001,)]
    conditions = " AND ".join(f"device <> 'other {n}'" for n in range(1001))
    assert query(root, f"SELECT count(*) FROM gold.device_counts WHERE {conditions}").rows == [(2,)]


def test_query_empty_table_has_columns(root: str) -> None:
    result = query(root, "SELECT * FROM quarantine.event")
    assert (result.columns, result.rows) == (("id",), [])


def test_query_engine_refuses_writes(root: str, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    for statement in (f"DESC ANALYZE COPY (SELECT 1) TO '{out}'", "SELECT * FROM '/etc/passwd'"):
        with pytest.raises(UsageError):
            query(root, statement)
    assert not out.exists()


@pytest.mark.parametrize("explain", ["EXPLAIN", "explain"])
def test_query_explain(root: str, explain: str) -> None:
    plan = query(root, f"{explain} SELECT device FROM gold.device_counts")
    assert plan.columns == ("plan_type", "plan")


@pytest.mark.parametrize("name", ["gold.nope", "nope", "gold.not_a_table", "elsewhere.nope"])
def test_query_unknown_table(root: str, name: str) -> None:
    with pytest.raises(UsageError) as error:
        query(root, f"SELECT * FROM {name}")
    assert str(error.value) == (
        f"there is no table {name} under {root}; the tables are bronze.activity, "
        "gold.device_counts, quarantine.event, silver.event"
    )


def test_query_before_the_first_run(tmp_path: Path) -> None:
    # Table creation started, nothing committed.
    (tmp_path / "gold" / "x" / "_delta_log").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"no table gold\.x "):
        query(str(tmp_path), "SELECT * FROM gold.x")
    with pytest.raises(UsageError, match="no nightly run yet"):
        query(str(tmp_path / "gold" / "x"), "SELECT * FROM gold.device_counts")
    with pytest.raises(UsageError, match=r"no lakehouse at .*/nowhere"):
        query(str(tmp_path / "nowhere"), "SELECT 1")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "SELECT nope FROM gold.device_counts",
            "no column nope; the columns are window_start, device",
        ),
        ("SELECT CAST(device AS int) FROM gold.device_counts", "nexus4_1"),
        ("SELEC 1", "not SELEC"),
    ],
)
def test_query_errors_are_one_line(root: str, statement: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        query(root, statement)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_query_values_are_python_values(root: str) -> None:
    statement = "SELECT CAST(1.5 AS decimal(4, 2)), CAST('2015-02-23' AS date), max(window_start)"
    rows = query(root, f"{statement} FROM gold.device_counts").rows
    assert rows == [(Decimal("1.50"), date(2015, 2, 23), TEN)]


def test_query_maps_are_dictionaries(root: str) -> None:
    statement = "SELECT map(['a', 'b'], [[1], NULL]), named_struct('m', map([1], [X'00ff']))"
    rows = query(root, f"{statement} FROM gold.device_counts WHERE total_recordings = 9").rows
    assert rows == [({"a": [1], "b": None}, {"m": {1: b"\x00\xff"}})]


@pytest.mark.parametrize("text", ["2015-02-23T10:10:00Z", "2015-02-23 10:10:00"])
def test_query_times_are_utc(root: str, text: str) -> None:
    statement = f"SELECT count(*) FROM gold.device_counts WHERE window_start = '{text}'"
    assert query(root, statement).rows == [(2,)]


def test_import_does_not_load_the_engine() -> None:
    code = "import sys, medallion.sql.engine; sys.exit('deltalake' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


VIEWS = {
    "totals": "SELECT device, total_recordings AS n FROM gold.device_counts;",
    "large": "SELECT * FROM totals WHERE n > 5",
}


def test_query_views_read_tables_and_earlier_views(root: str) -> None:
    assert query(root, "SELECT device FROM large", VIEWS).rows == [("nexus4_2",)]
    joined = "SELECT count(*) FROM totals JOIN large USING (device)"
    assert query(root, joined, VIEWS).rows == [(1,)]
    assert query(root, "DESCRIBE totals", VIEWS).rows[1][:2] == ("n", "bigint")
    assert ("view", "large") in query(root, "SHOW TABLES", VIEWS).rows


def test_query_view_that_writes_is_refused(root: str) -> None:
    with pytest.raises(UsageError, match="view v: only SELECT"):
        query(root, "SELECT * FROM v", {"v": "DROP TABLE x"})
    # An unused view is not checked.
    assert query(root, "SELECT 1", {"v": "DROP TABLE x"}).rows == [(1,)]


def test_query_as_of_version_and_time(tmp_path: Path) -> None:
    write(tmp_path, "gold.n", "SELECT 1 AS n")
    write_deltalake(tmp_path / "gold/n", pa.table({"n": [2]}), mode="append")
    write(tmp_path, "gold.m", "SELECT 1 AS m")
    log = tmp_path / "gold/n/_delta_log"
    for version, text in enumerate(("2026-05-01T00:00:00+00:00", "2026-05-02T00:00:00+00:00")):
        commit = log / f"{version:020}.json"
        time = int(datetime.fromisoformat(text).timestamp() * 1000)
        commit.write_text(re.sub(r'"timestamp":\d+', f'"timestamp":{time}', commit.read_text()))
    root, count = str(tmp_path), "SELECT count(*) FROM gold.n"
    assert query(root, count, as_of=0).rows == [(1,)]
    assert query(root, count, as_of=1).rows == [(2,)]
    day = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert query(root, count, as_of=day).rows == [(1,)]
    assert query(root, count, as_of=day.replace(day=3)).rows == [(2,)]
    for missing_version in (2, day.replace(year=2025)):
        with pytest.raises(
            UsageError, match=r"gold\.n has the versions 0 \(of 2026-05-01 00:00:00"
        ):
            query(root, count, as_of=missing_version)
    with pytest.raises(UsageError, match="a version is of one table"):
        query(root, "SELECT * FROM gold.n, gold.m", as_of=0)


LARGE = "cast('90000000000000000000000000000000000000' as decimal(38,0))"
SUMS = f"(VALUES (1, {LARGE}), (1, {LARGE}), (2, {LARGE} + 1)) AS t(g, x)"
BIGINTS = "(VALUES (1, 9000000000000000000), (1, 9000000000000000001)) AS t(g, x)"


@pytest.mark.parametrize("rows", [SUMS, BIGINTS])
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g, sum(x) AS s FROM {} GROUP BY g",
        "SELECT Sum ( x -- all\n) FROM {}",
        "SELECT sum(x) FILTER (WHERE g < 3) FROM {}",
        "SELECT g FROM {} GROUP BY g HAVING sum(x) > 0",
        "SELECT sum(x) OVER w FROM {} WINDOW w AS (ORDER BY g)",
        "SELECT sum(x) FILTER (WHERE g < 3) OVER (PARTITION BY 1) + 1 FROM {}",
        "SELECT sum(s) FROM (SELECT x, sum(x) AS s FROM {} GROUP BY x)",
        "WITH a AS (SELECT sum(DISTINCT x) AS s FROM {}) SELECT s FROM a",
        "SELECT * FROM a_view",
    ],
)
def test_query_sum_that_overflows_is_refused(root: str, sql: str, rows: str) -> None:
    views = {"a_view": f"SELECT sum(x) FROM {rows}"}
    with pytest.raises(UsageError, match="a sum does not fit its type: convert the values, as in"):
        query(root, sql.format(rows), views)


def test_query_sums_that_fit_are_exact(root: str) -> None:
    result = query(root, f"SELECT g, sum(x), sum(g) FROM {SUMS} WHERE g = 2 GROUP BY g")
    assert result.columns == ("g", "sum(t.x)", "sum(t.g)")
    assert result.rows == [(2, Decimal("90000000000000000000000000000000000001"), 2)]
    sums = "sum(x) AS s, sum(x) FILTER (WHERE x > 0) AS p, sum(DISTINCT x) AS d, 'sum(x)' AS t"
    small = "(VALUES (cast('1.25' AS decimal(38,2))), (cast('-1.25' AS decimal(38,2)))) AS t(x)"
    result = query(root, f"SELECT {sums} FROM {small}")
    assert result.rows == [(0, Decimal("1.25"), 0, "sum(x)")]
    assert str(result.to_arrow().schema.field("s").type) == "decimal128(38, 2)"
    views = {"v": f'SELECT sum(x) AS s, 1 AS "a b" FROM {small}'}
    assert query(root, 'SELECT s, "a b" FROM v', views).rows == [(0, 1)]
    # A sum that leaves the range of its type on the way, and comes back.
    far = "(VALUES (9000000000000000000), (9000000000000000000), (-9000000000000000001)) AS t(x)"
    assert query(root, f"SELECT sum(x) FROM {far}").rows == [(8999999999999999999,)]


def test_query_sums_of_other_types(root: str) -> None:
    doubles = "(VALUES (0.1e0, 1), (0.2e0, 2), (cast('inf' as double), 3)) AS t(x, y)"
    statement = f"SELECT sum(x), sum(x) FILTER (WHERE y < 3), sum(y) FROM {doubles}"
    assert query(root, statement).rows == [(float("inf"), 0.1 + 0.2, 6)]
    days = "(VALUES (timestamp '2026-05-03'), (timestamp '2026-05-04')) AS t(x)"
    statement = f"SELECT sum(x - timestamp '2026-05-01') FROM {days}"
    assert query(root, statement).rows == [(timedelta(days=5),)]
    assert query(root, f"SELECT sum(x) FROM {SUMS} WHERE false").rows == [(None,)]
