"""Changes that Debezium wrote of a database, against the tables of that database.

The READMEs of tests/data/debezium-postgres and debezium-mariadb say how both were captured.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import struct
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.inspect.audit import run_audit
from tests.support import PROJECT
from tests.support.lakehouse import Lakehouse

Row = dict[str, Any]


@dataclass(frozen=True)
class Captured:
    """Messages of the tables of a database, in parts, and the tables after some of these.

    Attributes:
        directory: the files, and the configuration that reads them.
        runs: the parts that land before each run; the tables after the last one are expected.
        tables: the directory of the messages of each table.
        mixed: the table with which messages land that belong to no table.
        histories: the tables that silver has as a history.
    """

    directory: Path
    runs: Sequence[Sequence[int]]
    tables: Mapping[str, str]
    mixed: str
    histories: Collection[str]

    def files(self, table: str, part: int) -> list[Path]:
        names = (table, "messages") if table == self.mixed else (table,)
        files = (
            self.directory / self.tables[table] / str(part) / f"{name}.json.gz" for name in names
        )
        return [file for file in files if file.exists()]


POSTGRESQL = Captured(
    PROJECT / "tests/data/debezium-postgres",
    runs=((1,), (2, 3)),
    tables={
        "items": "schema",
        "documents": "plain",
        "documents_full": "schema",
        "readings": "schema",
        "carts": "plain",
    },
    mixed="carts",
    histories=("documents", "carts"),
)
MARIADB = Captured(
    PROJECT / "tests/data/debezium-mariadb",
    runs=((1,), (2,)),
    tables={"orders": "."},
    mixed="orders",
    histories=("orders",),
)
# NaN is a string in JSON, which does not fit a column that is a number by most of its values.
RESCUED = {"readings": {"rescued_payload.after.value": 1}}


def _float(value: Any) -> str:
    return repr(float(value) + 0.0)  # a string, because NaN does not equal itself


def _single(value: Any) -> str:
    return _float(struct.unpack("f", struct.pack("f", float(value)))[0])


def _money(value: str) -> Decimal:
    return Decimal(re.sub("[$,]", "", value))


def _microseconds(value: str) -> int:
    """Return a time, or an interval of days and a time."""
    match = re.fullmatch(r"(?:(-?\d+) days? ?)?(?:(\d+):(\d+):([\d.]+))?", value)
    assert match
    days, hours, minutes, seconds = (Decimal(each or 0) for each in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000_000)


def _time_in_utc(value: str) -> str:
    time = datetime.fromisoformat(f"1970-01-02T{value}").astimezone(UTC).time()
    return f"{time.isoformat()}Z"


def _timestamp(value: str) -> str:
    return value.removesuffix("+00:00").replace("T", " ")


# What PostgreSQL's row_to_json writes, as what silver has.
EXPECTED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("price", "rate", "huge", "free", "added"), Decimal),
    "paid": _money,
    "single": _single,
    **dict.fromkeys(("double", "value"), _float),
    "reals": lambda values: [_float(value) for value in values],
    "place": lambda point: [_float(value) for value in point.strip("()").split(",")],
    **dict.fromkeys(("at_time", "span"), _microseconds),
    "at_zone": _time_in_utc,
    **dict.fromkeys(("millis", "micros", "zoned", "at", "plain", "stamp"), _timestamp),
    **dict.fromkeys(("doc", "docb"), json.dumps),
    "attrs": lambda pairs: json.dumps(pairs, separators=(",", ":")),
}


def _stored(value: Any) -> Any:
    """Return a value of silver; bytes and dates as PostgreSQL writes them."""
    match value:
        case float():
            return _float(value)
        case bytes():
            return f"\\x{value.hex()}"
        case date():
            return value.isoformat()
        case list():
            return [_stored(each) for each in value]
    return value


def expected_rows(captured: Captured, table: str, part: int) -> list[Row]:
    name = f"{table.removesuffix('_full')}.json"
    text = (captured.directory / "expected" / str(part) / name).read_text(encoding="utf-8")
    rows = [json.loads(line, parse_float=Decimal) for line in text.splitlines()]
    return [
        {n: EXPECTED[n](v) if n in EXPECTED and v is not None else v for n, v in row.items()}
        for row in rows
    ]


def messages_of(captured: Captured, table: str) -> Counter[str]:
    """Return the number of messages by operation, or by the rule that names them."""
    counts = Counter[str]()
    for file in (f for run in captured.runs for part in run for f in captured.files(table, part)):
        for line in gzip.decompress(file.read_bytes()).decode().splitlines():
            message = json.loads(line)
            match message and message.get("payload", message):
                case None:
                    counts["tombstone"] += 1
                case {"op": "m"}:
                    counts["logical_message"] += 1
                case {"op": operation}:
                    counts[operation] += 1
                case {"status": _}:
                    counts["transaction"] += 1
                case {"ddl": _}:
                    counts["schema_change"] += 1
                case _:
                    counts["heartbeat"] += 1
    return counts


def assert_equal(lakehouse: Lakehouse, captured: Captured, table: str, part: int) -> None:
    """Compare the current rows of silver with those of the database."""
    source = lakehouse.config.sources[table]
    rows = expected_rows(captured, table, part)
    columns = [name for name in source.silver if name in rows[0]]
    if table == "documents":
        columns.remove("reals")  # null, if it did not change and is outside the row
    expected = {tuple(row[key] for key in source.keys): row for row in rows}
    is_history = table in captured.histories
    stored = lakehouse.rows(f"silver.{table}", *columns, *["is_current"] * is_history)
    current = [row for row in stored if not is_history or row[-1]]
    actual = [dict(zip(columns, map(_stored, row), strict=False)) for row in current]
    keys = [tuple(row[key] for key in source.keys) for row in actual]
    assert sorted(keys) == sorted(expected)
    for key, row in zip(keys, actual, strict=True):
        assert row == {n: expected[key][n] for n in columns}, (table, key)


@pytest.mark.slow  # the parts have quick tests in tests/layers/silver
@pytest.mark.parametrize("captured", [MARIADB, POSTGRESQL], ids=["mariadb", "postgresql"])
def test_debezium(spark: SparkSession, tmp_path: Path, captured: Captured) -> None:
    """Silver has the tables of the database after each run; no message is lost."""
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    conf = {"MEDALLION_CONF": str(captured.directory), "MEDALLION_HOME": str(lakehouse.root)}
    lakehouse.config = load(conf, PROJECT)
    for parts in captured.runs:
        for table, part in product(captured.tables, parts):
            landing = lakehouse.root / "landing" / table
            landing.mkdir(parents=True, exist_ok=True)
            for file in captured.files(table, part):
                shutil.copy(file, landing / f"{part}-{file.name}")
        assert not lakehouse.run_without_gates().errors
        for table in captured.tables:
            assert_equal(lakehouse, captured, table, parts[-1])
    for table in captured.tables:
        messages = messages_of(captured, table)
        operations = {op: messages.pop(op, 0) for op in "crudt"}
        rules = lakehouse.rows(f"quarantine.{table}", "_failed_rules")
        failed = Counter(rule for (names,) in rules for rule in names)
        assert failed == messages + Counter(RESCUED.get(table, {}))
        if table in captured.histories:  # a row for each change
            history = lakehouse.rows(f"silver.{table}", "is_current")
            assert len(history) == sum(operations[op] for op in "cru")
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.is_balanced, audit.findings) == (True, ())
