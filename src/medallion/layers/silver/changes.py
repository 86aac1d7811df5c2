"""Pure transformations of change records to the latest state, or the history, of each key.

Bronze has Debezium's envelope as it arrived, and silver's expressions read the row in it.

Changes of a key are ordered by `_sequence`, then `_ingested_at`, origin, `_is_delete` (a delete is
after an update) and values. So the result does not depend on the order in which they arrive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.errors import ConfigError
from medallion.ingest.schema.growth import FieldPath
from medallion.spark.plans import fields_in, inner_types, is_comparable, replace_columns
from medallion.storage.table_specs import (
    INGESTED_AT,
    IS_CURRENT,
    IS_DELETE,
    OFFSET,
    PARTITION,
    SEQUENCE,
    SOURCE_FILE,
    TOPIC,
    VALID_FROM,
    VALID_TO,
    quote_identifier,
    struct_sql,
)

_TECHNICAL = (SEQUENCE, INGESTED_AT, SOURCE_FILE, TOPIC, PARTITION, OFFSET, IS_DELETE)


def current_rows(
    changes: DataFrame, keys: Sequence[str], tombstone_seconds: float, ignore_nulls: bool = False
) -> DataFrame:
    """Return the latest row of each key that is not deleted (SCD type 1).

    Args:
        changes: change records.
        keys: the columns that identify a row.
        tombstone_seconds: how long a delete hides older changes that are ingested after it.
        ignore_nulls: whether a null keeps the value of the change before.
    """
    newest_first = _newest_first(changes, keys)
    deleted_at = F.max(F.when(F.col(IS_DELETE), F.col(INGESTED_AT))).over(_up_to(newest_first))
    is_hidden = F.col(INGESTED_AT) <= deleted_at + F.expr(f"INTERVAL '{tombstone_seconds}' SECOND")
    marked = _last_of_sequence(changes, keys).withColumn("_is_hidden", is_hidden)
    rows = marked.where(~F.col(IS_DELETE) & ~F.coalesce("_is_hidden", F.lit(False)))
    if ignore_nulls:
        rows = _without_nulls(rows, keys, newest_first)
    latest = rows.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
    return latest.drop("_is_hidden", "_rank", IS_DELETE)


def history_rows(changes: DataFrame, keys: Sequence[str], ignore_nulls: bool = False) -> DataFrame:
    """Return a row for each change that is no delete, with its span of time (SCD type 2).

    Args:
        changes: change records.
        keys: the columns that identify a row.
        ignore_nulls: whether a null keeps the value of the change before.
    """
    return spans(changes, keys, ignore_nulls).where(~F.col(IS_DELETE)).drop(IS_DELETE)


def spans(changes: DataFrame, keys: Sequence[str], ignore_nulls: bool) -> DataFrame:
    """Return `history_rows`, and a row with `_is_delete` for each delete; see there."""
    newest_first = _newest_first(changes, keys)
    rows = _last_of_sequence(changes, keys)
    if ignore_nulls:  # but not the values from before a delete
        deletes = F.count_if(IS_DELETE).over(_up_to(newest_first))
        rows = rows.withColumn("_deletes", deletes)
        life = _newest_first(changes, [*keys, "_deletes"])
        rows = _without_nulls(rows, keys, life).drop("_deletes")
    ended = rows.withColumn(VALID_TO, F.lag(SEQUENCE).over(newest_first))
    named = ended.withColumnRenamed(SEQUENCE, VALID_FROM)
    values = [name for name in named.columns if name not in (VALID_FROM, VALID_TO)]
    return named.select(*values, VALID_FROM, VALID_TO, F.col(VALID_TO).isNull().alias(IS_CURRENT))


def latest_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the last change of each key, deletes included."""
    rank = F.row_number().over(_newest_first(changes, keys))
    return changes.withColumn("_rank", rank).where("_rank = 1").drop("_rank")


