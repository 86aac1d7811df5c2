"""Silver with a lookup table: runs, interruptions, late rows and changed settings."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from medallion.config.tables import LookupConfig
from medallion.errors import ConfigError, MedallionError
from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.inspect.status import query_statuses
from medallion.layers.silver.lookup import open_lookup_table
from medallion.runtime.stream import Stream
from medallion.spark import delta
from medallion.spark.errors import StreamError
from medallion.spark.watch import await_all
from medallion.storage.paths import StoragePath
from tests.support import sql
from tests.support.lakehouse import Lakehouse, start_flows
from tests.support.lines import recording
from tests.support.settings import EVICTING_STREAMS, changed_settings

DEVICES = LookupConfig("reference/devices.csv", "device", {"maker": "string", "released": "date"})
HEADER = "device,maker,released\n"
SILVER = ("recorded_at", "device", "maker", "released")


FIRST = (
    recording("10:00:00", "nexus"),
    recording("15:00:00", "nexus"),  # moves the watermark to 14:00
    recording("10:00:00", "ghost"),  # unmatched
    recording("10:00:01", "old"),  # breaks the rule
    recording("10:00:01", "old"),  # a duplicate
)
SECOND = (
    recording("09:00:00", "ghost"),  # late
    recording("09:00:00", "ghost"),  # late, and a duplicate of a late row
    recording("10:00:00", "nexus"),  # late, and already in silver
    recording("09:00:01", "stranger"),  # late, unmatched
    recording("09:00:02", "old"),  # late, and breaks the rule
    recording("10:00:01", "old"),  # late, and already in quarantine
    recording("16:00:00", "ghost"),
    recording("16:00:00", "nexus"),
    recording("16:00:00", "stranger"),  # unmatched
)


def at(clock: str) -> str:
    return f"2015-02-23 {clock}"


AFTER_FIRST = [
    (at("10:00:00"), "ghost", None, None),
    (at("10:00:00"), "nexus", "LG", "2013-10-31"),
    (at("15:00:00"), "nexus", "LG", "2013-10-31"),
]


@pytest.fixture(scope="module")
def filled_bronze(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse with a lookup table, a rule on its columns, and rows in bronze."""
    folder = tmp_path_factory.mktemp("lookup")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.copy_of_conf(folder)
    query = "SELECT * FROM {batch} WHERE maker = 'recalled' AND x > 0"
    type_ = "unexpected_rows_expectation"
    lakehouse.expect(
        "silver.activity", "recalled", type_, "quarantine", unexpected_rows_query=query
    )
    source = replace(lakehouse.config.sources["activity"], lookup=DEVICES)
    lakehouse.config = replace(lakehouse.config, sources={"activity": source}, gold={})
    write_lookup_table(lakehouse, "nexus,LG,2013-10-31", "old,recalled,")
    lakehouse.land("activity", "1.json", *FIRST)
    lakehouse.fill("bronze")
    return lakehouse


