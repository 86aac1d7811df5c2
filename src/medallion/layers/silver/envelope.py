"""Change records as SQL over bronze: Debezium's envelopes, and the technical columns of the log.

Bronze has Debezium's envelope as it arrived, and silver's expressions read the row in it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import md5
from uuid import UUID

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.config.tables import CdcConfig
from medallion.errors import ConfigError
from medallion.ingest.schema.growth import FieldPath
from medallion.layers.silver.transform import BRONZE
from medallion.spark.plans import fields_in, inner_types, replace_columns
from medallion.storage.table_specs import (
    IS_DELETE,
    IS_TRUNCATE,
    OLD_KEY,
    SEQUENCE,
    SOURCE_POSITION,
    UNAVAILABLE,
    quote_identifier,
    string_literal,
    struct_sql,
)

_ENVELOPE_COLUMNS = ("_op", "_ts_ms", "_lsn")
_NO_VALUE = "cast(null as bigint)"
_MEMBERS = {"after", "before", "op", "ts_ms"}
# A position in MySQL's log is a file, the byte of an event, and a row in it.
_FILE, _EVENT = f"1{'0' * 20}", f"1{'0' * 8}"


@dataclass(frozen=True)
class Envelope:
    """The fields of Debezium's envelopes in a bronze table.

    A message is an envelope, or has it in `payload` beside its schema; a table may have both.

    Attributes:
        roots: the fields of the envelopes, with their types, by the path of the envelope.
    """

    roots: Mapping[FieldPath, T.StructType]

    @classmethod
    def of(cls, bronze: T.StructType) -> Envelope:
        """Return the envelopes of a bronze table."""
        payload = _fields(bronze).get("payload")
        roots: dict[FieldPath, T.StructType] = {}
        if isinstance(payload, T.StructType):
            roots[("payload",)] = payload
        if not roots or _fields(bronze).keys() & _MEMBERS:
            roots[()] = bronze
        return cls(roots)

    def fields(self, *path: str) -> dict[str, T.DataType]:
        """Return the fields of the envelopes, or of a struct in them, in lower case."""
        structs = [_type_at(type_, path) for type_ in self.roots.values()]
        return {n: dtype for struct in reversed(structs) for n, dtype in _fields(struct).items()}

    def sql(self, *path: str, row: str = "") -> str:
        """Return SQL of a field of the envelopes, null if none has it.

        Args:
            path: the field, in lower case.
            row: the column that has the row of bronze; empty for the table itself.
        """
        values = [
            ".".join(map(quote_identifier, filter(None, (row, *root, *path))))
            for root, type_ in self.roots.items()
            if _type_at(type_, path)
        ]
        return f"coalesce({', '.join(values)})" if len(values) > 1 else "".join(values) or "null"

    def columns(self, row: str = "") -> dict[str, str]:
        """Return SQL of the columns of the changed row, and of `_ENVELOPE_COLUMNS`."""
        op, after, before = self.sql("op", row=row), self.fields("after"), self.fields("before")
        columns = {}
        for name in {**after, **before}:
            new, old = (self.sql(side, name, row=row) for side in ("after", "before"))
            types = [side[name] for side in (after, before) if name in side]
            if inner_types(types[0]) and types[0] != types[-1]:
                old = "null"  # a delete needs its key alone, and both sides need one type
            columns[name] = f"if({op} = 'd', {old}, {new})"
        times = (self.sql(*path, row=row) for path in (("source", "ts_ms"), ("ts_ms",)))
        known = [sql for sql in times if sql != "null"]
        return columns | {
            "_op": op,
            "_ts_ms": f"coalesce({', '.join(known)})" if known else _NO_VALUE,
            "_lsn": self._log_position(row),
        }

    def _log_position(self, row: str) -> str:
        """Return SQL of the position in the database's log, a number that grows with it."""
        fields = ("lsn", "sequence", "file", "pos", "row")
        lsn, sequence, file, *in_file = (self.sql("source", f, row=row) for f in fields)
        if file != "null":  # MySQL's, such as bin.000001, and MariaDB's
            number = f"try_cast(regexp_extract({file}, '[0-9]+$', 0) as decimal(38, 0))"
            pos, position = (f"try_cast({sql} as decimal(38, 0))" for sql in in_file)
            return f"{number} * {_FILE} + {pos} * {_EVENT} + coalesce({position}, 0)"
        if sequence != "null":  # a row of an incremental snapshot has its position there alone
            lsn = f"coalesce({lsn}, try_cast(get_json_object({sequence}, '$[1]') as bigint))"
        return _NO_VALUE if lsn == "null" else lsn

    def path_of(self, name: FieldPath) -> FieldPath | None:
        """Return the path in bronze of a field of the row; None for `_ENVELOPE_COLUMNS`."""
        first = name[0].lower()
        if first in _ENVELOPE_COLUMNS:
            return None
        after, before = self.fields("after"), self.fields("before")
        side = "before" if first in before.keys() - after.keys() else "after"
        stored = (root for root, type_ in self.roots.items() if _type_at(type_, (side, first)))
        return (*next(stored, next(iter(self.roots))), side, *name)

    def message_rules(self) -> dict[str, str]:
        """Return the rules that quarantine messages without a changed row, by name.

        Source: Debezium's documentation of heartbeats, schema changes, transaction metadata and
        logical decoding messages.
        """
        if "op" not in self.fields():
            return {}
        op, ddl, status, time = map(self.sql, ("op", "ddl", "status", "ts_ms"))
        no_op = f"{op} is null"
        return {
            "schema_change": f"{no_op} and {ddl} is not null",
            "transaction": f"{no_op} and {status} is not null",
            "heartbeat": f"{no_op} and {time} is not null and {ddl} is null and {status} is null",
            "logical_message": f"{op} = 'm'",
        }