def without_deleted(
    changes: DataFrame, deletes: DataFrame, keys: Sequence[str], tombstone_seconds: float
) -> DataFrame:
    """Return the changes that no later delete hides.

    Args:
        changes: change records.
        deletes: those that delete their key.
        keys: the columns that identify a row.
        tombstone_seconds: how long a delete hides older changes that are ingested after it.
    """
    is_deleted = F.expr(
        f"{order_sql(changes, keys, 'old')} > {order_sql(changes, keys, 'new')} "
        f"and new.{INGESTED_AT} <= old.{INGESTED_AT} + INTERVAL '{tombstone_seconds}' SECOND"
    )
    for key in map(quote_identifier, keys):
        is_deleted &= F.expr(f"old.{key} = new.{key}")
    return changes.alias("new").join(deletes.alias("old"), is_deleted, "left_anti")


def tied_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys and sequences that several changes have with different values."""
    values = F.xxhash64(*map(F.expr, _order(changes, keys)[-len(_values(changes, keys)) - 1 :]))
    ends = (F.min(values).alias("a"), F.max(values).alias("z"))
    return changes.groupBy(*keys, SEQUENCE).agg(*ends).where("a <> z").select(*keys, SEQUENCE)


def order_sql(changes: DataFrame, keys: Sequence[str], alias: str, has_deletes: bool = True) -> str:
    """Return SQL of a struct that orders the changes of a key.

    Args:
        changes: change records.
        keys: the columns that identify a row.
        alias: the alias of the rows in the SQL.
        has_deletes: False if the rows have no `_is_delete`, because none is a delete.
    """
    names = _order(changes, keys, f"{alias}.")
    if not has_deletes:
        names = ["false" if name == f"{alias}.{IS_DELETE}" else name for name in names]
    return struct_sql({str(number): name for number, name in enumerate(names)})


def _order(changes: DataFrame, keys: Sequence[str], prefix: str = "") -> list[str]:
    """Return SQL of the columns that order the changes of a key, the first one first."""
    technical = [prefix + name for name in _TECHNICAL if name in changes.columns]
    types = {field.name: field.dataType for field in changes.schema}
    values = list[str]()
    for name in _values(changes, keys):
        sql = prefix + quote_identifier(name)
        text = f"if({sql} is null, null, to_json(named_struct('', {sql})))"
        values.append(sql if is_comparable(types[name]) else text)
    return technical + values


def _values(changes: DataFrame, keys: Sequence[str]) -> list[str]:
    return [name for name in changes.columns if name not in (*keys, *_TECHNICAL)]


def _newest_first(changes: DataFrame, keys: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(*(F.expr(sql).desc() for sql in _order(changes, keys)))


def _up_to(newest_first: WindowSpec) -> WindowSpec:
    return newest_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _last_of_sequence(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the last of the changes with the same key and sequence."""
    next_sequence = F.lag(SEQUENCE).over(_newest_first(changes, keys))
    marked = changes.withColumn("_next", next_sequence)
    return marked.where(~F.col("_next").eqNullSafe(F.col(SEQUENCE))).drop("_next")


def _without_nulls(rows: DataFrame, keys: Sequence[str], newest_first: WindowSpec) -> DataFrame:
    """Replace each null by the last value before it in a window."""
    older = newest_first.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    filled = {
        name: F.first(name, ignorenulls=True).over(older)
        for name in rows.columns
        if name not in keys and not name.startswith("_")
    }
    return rows.withColumns(filled)


_ENVELOPE_COLUMNS = ("_op", "_ts_ms", "_lsn")
_NO_VALUE = "cast(null as bigint)"


