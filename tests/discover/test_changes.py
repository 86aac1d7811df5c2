"""Change data as its writers document it, and the entry that `medallion add` proposes for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.config.model import SourceConfig
from medallion.discover import changes, entry
from medallion.discover.entry import NewSource
from medallion.discover.files import input_files
from tests.support import PROJECT

CASES = PROJECT / "tests/data/cases"
BY_FILE = (
    "if(regexp_extract(_source_file, '[^/]+$', 0) like 'LOAD%', '', "
    "regexp_extract(_source_file, '[^/]+$', 0))"
)
LOG = {"_ab_cdc_updated_at": "2026-05-01T10:00:00Z", "_ab_cdc_deleted_at": None}
RAW = {"_airbyte_raw_id": "26d73cde-7eb1", "_airbyte_extracted_at": "1622135805000"}


def lines(*rows: Mapping[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def envelope(after: Any, op: str = "c", before: Any = None, **source: Any) -> dict[str, Any]:
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1777629600100}


# By writer: files; then format, silver, keys, sequence_by and apply_as_deletes of the entry.
Proposal = tuple[str, dict[str, str], tuple[str, ...], str, str | None]
WRITERS: dict[str, tuple[dict[str, str], Proposal]] = {
    "DMS with a time": (
        {
            "LOAD00000001.csv": "id,name,ts\n1,Ada,2026-05-01 10:00:00.000000\n",
            "20260502-010101123.csv": "Op,id,name,ts\nU,1,Bo,2026-05-02 01:00:00.000000\n"
            "D,1,Bo,2026-05-02 01:00:05.000000\n",
        },
        ("csv", {"id": "id", "name": "name", "ts": "ts"}, ("id",), "ts", "Op = 'D'"),
    ),
    "DMS without a time": (
        {
            "LOAD00000001.csv": "id,born\n1,1990-05-01\n",
            "20260502-010101123.csv": "Op,id,born\nU,1,1991-05-01\nD,1,1991-05-01\n",
        },
        ("csv", {"id": "id", "born": "born"}, ("id",), BY_FILE, "Op = 'D'"),
    ),
    "DMS without a header": (
        {
            "20141029-1134010000.csv": "I,101,Smith,Bob,New York\nU,101,Smith,Bob,Dallas\n"
            "D,101,Smith,Bob,Dallas\n"
        },
        (
            "csv",
            {f"column_{n}": f"column_{n}" for n in range(2, 6)},
            ("column_2",),
            BY_FILE,
            "Op = 'D'",
        ),
    ),
    "Fivetran": (
        {
            "a.csv": "order_id,customer_id,_fivetran_synced\n1,7,2026-05-01T10:00:00.123Z\n"
            "2,7,2026-05-01T10:00:00.124Z\n1,7,2026-05-02T10:00:00.123Z\n"
        },
        (
            *("csv", {"order_id": "order_id", "customer_id": "customer_id"}, ("order_id",)),
            *("_fivetran_synced", "_fivetran_deleted"),
        ),
    ),
    "Airbyte in columns": (
        {
            "a.csv": "_airbyte_raw_id,_airbyte_extracted_at,id,_ab_cdc_log_pos,_ab_cdc_updated_at\n"
            "a,1622135805000,1,99,2026-05-01T10:00:00Z\n"
            "b,1622135805000,1,100,2026-05-01T10:00:00Z\n"
        },
        (
            *("csv", {"id": "id"}, ("id",)),
            *("_airbyte_extracted_at", "_ab_cdc_deleted_at is not null"),
        ),
    ),
    "Airbyte's raw lines": (
        {
            "a.jsonl": lines(
                *(
                    {**RAW, "_airbyte_data": {"user_id": 1, "_ab_cdc_lsn": lsn, **LOG}}
                    for lsn in (9, 10)
                )
            )
        },
        (
            *("json", {"user_id": "_airbyte_data.user_id"}, ("user_id",)),
            "_airbyte_extracted_at",
            "_airbyte_data._ab_cdc_deleted_at is not null",
        ),
    ),
    "Airbyte without a log": (
        {"a.jsonl": lines({**RAW, "_airbyte_data": {"id": 1}})},
        ("json", {"id": "_airbyte_data.id"}, ("id",), "_airbyte_extracted_at", None),
    ),
    "Debezium of PostgreSQL": (
        {
            "a.json": lines(
                {"payload": envelope({"id": 1, "order": "a"}, lsn=1, ts_ms=1777629600000)},
                {"payload": envelope(None, "d", {"id": 1}, lsn=2, ts_ms=1777629600000)},
            )
        },
        (
            *("debezium", {"id": "id", "order": "order"}, ("id",)),
            *("coalesce(_lsn, _ts_ms)", "_op = 'd'"),
        ),
    ),
    "Debezium of MySQL": (
        {
            "a.json": lines(
                envelope({"order_id": 1, "line_no": 1, "sku": "a"}, file="bin.3", pos=4, row=0),
                envelope({"order_id": 1, "line_no": 2, "sku": "a"}, file="bin.3", pos=4, row=1),
            )
        },
        (
            "debezium",
            {"order_id": "order_id", "line_no": "line_no", "sku": "sku"},
            ("order_id", "line_no"),
            *("coalesce(_lsn, _ts_ms)", "_op = 'd'"),
        ),
    ),
    "Debezium in and beside a payload": (
        {
            "a.json": lines(
                {"payload": envelope({"id": 1}, file="bin.3", pos=4)},
                envelope({"id": 1}, "u", file="bin.3", pos=5),
            )
        },
        (
            *("debezium", {"id": "id"}, ("id",)),
            *("coalesce(_lsn, _ts_ms)", "_op = 'd'"),
        ),
    ),
    "Debezium without its envelope": (
        {
            "a.json": lines(
                {"id": 1, "city": "Bonn", "__deleted": "false", "__op": "c", "__lsn": 7},
                {"id": 1, "city": None, "__deleted": "true", "__op": "d", "__lsn": 8},
            )
        },
        (
            *("json", {"id": "id", "city": "city"}, ("id",)),
            *("__lsn", "__deleted = 'true'"),
        ),
    ),
    "a column of operations": (
        {
            "a.json": lines(
                {"id": 1, "status": "new", "updated_at": "2026-05-01T10:00:00Z", "op": "c"},
                {"id": 1, "status": "paid", "updated_at": "2026-05-01T11:00:00Z", "op": "u"},
            )
        },
        (
            *("json", {"id": "id", "status": "status", "updated_at": "updated_at"}, ("id",)),
            *("updated_at", "lower(op) in ('d', 'delete')"),
        ),
    ),
    "a key that repeats": (
        {
            "a.csv": "order_id,customer_id,status,created_at,updated_at\n"
            "1,7,new,2026-05-01T10:00:00Z,2026-05-01T10:00:00Z\n"
            "2,7,new,2026-05-01T10:00:00Z,2026-05-01T11:00:00Z\n"
            "1,7,paid,2026-05-01T10:00:00Z,2026-05-01T12:00:00Z\n"
        },
        (
            "csv",
            {
                name: name
                for name in ("order_id", "customer_id", "status", "created_at", "updated_at")
            },
            *(("order_id",), "updated_at", None),
        ),
    ),
}


def inspect(folder: Path, files: Mapping[str, str]) -> NewSource:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return entry.inspect_files("new", input_files([str(folder)]))


def added(source: NewSource, conf: Path) -> SourceConfig:
    """Write the entry as `medallion add` does, and return what is read from it."""
    (conf / "pipeline.yaml").write_text(
        "sources:\n  other: {silver: {at: at}, event_time: at, keys: [at]}\n"
    )
    environ = {"MEDALLION_CONF": str(conf), "MEDALLION_HOME": str(conf / "lake")}
    config = load(environ, conf)
    entry.prepare_write(config, source, entry.new_entries(source, config))()
    loaded = load(environ, conf)
    assert loaded.gold["new_total"].tables == ("silver.new",)
    return loaded.sources["new"]


@pytest.mark.parametrize("name", WRITERS)
def test_proposal_for_a_writer(name: str, tmp_path: Path) -> None:
    files, (file_format, silver, keys, order, deletes) = WRITERS[name]
    source = inspect(tmp_path / "in", files)
    assert source.description.format == file_format
    loaded = added(source, tmp_path)
    assert loaded.cdc
    assert (loaded.silver, loaded.keys) == (silver, keys)
    assert (loaded.cdc.sequence_by, loaded.cdc.apply_as_deletes) == (order, deletes)
    assert loaded.event_time == ""
    assert bool(source.description.choices) == (name == "DMS without a header")


def test_decimals_days_and_times_are_decoded(tmp_path: Path) -> None:
    folder = CASES / "30-debezium-decimals/night1/db30"
    silver = added(entry.inspect_files("new", input_files([str(folder)])), tmp_path).silver
    assert silver["id"] == "id"
    assert silver["day"] == "date_from_unix_date(cast(day as int))"
    assert silver["price"].startswith("cast(concat(transform(array(hex(unbase64(price)))")
    assert silver["price"].endswith("'E-2') as decimal(10, 2))")


@pytest.mark.parametrize(
    ("schema", "sql", "comment"),
    [
        ({"type": "int64", "name": "io.debezium.time.Timestamp"}, "timestamp_millis(x)", "timest"),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "timestamp_micros(x)", "t"),
        (
            {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
            *("timestamp_micros(x div 1000)", "timestamp"),
        ),
        (
            {"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"},
            *("timestamp_millis(x)", "timestamp"),
        ),
        (
            {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
            *("cast(x as timestamp)", "timestamp"),
        ),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, "x", "MicroTime, as written"),
        ({"type": "bytes"}, "x", "bytes, as written"),
        ({"type": "int64", "optional": True}, "x", "long"),
        ({"type": "string", "name": "io.debezium.data.Json"}, "x", "long"),
        (
            {
                **{"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"},
                "parameters": {"scale": "3", "connect.decimal.precision": "60"},
            },
            *("x", "decimal(60, 3), as written"),
        ),
    ],
)
def test_types_of_debezium(tmp_path: Path, schema: dict[str, Any], sql: str, comment: str) -> None:
    fields = [{"field": "id", "type": "int32"}, {"field": "x", **schema}]
    side = {"field": "after", "type": "struct", "fields": fields}
    row = {"schema": {"type": "struct", "fields": [side]}, "payload": envelope({"id": 1, "x": 5})}
    source = inspect(tmp_path / "in", {"a.json": lines(row, row)})
    assert [column.sql for column in source.columns] == ["id", sql]
    assert source.columns[1].type.startswith(comment)


def test_message_without_a_schema_says_so(tmp_path: Path) -> None:
    source = inspect(tmp_path / "in", {"a.json": lines(envelope({"id": 1, "x": "MDk="}))})
    assert "no schema beside them" in source.description.reasons[1]


@pytest.mark.parametrize(
    ("name", "keys", "choices"),
    [
        ("line_no", ["order_id", "line_no"], []),
        ("customer_id", ["order_id"], ["keys: [order_id], or [order_id, customer_id]"]),
    ],
)
def test_keys_of_several_columns(
    tmp_path: Path, name: str, keys: list[str], choices: list[str]
) -> None:
    """Another number in rows of one order may be part of the key, or a value that changed."""
    text = f"order_id,{name},_fivetran_synced\n" + "".join(
        f"{order},{other},2026-05-01T10:00:0{order + other}Z\n"
        for order in (1, 2, 3)
        for other in (1, 2)
    )
    source = inspect(tmp_path / "in", {"a.csv": text})
    assert (source.key_names, source.description.choices) == (keys, choices)


@pytest.mark.parametrize(
    ("name", "count"), [("LOAD0000000A.csv", 1), ("LOADED.csv", 0), ("LOAD00000001.csv.gz", 1)]
)
def test_full_load_of_dms_alone_is_a_choice(tmp_path: Path, name: str, count: int) -> None:
    data = b"id,name\n1,Ada\n2,Bo\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    choices = entry.inspect_files("new", input_files([str(tmp_path)])).description.choices
    assert len(choices) == count
    assert all("add it with a file of changes" in choice for choice in choices)


def inserted(required: str, *rows: dict[str, Any]) -> str:
    """Return messages of inserts, with a schema in which some fields are never null."""
    fields = [{"field": n, "type": "string", "optional": n not in required} for n in rows[0]]
    side = {"field": "after", "type": "struct", "fields": fields}
    schema = {"type": "struct", "fields": [side]}
    return lines(*({"schema": schema, "payload": envelope(row)} for row in rows))


@pytest.mark.parametrize("required", ["", "country code"])
def test_rows_inserted_with_one_value_need_a_longer_key(tmp_path: Path, required: str) -> None:
    """`name` is as different as `code`, but may be null."""
    pairs = (("DE", "x", 1), ("DE", "y", 2), ("FR", "x", 1), ("FR", "y", 2))
    rows = [{"country": c, "name": n, "code": k, "size": 7} for c, n, k in pairs]
    source = inspect(tmp_path / "in", {"a.json": inserted(required, *rows, rows[0])})
    keys = ["country", "code" if required else "name"]
    assert source.key_names == keys
    choice = f"keys: [{', '.join(keys)}], as rows with one country were inserted"
    assert source.description.choices[-1] == choice


def test_row_that_changed_needs_no_longer_key(tmp_path: Path) -> None:
    changes = (envelope({"id": 1, "name": "a"}), envelope({"id": 1, "name": "b"}, "u"))
    source = inspect(tmp_path / "in", {"a.json": lines(*changes, envelope({"id": 1, "name": "c"}))})
    assert (source.key_names, source.description.choices) == (["id"], [])


@pytest.mark.parametrize("line_break", ["\n", "\r\n"])
@pytest.mark.parametrize("count", [1, 3])
def test_tombstones_are_lines(tmp_path: Path, count: int, line_break: str) -> None:
    """A message without a value is a line with null."""
    messages = [json.dumps(envelope({"id": number})) for number in range(count)]
    text = line_break.join(["null", *(line for m in messages for line in (m, "null", "null"))])
    source = inspect(tmp_path / "in", {"a.json": text})
    assert (source.description.format, source.key_names) == ("debezium", ["id"])
    assert "multi_line" not in source.description.settings


def test_events_of_a_device_stay_events(tmp_path: Path) -> None:
    text = "device_id,temp,ts\n1,20,2026-05-01T10:00:00Z\n1,22,2026-05-01T10:01:00Z\n"
    source = inspect(tmp_path / "in", {"a.csv": text})
    assert (source.has_changes, source.event_time) == (False, "ts")
    reason = "device_id repeats with other values of temp, ts, but no time is one of updates"
    assert source.description.reasons[-1].startswith(reason)


def test_equal_rows_are_no_changes(tmp_path: Path) -> None:
    row = "1,new,2026-05-01T10:00:00Z\n"
    source = inspect(tmp_path / "in", {"a.csv": f"order_id,status,updated_at\n{row}{row}"})
    assert not source.has_changes
    assert len(source.description.reasons) == 1


@pytest.mark.parametrize("operation", ["opened", "I,x"])
def test_other_columns_named_op(tmp_path: Path, operation: str) -> None:
    rows = ({"id": n, "op": each} for n, each in enumerate(operation.split(",")))
    assert inspect(tmp_path / "in", {"a.json": lines(*rows)}).has_changes is False


def test_sample_of_debezium(tmp_path: Path) -> None:
    """Ten customers, each with c, u, u and d."""
    file = Path(__file__).with_name("samples") / "debezium-customers.json"
    source = entry.inspect_files("new", input_files([str(file)]))
    assert source.description.choices == []
    loaded = added(source, tmp_path)
    assert (loaded.silver, loaded.keys) == ({"id": "id", "name": "name"}, ("id",))


def test_one_message_is_not_its_schema(tmp_path: Path) -> None:
    """Its largest array of objects is that of the columns."""
    text = (CASES / "30-debezium-decimals/night1/db30/a.json").read_text().splitlines()[0]
    source = inspect(tmp_path / "in", {"a.json": text})
    assert (source.description.format, source.key_names) == ("debezium", ["id"])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"ts_ms": 1, "db": "shop", "lsn": None}, "the time of the change"),
        ({"ts_ms": 1, "lsn": 24023128}, "the position in the database's log"),
        ({"ts_ms": 1, "file": "mysql-bin.000003"}, "the position in the database's log"),
    ],
)
def test_order_of_changes_is_said(source: dict[str, Any], reason: str) -> None:
    assert changes._change_order([source])[1] == reason