def _fields(type_: T.DataType | None) -> dict[str, T.DataType]:
    return {f.name.lower(): f.dataType for f in type_} if isinstance(type_, T.StructType) else {}


def _type_at(type_: T.DataType | None, path: Iterable[str]) -> T.DataType | None:
    for name in path:
        type_ = _fields(type_).get(name)
    return type_


def envelope_path(path: FieldPath, columns: Mapping[str, str]) -> FieldPath | None:
    """Return the path in bronze of a field of the changed row; None for one of bronze itself.

    Args:
        path: the field.
        columns: the columns of bronze with Spark types.
    """
    if path[0].lower() in map(str.lower, columns):
        return None
    fields = [T.StructField(name, T.DataType.fromDDL(type_)) for name, type_ in columns.items()]
    return Envelope.of(T.StructType(fields)).path_of(path)


def unwrapped(source: SourceConfig, bronze: DataFrame) -> SourceConfig:
    """Return a source of change records with SQL over bronze for each column of its log.

    Expressions name the fields of Debezium's envelope, and `cdc.derived` has the SQL of technical
    columns over silver's columns and `_bronze`, the row of bronze.

    Args:
        source: the source; one without `cdc` is returned unchanged.
        bronze: rows of its bronze table.

    Raises:
        ConfigError: the envelopes have none of the fields that order the changes.
        ParseException: an expression is not valid SQL.
    """
    if not source.cdc:
        return source
    spark, envelope = bronze.sparkSession, Envelope.of(bronze.schema)
    cdc, silver = source.cdc, dict(source.silver)
    columns = {name.lower(): f"{BRONZE}.{quote_identifier(name)}" for name in bronze.columns}
    types = _fields(bronze.schema)
    if source.is_debezium:
        columns = envelope.columns(BRONZE)
        types = envelope.fields("before") | envelope.fields("after")
        _refuse_without_order(spark, source, cdc, columns)
        in_row = envelope.columns()
        silver = {n: replace_columns(spark, sql, in_row) for n, sql in silver.items()}
    # Silver's columns are first.
    own = {name: sql for name, sql in columns.items() if name not in map(str.lower, silver)}
    sequence, deletes, truncates = (
        replace_columns(spark, sql, own) if sql and source.is_debezium else sql
        for sql in (cdc.sequence_by, cdc.apply_as_deletes or "false", cdc.apply_as_truncates or "")
    )
    derived = {SEQUENCE: sequence, IS_DELETE: _is_true(deletes)}
    if SOURCE_POSITION in source.change_columns:  # which bronze of an older version lacks
        has_position = SOURCE_POSITION in bronze.columns
        derived[SOURCE_POSITION] = f"{BRONZE}.{SOURCE_POSITION}" if has_position else _NO_VALUE
    if truncates:
        derived[IS_DELETE] += f" or {_is_true(truncates)}"
        derived[IS_TRUNCATE] = f"if({_is_true(truncates)}, true, null)"
    if source.is_debezium:
        derived[OLD_KEY] = _old_key(spark, source, envelope)
    if cdc.unavailable_value:
        is_insert = f"{envelope.sql('op', row=BRONZE)} = 'c'" if source.is_debezium else "false"
        placeholder = cdc.unavailable_value
        derived[UNAVAILABLE] = _unavailable(spark, source, placeholder, is_insert, columns, types)
    return replace(source, silver=silver, cdc=replace(cdc, sequence_by=sequence, derived=derived))