def unwrapped(source: SourceConfig, bronze: DataFrame) -> SourceConfig:
    """Return a source whose expressions name the fields of Debezium's envelope.

    Args:
        source: the source; one that is not `format: debezium` is returned unchanged.
        bronze: rows of its bronze table.

    Raises:
        ConfigError: the envelopes have none of the fields that order the changes.
        ParseException: an expression is not valid SQL.
    """
    if not source.is_debezium or not source.cdc:
        return source
    columns, cdc, spark = _Envelope.of(bronze.schema).columns(), source.cdc, bronze.sparkSession
    sequence = {columns.get(name[0].lower()) for name in fields_in(spark, [cdc.sequence_by])}
    if len(columns) > 3 and sequence == {_NO_VALUE}:
        raise ConfigError(
            f"sources.{source.name}.cdc.sequence_by is {cdc.sequence_by}, but no message has "
            "source.lsn, source.ts_ms or ts_ms. Set it to columns that order the changes, such as "
            "updated_at or payload.source.pos."
        )
    own = {name: sql for name, sql in columns.items() if name not in source.silver}
    return replace(
        source,
        silver={n: replace_columns(spark, sql, columns) for n, sql in source.silver.items()},
        cdc=replace(
            cdc,
            sequence_by=replace_columns(spark, cdc.sequence_by, own),
            apply_as_deletes=replace_columns(spark, cdc.apply_as_deletes or "false", own),
        ),
    )


def envelope_path(path: FieldPath, columns: Mapping[str, str]) -> FieldPath | None:
    """Return the path in Debezium's envelope of a field of the changed row.

    Args:
        path: the field; None is returned for one of the envelope itself, such as `_op`.
        columns: the columns of bronze with Spark types.
    """
    bronze = T.StructType([T.StructField(n, T.DataType.fromDDL(t)) for n, t in columns.items()])
    first, envelope = path[0].lower(), _Envelope.of(bronze)
    if first in _ENVELOPE_COLUMNS or first in map(str.lower, columns):
        return None
    side = "after"
    if first in map(str.lower, envelope.before) and first not in map(str.lower, envelope.after):
        side = "before"
    return (*envelope.prefix, side, *path)


@dataclass(frozen=True)
class _Envelope:
    """The fields of Debezium's envelopes in a bronze table, with their types.

    Attributes:
        prefix: the path of the envelope: `("payload",)` if it is beside the message's schema.
        fields: the fields of the envelope.
        after, before: the columns of the row.
        origin: the fields of `source`.
    """

    prefix: tuple[str, ...]
    fields: Mapping[str, T.DataType]
    after: Mapping[str, T.DataType]
    before: Mapping[str, T.DataType]
    origin: Mapping[str, T.DataType]

    @classmethod
    def of(cls, bronze: T.StructType) -> _Envelope:
        fields = _fields(bronze)
        payload = _fields(fields.get("payload"))
        prefix, fields = (("payload",), payload) if payload else ((), fields)
        return cls(prefix, fields, *(_fields(fields.get(n)) for n in ("after", "before", "source")))

    def columns(self) -> dict[str, str]:
        """Return SQL of the columns of the changed row, and of `_ENVELOPE_COLUMNS`."""
        prefix = "".join(f"{part}." for part in self.prefix)
        columns = {}
        for name in {**self.after, **self.before}:
            new, old = (
                f"{prefix}{side}.{quote_identifier(name)}" if name in fields else "null"
                for side, fields in (("after", self.after), ("before", self.before))
            )
            types = [fields[name] for fields in (self.after, self.before) if name in fields]
            if inner_types(types[0]) and types[0] != types[-1]:
                old = "null"  # a delete needs its keys alone, and Spark no two types of struct
            columns[name.lower()] = f"if({prefix}op = 'd', {old}, {new})"
        times = [f"{prefix}source.ts_ms"] * ("ts_ms" in self.origin)
        times += [f"{prefix}ts_ms"] * ("ts_ms" in self.fields)
        return columns | {
            "_op": f"{prefix}op",
            "_ts_ms": f"coalesce({', '.join(times)})" if times else _NO_VALUE,
            "_lsn": f"{prefix}source.lsn" if "lsn" in self.origin else _NO_VALUE,
        }


def _fields(type_: T.DataType | None) -> dict[str, T.DataType]:
    return {f.name: f.dataType for f in type_} if isinstance(type_, T.StructType) else {}