@pytest.fixture(scope="module")
def filled_silver(filled_bronze: Lakehouse, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a copy of `filled_bronze` after a run of silver."""
    lakehouse = filled_bronze.copy(tmp_path_factory.mktemp("lookup") / "lakehouse")
    with changed_settings(lakehouse.spark, EVICTING_STREAMS):
        lakehouse.fill("silver")
    return lakehouse


def copy_with_conf(lakehouse: Lakehouse, folder: Path) -> tuple[Lakehouse, Path]:
    """Return a copy of a lakehouse with its own conf/, and the suite of its silver table."""
    copied = lakehouse.copy(folder / "lakehouse")
    copied.copy_of_conf(folder)
    return copied, copied.config.expectations / "expectations/silver/activity.json"


def write_lookup_table(lakehouse: Lakehouse, *rows: str) -> None:
    """Write the lookup table."""
    file = lakehouse.root / DEVICES.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HEADER + "".join(f"{row}\n" for row in rows), encoding="utf-8")


def check_silver(lakehouse: Lakehouse) -> None:
    """Check the settings of silver's query without starting it."""
    pipeline = lakehouse.pipeline()
    pipeline.start_flow(pipeline.flow("silver.activity"), None)


def test_lookup_table_is_joined(filled_silver: Lakehouse) -> None:
    assert rows(filled_silver) == AFTER_FIRST
    quarantined = filled_silver.rows("quarantine.activity", "Device", "_failed_rules")
    assert quarantined == [("old", ["recalled"])]
    assert unmatched(filled_silver) == [1]


def test_interrupted_batch_keeps_its_lookup_table(
    filled_bronze: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interrupted batch is in silver, so it must finish with its copy of the lookup table."""
    lakehouse = filled_bronze.copy(tmp_path / "lakehouse")
    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_once", append_silver_only)
        with pytest.raises(StreamError, match="interrupted"):
            lakehouse.fill("silver")
    assert len(lakehouse.rows("silver.activity")) == 3
    assert lakehouse.rows("quarantine.activity") == []
    copies = lakehouse.config.layout.checkpoint("silver.activity") / "reference"
    moved_copies = copies.local.rename(lakehouse.root / "away")
    write_lookup_table(lakehouse, "nexus,Google,")
    with pytest.raises(StreamError, match=r"is gone, the copy of .* refresh silver\.activity"):
        lakehouse.fill("silver")
    moved_copies.rename(copies)
    # This run completes the batch, and is interrupted before its record.
    await_all(flow.started_run for flow in start_flows(lakehouse.pipeline(), "silver"))
    assert rows(lakehouse) == AFTER_FIRST
    assert lakehouse.rows("quarantine.activity", "Device", "_failed_rules") == [
        ("old", ["recalled"])
    ]
    lakehouse.fill("silver")
    balance = run_audit(lakehouse.config).balances["activity"]
    assert (balance.is_balanced, balance.duplicate_rows) == (True, 1)
    # The interrupted runs completed no batch; the commit of the unrecorded one has its count.
    assert unmatched(lakehouse) == [0, 0, 1]


def test_late_rows_are_joined(filled_silver: Lakehouse, tmp_path: Path) -> None:
    """They are joined to the lookup table as it is now, and follow the rules about its columns."""
    lakehouse = filled_silver.copy(tmp_path / "lakehouse")
    lakehouse.land("activity", "2.json", *SECOND)
    lakehouse.fill("bronze")
    write_lookup_table(
        lakehouse, "ghost,Acme,2024-01-01", "nexus,Google,2015-01-01", "old,recalled,"
    )
    messages: list[str] = []
    replace(lakehouse.pipeline(), report=messages.append).run("silver")
    # One of them is late.
    assert " 9 rows, 2 rows unmatched in reference/devices.csv, " in "; ".join(messages)
    assert rows(lakehouse) == sorted(
        [
            *AFTER_FIRST,
            (at("09:00:00"), "ghost", "Acme", "2024-01-01"),
            (at("09:00:01"), "stranger", None, None),
            (at("16:00:00"), "ghost", "Acme", "2024-01-01"),
            (at("16:00:00"), "nexus", "Google", "2015-01-01"),
            (at("16:00:00"), "stranger", None, None),
        ],
        key=repr,
    )
    assert lakehouse.rows("quarantine.activity", "Recorded_At", "_failed_rules") == [
        (at("09:00:02"), ["recalled"]),
        (at("10:00:01"), ["recalled"]),
    ]
    audit = run_audit(lakehouse.config, everything=True)
    assert audit.is_balanced, audit
    assert audit.balances["activity"] == Balance(
        landed_lines=14,
        bronze_rows=14,
        silver_rows=3 + 5,
        quarantined_rows=1 + 1,
        duplicate_rows=1 + 3,
        late_rows=2,
        waiting_rows=0,
    )
    assert unmatched(lakehouse) == [1, 1 + 1]


@pytest.mark.slow  # test_late kills a batch at each write; the first one above keeps its table
@pytest.mark.parametrize("layer", ["quarantine", "silver"])
def test_late_rows_interrupted_at_each_table(
    filled_silver: Lakehouse, tmp_path: Path, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are completed with the lookup table that the batch started with, and counted once."""
    lakehouse = filled_silver.copy(tmp_path / "lakehouse")
    lakehouse.land("activity", "2.json", *SECOND)
    lakehouse.fill("bronze")

    def append(
        rows: DataFrame, table: StoragePath, options: Mapping[str, str], **more: Any
    ) -> bool:
        if table.parent.name == layer and options["txnAppId"].endswith("-late"):
            raise OSError("interrupted")
        return _append(rows, table, options, **more)

    with monkeypatch.context() as patched:
        patched.setattr(delta, "write_once", append)
        with pytest.raises(StreamError, match="interrupted"):
            lakehouse.fill("silver")
    assert len(rows(lakehouse)) == 3 + 3 + 2 * (layer == "quarantine")
    assert len(lakehouse.rows("quarantine.activity")) == 1
    write_lookup_table(lakehouse, "nexus,Other,", "ghost,Other,")
    lakehouse.fill("silver")
    unmatched_rows = [(at(time), "ghost", None, None) for time in ("09:00:00", "16:00:00")]
    unmatched_rows += [(at(time), "stranger", None, None) for time in ("09:00:01", "16:00:00")]
    nexus = (at("16:00:00"), "nexus", "LG", "2013-10-31")
    assert rows(lakehouse) == sorted([*AFTER_FIRST, *unmatched_rows, nexus], key=repr)
    assert lakehouse.rows("quarantine.activity", "Recorded_At") == [
        (at("09:00:02"),),
        (at("10:00:01"),),
    ]
    audit = run_audit(lakehouse.config)
    balance = audit.balances["activity"]
    assert (audit.is_balanced, balance.duplicate_rows, balance.late_rows) == (True, 1 + 3, 2)
    # The interrupted run recorded no batch; rows of the repeated batch are counted.
    assert unmatched(lakehouse) == [1, 0, 4]


def test_renamed_lookup_rule_keeps_its_rows(filled_silver: Lakehouse, tmp_path: Path) -> None:
    """Rows stay in quarantine under the old name of a rule.

    A second row with their keys is a duplicate. So no rule without a lookup column may have the
    old or new name of a lookup rule.
    """
    lakehouse, suite = copy_with_conf(filled_silver, tmp_path)
    suite.write_text(suite.read_text().replace('"recalled"', '"called_back"'))
    # The deleted copy is created again from the unchanged lookup table.
    shutil.rmtree(lakehouse.config.layout.checkpoint("silver.activity") / "reference")
    lakehouse.land("activity", "3.json", recording("10:00:01", "old"))
    lakehouse.fill("bronze", "silver")
    assert len(lakehouse.rows("quarantine.activity")) == 1
    assert run_audit(lakehouse.config).balances["activity"].duplicate_rows == 1 + 1
    renamed = suite.read_text()
    for changed in (
        renamed.replace("maker = 'recalled' AND x > 0", "x > 9"),
        renamed.replace('"missing_device"', '"recalled"'),
        renamed.replace('"missing_device"', '"no"').replace('"called_back"', '"missing_device"'),
    ):
        suite.write_text(changed)
        with pytest.raises(ConfigError, match=r"rule about columns of .* refresh silver.activity"):
            check_silver(lakehouse)


def test_lookup_rule_that_fails_is_named(filled_bronze: Lakehouse, tmp_path: Path) -> None:
    lakehouse, suite = copy_with_conf(filled_bronze, tmp_path)
    suite.write_text(suite.read_text().replace("AND x > 0", "AND 1 / (x - x) > 0"))
    message = (
        r"rule recalled of silver\.activity in .*activity\.json fails at a row.*DIVIDE_BY_ZERO"
    )
    with pytest.raises(StreamError, match=message):
        lakehouse.fill("silver")


def test_changed_lookup_is_refused(filled_silver: Lakehouse, tmp_path: Path) -> None:
    """Changed columns or keys of the lookup require a refresh."""
    lakehouse = filled_silver.copy(tmp_path / "lakehouse")
    changed = replace(DEVICES, on="user", columns={"maker": "string"})
    source = replace(lakehouse.config.sources["activity"], lookup=changed)
    lakehouse.config = replace(lakehouse.config, sources={"activity": source})
    message = "enrich.on: device -> user; column released: date -> none"
    with pytest.raises(ConfigError, match=message):
        check_silver(lakehouse)


@pytest.mark.slow
def test_stream_recovers_its_lookup(
    filled_silver: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream retries failed queries, and applies an edited rule after the interrupted batch."""
    lakehouse, suite = copy_with_conf(filled_silver, tmp_path)
    lookup_file, messages = lakehouse.root / DEVICES.file, list[str]()
    layers = ("bronze", "silver")
    stream = Stream(replace(lakehouse.pipeline(), report=messages.append), layers, "1 second")
    stream.start()
    try:
        moved = lookup_file.rename(lookup_file.with_suffix(".moved"))
        lakehouse.land("activity", "5.json", recording("17:00:00", "ghost"))
        step_until(stream, lambda: "silver.activity" in stream.failures)
        states = {query.query: query.state for query in query_statuses(lakehouse.config)}
        assert states["silver.activity"] == "failed"
        moved.rename(lookup_file)
        step_until(stream, lambda: newest(lakehouse) == at("17:00:00") and not stream.failures)
        suite.write_text(suite.read_text().replace("AND x > 0", "AND x > 9"))
        with monkeypatch.context() as patched:
            patched.setattr(delta, "write_once", append_silver_only)
            lakehouse.land(
                "activity", "6.json", recording("17:00:01", "old"), recording("17:00:01", "nexus")
            )
            step_until(stream, lambda: "silver.activity" in stream.failures)
        step_until(stream, lambda: "  silver.activity restarts with the current rules" in messages)
        lakehouse.land("activity", "7.json", recording("17:00:02", "old"))
        step_until(stream, lambda: newest(lakehouse) == at("17:00:02"))
    finally:
        stream.stop()
    assert (stream.failures, "  silver.activity is running again" in messages) == ({}, True)
    assert newest(lakehouse) == at("17:00:02")
    quarantined = lakehouse.rows("quarantine.activity", "Recorded_At")
    assert quarantined == [(at(time),) for time in ("10:00:01", "17:00:01")]
    assert run_audit(lakehouse.config).is_balanced


def newest(lakehouse: Lakehouse) -> str:
    """Return the latest event time of silver."""
    return str(lakehouse.rows("silver.activity", "recorded_at")[-1][0])


def step_until(stream: Stream, condition: Callable[[], bool]) -> None:
    """Step the stream until a condition holds."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, stream.failures
        stream.step()
        time.sleep(0.2)


def rows(lakehouse: Lakehouse) -> list[tuple[Any, ...]]:
    """Return silver's rows, dates as strings."""
    silver_rows = lakehouse.rows("silver.activity", *SILVER)
    return [(*row[:3], str(row[3]) if row[3] else None) for row in silver_rows]


def unmatched(lakehouse: Lakehouse) -> list[int | None]:
    """Return the unmatched counts of silver's runs in ops.runs, in order."""
    runs = lakehouse.rows("ops.runs", "number", "query", "unmatched_rows")
    return [count for _, query, count in sorted(runs) if query == "silver.activity"]


_append = delta.write_once


def append_silver_only(
    rows: DataFrame, table: Path, options: Mapping[str, str], **more: Any
) -> bool:
    """Run `delta.write_once`, but fail before its second table."""
    if table.parent.name == "quarantine":
        raise OSError("interrupted")
    return _append(rows, StoragePath(table), options, **more)


TYPES = {"number": "long", "maker": "string", "released": "date", "price": "double"}
CSV_HEADER = "maker,number,other,released,price\n"


def test_lookup_csv_file(spark: SparkSession, tmp_path: Path) -> None:
    file = StoragePath(tmp_path / "devices.csv")
    file.local.write_bytes(
        b"\xef\xbb\xbf\n"
        + CSV_HEADER.encode()
        + b'LG,7,x,2013-10-31,1e2\r\n\n"A, ""B""",8,x,,\r\nstranger,,x,,\nstranger,,x,,\n'
    )
    table = open_lookup_table(spark, file, "devices.csv", TYPES)
    rows = table.rows()
    assert rows.dtypes == [
        ("number", "bigint"),
        ("maker", "string"),
        ("released", "date"),
        ("price", "double"),
    ]
    assert sorted(map(tuple, rows.collect())) == [
        (7, "LG", date(2013, 10, 31), 100.0),
        (8, 'A, "B"', None, None),
    ]
    assert open_lookup_table(spark, file, "devices.csv", TYPES).version == table.version
    file.local.write_text(CSV_HEADER)
    reopened = open_lookup_table(spark, file, "devices.csv", TYPES)
    assert reopened.version != table.version
    assert reopened.rows().collect() == []


def test_lookup_csv_file_with_decimals(spark: SparkSession, tmp_path: Path) -> None:
    file, types = StoragePath(tmp_path / "tax.csv"), {"number": "long", "price": "decimal(4,2)"}
    file.local.write_text("number,price\n1,1.10\n2,\n")
    rows = open_lookup_table(spark, file, "tax.csv", types).rows().collect()
    assert sorted(map(tuple, rows)) == [(1, Decimal("1.10")), (2, None)]
    file.local.write_text("number,price\n1,1.105\n")
    with pytest.raises(MedallionError, match=r"price '1.105' is not a decimal\(4,2\)"):
        open_lookup_table(spark, file, "tax.csv", types).rows()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CSV_HEADER + "LG,7,,,\nLG,8,,,\nLG,7,,,\n", "has 2 rows with number '7'"),
        (
            "maker,number,released\n",
            r"must have the column price once; its columns are: maker, number, released",
        ),
        ("maker,number,released,price,maker\n", "must have the column maker once"),
        ("", "must have the column number once; its columns are: none"),
        (CSV_HEADER + "LG,7,,2013-10-31,\nLG,8,,soon,\n", "released 'soon' is not a date"),
        (CSV_HEADER + "LG,7,,2013-02-29,\n", "released '2013-02-29' is not a date"),
        (CSV_HEADER + "LG,7.5,,,\n", "number '7.5' is not a long"),
        (CSV_HEADER + "LG,9223372036854775808,,,\n", "number '9223372036854775808' is not a long"),
        (CSV_HEADER + "LG,7,,,dear\n", "price 'dear' is not a double"),
        (CSV_HEADER + "LG,7,,\n", "line 2 does not have the 5 fields of the header"),
        (CSV_HEADER + "LG,7,,,,\n", "line 2 does not have the 5 fields of the header"),
        (CSV_HEADER + 'LG,7,"x\n', "cannot be read as CSV"),
        (CSV_HEADER + "L\xe4,7,,,\n", "not UTF-8"),
    ],
)
def test_lookup_csv_is_invalid(
    spark: SparkSession, tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "devices.csv"
    file.write_bytes(content.encode("latin-1"))
    with pytest.raises(MedallionError, match=f"^devices.csv.*{message}"):
        open_lookup_table(spark, StoragePath(file), "devices.csv", TYPES).rows()


def test_lookup_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    columns = "arrow_cast(7, 'Int32') as number, 'LG' as maker, 'x' as other"
    sql.write(tmp_path, "reference.devices", f"select {columns}, 1.5 as price")
    folder = StoragePath(tmp_path / "reference/devices")
    types = {"number": "long", "maker": "string", "price": "double"}
    rows = open_lookup_table(spark, folder, "reference/devices", types).rows()
    assert dict(rows.dtypes)["number"] == "bigint"
    assert list(map(tuple, rows.collect())) == [(7, "LG", 1.5)]
    for changed, message in (
        ({"maker": "long"}, "maker 'LG' is not a long"),
        ({"maker_id": "long"}, "must have the column maker_id once; its columns are: number"),
    ):
        with pytest.raises(MedallionError, match=f"^reference/devices:? {message}"):
            open_lookup_table(spark, folder, "reference/devices", types | changed).rows()
    shutil.copytree(folder, tmp_path / "devices%41")
    with pytest.raises(MedallionError, match=r"^devices: Delta tables cannot be stored"):
        open_lookup_table(spark, StoragePath(tmp_path / "devices%41"), "devices", types)


def test_lookup_table_is_missing(tmp_path: Path, spark: SparkSession) -> None:
    for name, message in (("devices.csv", "no such file"), (".", "not a Delta table")):
        with pytest.raises(MedallionError, match=message):
            open_lookup_table(spark, StoragePath(tmp_path / name), name, TYPES)