def _refuse_without_order(
    spark: SparkSession, source: SourceConfig, cdc: CdcConfig, columns: Mapping[str, str]
) -> None:
    sequence = {columns.get(name[0].lower()) for name in fields_in(spark, [cdc.sequence_by])}
    if len(columns) > len(_ENVELOPE_COLUMNS) and sequence == {_NO_VALUE}:
        raise ConfigError(
            f"sources.{source.name}.cdc.sequence_by is {cdc.sequence_by}, but no message has "
            "source.lsn, source.pos, source.ts_ms or ts_ms. Set it to columns that order the "
            "changes, such as updated_at."
        )


def _is_true(condition: str) -> str:
    return f"coalesce(cast(({condition}) as boolean), false)"


def _old_key(spark: SparkSession, source: SourceConfig, envelope: Envelope) -> str:
    """Return SQL of the key before an update that changes it; null for other changes."""
    before = {n: envelope.sql("before", n, row=BRONZE) for n in envelope.fields("before")}
    keys = {key: source.silver[key] for key in source.keys}
    read = {name[0].lower() for name in fields_in(spark, keys.values())}
    new = {key: quote_identifier(key) for key in keys}
    if not read <= before.keys():
        return f"if(false, {struct_sql(new)}, null)"
    old = {key: f"({replace_columns(spark, sql, before)})" for key, sql in keys.items()}
    has_moved = " or ".join(f"{old[key]} <> {new[key]}" for key in keys)
    is_known = " and ".join(f"{sql} is not null" for sql in old.values())
    condition = f"{envelope.sql('op', row=BRONZE)} <> 'd' and {is_known} and ({has_moved})"
    # With the type of the new key: a field of both sides has the type that holds both.
    typed = struct_sql({key: f"if({condition}, {old[key]}, {new[key]})" for key in keys})
    return f"if({condition}, {typed}, null)"


def _unavailable(
    spark: SparkSession,
    source: SourceConfig,
    placeholder: str,
    is_insert: str,
    columns: Mapping[str, str],
    types: Mapping[str, T.DataType],
) -> str:
    """Return SQL of the silver columns that read a field whose value is a placeholder.

    An insert that has any is of a row that had another key: it has its first key, too.

    Args:
        source: the source, with silver's expressions as they are configured.
        placeholder: the value in place of one that the writer does not have.
        is_insert: SQL of whether a change is an insert.
        columns: SQL of the fields by name, in lower case.
        types: their types by name.
    """
    conditions = dict[str, str]()
    for column in (name for name in source.silver if name not in source.keys):
        names = {name[0].lower() for name in fields_in(spark, [source.silver[column]])}
        fields = ((columns[name], types.get(name)) for name in sorted(names & columns.keys()))
        if tests := [*filter(None, (_is_placeholder(*each, placeholder) for each in fields))]:
            conditions[column] = " or ".join(tests)
    if not conditions:
        return "cast(null as array<string>)"
    is_any = " or ".join(conditions.values())
    conditions[source.keys[0]] = is_insert
    names_sql = (f"if({sql}, {string_literal(name)}, null)" for name, sql in conditions.items())
    return f"if({is_any}, array_compact(array({', '.join(names_sql)})), null)"


def _is_placeholder(sql: str, type_: T.DataType | None, placeholder: str) -> str | None:
    """Return SQL of whether a field has the placeholder in place of its value.

    Debezium writes bytes in Base64, an hstore as a JSON object, a UUID as that of the placeholder,
    and an array with one element, or of numbers with each byte (source: its documentation of
    PostgreSQL's toasted values, and messages of version 3.6).
    """
    data = placeholder.encode()
    packed = b64encode(data).decode()
    match type_:
        case T.StringType():
            texts = (placeholder, packed, f'{{"{placeholder}":"{placeholder}"}}')
            return f"coalesce({sql} in ({', '.join(map(string_literal, texts))}), false)"
        case T.ArrayType(elementType=T.StringType()):
            uuid = str(UUID(bytes=md5(data, usedforsecurity=False).digest(), version=3))
            arrays = (f"array({string_literal(text)})" for text in (placeholder, packed, uuid))
            return f"coalesce({sql} in ({', '.join(arrays)}), false)"
        case T.ArrayType(elementType=T.LongType()):
            return f"coalesce({sql} = array({', '.join(f'{byte}L' for byte in data)}), false)"
    return None
