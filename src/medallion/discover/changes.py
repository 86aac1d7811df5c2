"""Change records in sampled rows: the writer, and what orders and identifies the changes.

The layouts are those of the writers' documentation: Debezium, Airbyte (metadata fields,
CDC), Fivetran (system columns) and AWS DMS (Amazon S3 as a target).
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from medallion.config.tables import DEBEZIUM_CDC
from medallion.discover.columns import KEY_NAME, Column, Row
from medallion.storage.table_specs import SOURCE_FILE, SOURCE_MODIFIED_AT

_OPERATIONS = {*"ciurd", "create", "insert", "update", "upsert", "read", "delete"}
_OPERATION_NAMES = ("op", "_op", "__op", "cdc_operation", "change_type")
_UPDATE_NAME = re.compile("updat|modif|chang")
_PART_NAME = re.compile("(line|item|pos|row)_?(no|nr|number)$")  # part of a key, with another
_ORDER_NAME = re.compile("updat|modif|chang|(^|_)(ts|timestamp|commit|dms|cdc)(_|$)")
_AIRBYTE_TIMES = ("_airbyte_extracted_at", "_airbyte_emitted_at")
# Fields that Debezium adds to a row without its envelope; the first that all rows have.
_FLATTENED_ORDERS = ("__lsn", "__source_lsn", "__source_ts_ms", "__ts_ms")
_FIVETRAN = ("_fivetran_synced", "_fivetran_deleted")
Columns = Sequence[Column]


@dataclass(frozen=True)
class ChangeRecords:
    """Changes of the rows of a table, in the layout of their writer.

    Attributes:
        reason: the writer, and how it is recognized; or why the rows are none.
        rows: the changed rows.
        order: SQL of `sequence_by`; empty if rows are events.
        order_reason: why; if empty, a column of the row that orders the changes is better.
        deletes: SQL of `apply_as_deletes`; empty if no change deletes.
        template: that of `Column` for the fields of the row.
        technical: fields of the row that are no columns of silver.
        format: that of the source, if it is not that of its files.
        types: SQL, as a template, and type of the columns that are decoded, by name.
        inserts: whether each row was inserted; empty if that is unknown.
        required: the fields that are never null; empty if that is unknown.
        unavailable: `unavailable_value`, if it is not a default.
    """

    reason: str
    rows: Sequence[Row]
    order: str = ""
    order_reason: str = ""
    deletes: str = ""
    template: str = ""
    technical: Collection[str] = ()
    format: str = ""
    types: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    inserts: Sequence[bool] = ()
    required: Collection[str] = ()
    unavailable: str = ""

    @property
    def taken(self) -> list[str]:
        """Names in its SQL, which silver's columns of fields around the row must not have."""
        sql = f"{self.order} {self.deletes}" if self.template else ""
        return re.findall(r"(?<![\w.'])[a-z]\w*", sql)

    def place(self, column: Column) -> Column:
        """Return a column of the changed row with its SQL and type."""
        template, type_ = self.types.get(column.path[0], (self.template, ""))
        return replace(column, type=type_ or column.type, template=template)


def recognize(rows: Sequence[Row]) -> ChangeRecords:
    """Return the change records that rows are by their fields, or events."""
    recognizers = (_debezium, _airbyte, _fivetran, _flattened, _with_operations)
    found = (records for each in recognizers if (records := each(rows)))
    return next(found, ChangeRecords("", rows))


def _filled(rows: Iterable[Row]) -> dict[str, int]:
    """Return how many rows have a value, for each field that has any."""
    return Counter(n for row in rows for n, v in row.items() if v not in (None, ""))


def _debezium(rows: Sequence[Row]) -> ChangeRecords | None:
    envelopes = [each for each in _envelopes(rows) if _changed_row(each)]
    changed = [*map(_changed_row, envelopes)]
    if not changed or 2 * len(envelopes) < len(rows):
        return None
    schema, reason = _schema_columns(rows), "Debezium: op, before and after"
    if not schema:
        reason += "; no schema beside them, so decimals, days and times stay as written"
    origins = [origin for each in envelopes if isinstance(origin := each.get("source"), dict)]
    order = (*_change_order(origins), DEBEZIUM_CDC["apply_as_deletes"])
    types = {column["field"]: _decode(column) for column in schema}
    required = [column["field"] for column in schema if not column.get("optional", True)]
    inserts = [each["op"] in "cr" for each in envelopes]
    given = reason, changed, *order, "{}", (), "debezium"
    return ChangeRecords(*given, types, inserts, required)


