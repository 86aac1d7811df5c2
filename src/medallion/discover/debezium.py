"""Debezium's envelopes in sampled rows: the changed rows, their types and their order.

Source: Debezium's documentation of its connectors' data types and `source`, and of Kafka Connect.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from medallion.config.tables import DEBEZIUM_CDC
from medallion.discover.columns import Row

# By the end of the name of a type: SQL of a value, as a template, and its type in silver.
_TYPES = {
    "Date": ("date_from_unix_date(cast({} as int))", "date"),
    "Timestamp": ("timestamp_millis({})", "timestamp"),
    "MicroTimestamp": ("timestamp_micros({})", "timestamp"),
    "NanoTimestamp": ("timestamp_micros({} div 1000)", "timestamp"),
    "ZonedTimestamp": ("cast({} as timestamp)", "timestamp"),
}
# Numbers since midnight, and structs of bytes, which no type of a column holds.
_CODED = ("Time", "MicroTime", "NanoTime", "VariableScaleDecimal")
# A decimal is a number in two's complement, as Base64: `conv` reads 8 bytes, and fails at more. All
# bits of a longer negative one are turned, so that no step exceeds 38 digits.
_SHORT = "conv(concat(repeat(if(h >= '8', 'F', '0'), 16 - length(h)), h), 16, -10)"
_BITS = "if(h >= '8', translate(h, '0123456789ABCDEF', 'FEDCBA9876543210'), h)"
_HIGH, _LOW = (f"cast(conv({side}(n, 16), 16, 10) as decimal(20, 0))" for side in ("left", "right"))
_LONG = (
    f"transform(array(lpad({_BITS}, 32, '0')), n -> cast(if(h >= '8', -1, 0) + if(h >= '8', -1, 1)"
    f" * ({_HIGH} * 18446744073709551616 + {_LOW}) as string))[0]"
)


def envelopes(rows: Sequence[Row]) -> list[Row]:
    """Return the envelopes; other rows, such as heartbeats, are left out."""
    payloads = (p if isinstance(p := row.get("payload"), dict) else row for row in rows)
    found = (each for each in payloads if {"after", "before"} & {*each} and each.get("op"))
    return [each for each in found if str(each["op"]) in "crudtm"]


def changed_row(envelope: Row) -> Row:
    """Return the row after a change, or before a delete; empty if it has none."""
    row = envelope.get("before" if envelope["op"] == "d" else "after")
    return row if isinstance(row, dict) else {}


def schema_columns(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """Return the columns of the row in the schema beside the payload; none without one."""
    schemas = (schema for row in rows if isinstance(schema := row.get("schema"), dict))
    sides = [side for side in next(schemas, {}).get("fields", ()) if side.get("fields")]
    return next((s["fields"] for s in sides if s["field"] in ("after", "before")), [])


def decode(column: Mapping[str, Any]) -> tuple[str, str]:
    """Return SQL, as a template, and type of a column of a schema.

    The type is empty if the values are of one of JSON. A decimal is exact, or fails if it has above
    38 digits.
    """
    name = (column.get("name") or "").rpartition(".")[2]
    if name != "Decimal":
        is_coded = column.get("type") == "bytes" or name in _CODED
        return _TYPES.get(name, ("{}", f"{name or 'bytes'}, as written" if is_coded else ""))
    parameters = {"scale": 0, "connect.decimal.precision": 38, **(column.get("parameters") or {})}
    scale, precision = (int(parameters[key]) for key in ("scale", "connect.decimal.precision"))
    if not 0 <= scale <= precision <= 38:
        return "{}", f"decimal({precision}, {scale}), as written, because Spark has no such type"
    number = _SHORT if precision <= 18 else _LONG
    digits = f"transform(array(hex(unbase64({{}}))), h -> {number})[0]"
    type_ = f"decimal({precision}, {scale})"
    return f"cast(concat({digits}, 'E-{scale}') as {type_})", type_


def change_order(origins: Sequence[Row]) -> tuple[str, str]:
    """Return SQL of `sequence_by`, with its reason, by the fields `source` of envelopes."""
    names = {name for row in origins for name, value in row.items() if value is not None}
    is_position = bool(names & {"lsn", "file"})
    reason = "the position in the database's log" if is_position else "the time of the change"
    return DEBEZIUM_CDC["sequence_by"], reason