def _airbyte(rows: Sequence[Row]) -> ChangeRecords | None:
    outer, prefix, inner = _filled(rows), "", list(rows)
    if "_airbyte_data" in outer:
        inner, prefix = [row.get("_airbyte_data") or {} for row in rows], "_airbyte_data."
        if not all(isinstance(each, dict) for each in inner):
            return None
    order = next((name for name in _AIRBYTE_TIMES if name in outer), "")
    if not order:
        return None
    why = "the time of extraction; rows of one time are in the order of the log"
    has_deletes = any("_ab_cdc_updated_at" in row for row in inner)
    deletes = f"{prefix}_ab_cdc_deleted_at is not null" if has_deletes else ""
    technical = {n for row in inner for n in row if n.startswith(("_airbyte_", "_ab_cdc_"))}
    template = prefix and f"{prefix}{{}}"
    reason = "Airbyte: _airbyte_... and _ab_cdc_..."
    return ChangeRecords(reason, inner, order, why, deletes, template, technical)


def _fivetran(rows: Sequence[Row]) -> ChangeRecords | None:
    names = _filled(rows)
    if "_fivetran_synced" not in names or "_fivetran_start" in names:  # a row for each version
        return None
    reason, why = "Fivetran: _fivetran_synced", "the time of the sync"
    return ChangeRecords(reason, rows, _FIVETRAN[0], why, _FIVETRAN[1], technical=_FIVETRAN)


def _flattened(rows: Sequence[Row]) -> ChangeRecords | None:
    """Return rows of Debezium's ExtractNewRecordState, which rewrites deletes."""
    filled = _filled(rows)
    if "__deleted" not in filled:
        return None
    order = next((name for name in _FLATTENED_ORDERS if filled.get(name) == len(rows)), "")
    given = order or SOURCE_MODIFIED_AT, "the place or time of the change" if order else ""
    records = ChangeRecords("Debezium without its envelope: __deleted", rows, *given)
    technical = [name for name in filled if name.startswith("__")]
    deletes, unavailable = "__deleted = 'true'", DEBEZIUM_CDC["unavailable_value"]
    return replace(records, deletes=deletes, technical=technical, unavailable=unavailable)


def _with_operations(rows: Sequence[Row]) -> ChangeRecords | None:
    """Return rows with a column of operations, such as `Op` of AWS DMS."""
    name = next((name for name in _filled(rows) if name.lower() in _OPERATION_NAMES), "")
    values = {str(row[name]) for row in rows if row.get(name)}
    if not values or not {*map(str.lower, values)} <= _OPERATIONS:
        return None
    if name.lower() != "op" or not values <= {"I", "U", "D"}:
        reason, deletes = f"{name} is {sorted(values)}", f"lower({name}) in ('d', 'delete')"
        return ChangeRecords(reason, rows, SOURCE_MODIFIED_AT, "", deletes, "", (name,))
    file = f"regexp_extract({SOURCE_FILE}, '[^/]+$', 0)"  # its name is a time, or LOAD...
    order, reason = f"if({file} like 'LOAD%', '', {file})", f"AWS DMS: {name} is I, U or D"
    return ChangeRecords(reason, rows, order, "", f"{name} = 'D'", "", (name,))


def with_repeated_key(events: ChangeRecords, columns: Columns, times: Columns) -> ChangeRecords:
    """Return events as change records if a key repeats with other values and times of updates.

    Other times may be those of a sensor's events: then there is only a reason.
    """
    keys = _named_keys(columns)[:1]
    if not keys or not (others := _varying(keys, columns)):
        return events
    reason = f"{keys[0].name} repeats with other values of {', '.join(c.name for c in others[:3])}"
    if any(_UPDATE_NAME.search(column.words) for column in times):
        return replace(events, reason=f"{reason}: change records", order=SOURCE_MODIFIED_AT)
    return replace(events, reason=f"{reason}, but no time is one of updates: events, without cdc")


def key_columns(columns: Columns, records: ChangeRecords) -> tuple[list[Column], list[str]]:
    """Return the columns that identify the rows of the table, and open choices."""
    named, choices = _named_keys(columns), list[str]()
    if not named:
        named = [next((column for column in columns if None not in column.cells), columns[0])]
        choices.append(f"keys: [{named[0].name}] is a guess, as no column is named like a key")
    others = _varying(named[:1], named)
    keys = named[:1] + [column for column in others if _PART_NAME.search(column.words)][:1]
    possible = [column for column in columns if None not in column.cells]
    possible.sort(key=lambda column: column.path[0] not in records.required)
    before = _names(keys)
    while _has_equal_inserts(keys, records) and (more := _varying(keys, [*others, *possible])):
        fitting = (c for c in more if not _has_equal_inserts([*keys, c], records))
        keys.append(next(fitting, more[0]))
    if _names(keys) != before:
        choices.append(f"keys: [{_names(keys)}], as rows with one {before} were inserted")
    longer = (_names([*keys, column]) for column in others if column not in keys)
    return keys, [*choices, *(f"keys: [{_names(keys)}], or [{each}]" for each in longer)]


def _names(columns: Columns) -> str:
    return ", ".join(column.name for column in columns)


def _has_equal_inserts(keys: Columns, records: ChangeRecords) -> bool:
    """Return whether different rows with one key were inserted, and none of them changed."""
    cells = zip(*(map(str, column.cells) for column in keys), strict=True)
    rows = [*zip(cells, map(str, records.rows), records.inserts, strict=False)]
    changed = {key for key, _, is_insert in rows if not is_insert}
    inserted = {(key, row) for key, row, _ in rows if key not in changed}
    return len(inserted) > len({key for key, _ in inserted})


def order_sql(records: ChangeRecords, keys: Columns, times: Columns) -> tuple[str, str]:
    """Return SQL of `sequence_by`, and its reason."""
    if records.order_reason:
        return records.order, records.order_reason
    filled = [column for column in times if None not in column.cells and column not in keys]
    columns = [column for column in filled if _ORDER_NAME.search(column.words)]
    if len(_distinct(keys)) < len(records.rows):
        # A doubtful time is not better than the names of files.
        doubtful = filled if records.order == SOURCE_MODIFIED_AT else []
        columns = _varying(keys, dict.fromkeys([*columns, *doubtful]))
    if not columns:
        return records.order, "the file, because no column has times that differ in a row's changes"
    names = [column.name for column in columns[:4]]
    return names[0], "; or ".join(["differs in a row's changes", *names[1:]])


def _named_keys(columns: Columns) -> list[Column]:
    """Return the columns named like keys that are never null, the one with most values first."""
    named = [c for c in columns if c.type in ("string", "long") and KEY_NAME.search(c.words)]
    named = [column for column in named if None not in column.cells]
    parts = [column for column in named if _PART_NAME.search(column.words)]
    return sorted(named, key=lambda c: (c in parts, -len(_distinct([c])), c.words != "id"))


def _varying(keys: Columns, columns: Iterable[Column]) -> list[Column]:
    """Return the columns that have several values in rows of one key."""
    count = len(_distinct(keys))
    others = (column for column in columns if column not in keys)
    return [column for column in others if len(_distinct([*keys, column])) > count]


def _distinct(columns: Iterable[Column]) -> set[tuple[str, ...]]:
    return {*zip(*(map(str, column.cells) for column in columns), strict=True)}


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


def _envelopes(rows: Sequence[Row]) -> list[Row]:
    """Return the envelopes; other rows, such as heartbeats, are left out."""
    payloads = (p if isinstance(p := row.get("payload"), dict) else row for row in rows)
    found = (each for each in payloads if {"after", "before"} & {*each} and each.get("op"))
    return [each for each in found if str(each["op"]) in "crudtm"]


def _changed_row(envelope: Row) -> Row:
    """Return the row after a change, or before a delete; empty if it has none."""
    row = envelope.get("before" if envelope["op"] == "d" else "after")
    return row if isinstance(row, dict) else {}


def _schema_columns(rows: Sequence[Row]) -> list[Mapping[str, Any]]:
    """Return the columns of the row in the schema beside the payload; none without one."""
    schemas = (schema for row in rows if isinstance(schema := row.get("schema"), dict))
    sides = [side for side in next(schemas, {}).get("fields", ()) if side.get("fields")]
    return next((s["fields"] for s in sides if s["field"] in ("after", "before")), [])


def _decode(column: Mapping[str, Any]) -> tuple[str, str]:
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


def _change_order(origins: Sequence[Row]) -> tuple[str, str]:
    """Return SQL of `sequence_by`, with its reason, by the fields `source` of envelopes."""
    names = {name for row in origins for name, value in row.items() if value is not None}
    is_position = bool(names & {"lsn", "file"})
    reason = "the position in the database's log" if is_position else "the time of the change"
    return DEBEZIUM_CDC["sequence_by"], reason
