"""Debezium's envelope: bronze has it as it arrived, and silver's expressions read the row in it."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import types as T

from medallion.config.expressions import column_names, replace_columns
from medallion.config.model import SourceConfig
from medallion.errors import ConfigError
from medallion.storage.table_specs import quote_identifier

_NO_VALUE = "cast(null as bigint)"


def unwrapped(source: SourceConfig, bronze: T.StructType) -> SourceConfig:
    """Return a source whose expressions name the fields of Debezium's envelope.

    Args:
        source: the source; one that is not `format: debezium` is returned unchanged.
        bronze: the schema of its bronze table.

    Raises:
        ConfigError: the envelopes have none of the fields that order the changes.
    """
    if not source.is_debezium or not source.cdc:
        return source
    columns, cdc = _row_columns(bronze), source.cdc
    sequence = [columns.get(name.lower()) for name in column_names(cdc.sequence_by)]
    if len(columns) > 3 and sequence and set(sequence) == {_NO_VALUE}:
        raise ConfigError(
            f"sources.{source.name}.cdc.sequence_by is {cdc.sequence_by}, but no message has "
            "source.lsn, source.ts_ms or ts_ms. Set it to columns that order the changes, such as "
            "updated_at or payload.source.pos."
        )
    own = {name: sql for name, sql in columns.items() if name not in source.silver}
    return replace(
        source,
        silver={name: replace_columns(sql, columns) for name, sql in source.silver.items()},
        cdc=replace(
            cdc,
            sequence_by=replace_columns(cdc.sequence_by, own),
            apply_as_deletes=replace_columns(cdc.apply_as_deletes or "false", own),
        ),
    )


def _row_columns(bronze: T.StructType) -> dict[str, str]:
    """Return SQL of the columns of the changed row, and of `_op`, `_ts_ms` and `_lsn`."""
    envelope, prefix = _fields(bronze), ""
    if payload := _fields(envelope.get("payload")):  # beside the schema of the message
        envelope, prefix = payload, "payload."
    after, before, origin = (_fields(envelope.get(name)) for name in ("after", "before", "source"))
    columns = {}
    for name in {**after, **before}:
        new, old = (
            f"{prefix}{side}.{quote_identifier(name)}" if name in fields else "null"
            for side, fields in (("after", after), ("before", before))
        )
        columns[name.lower()] = f"if({prefix}op = 'd', {old}, {new})"
    times = [f"{prefix}source.ts_ms"] * ("ts_ms" in origin)
    times += [f"{prefix}ts_ms"] * ("ts_ms" in envelope)
    return columns | {
        "_op": f"{prefix}op",
        "_ts_ms": f"coalesce({', '.join(times)})" if times else _NO_VALUE,
        "_lsn": f"{prefix}source.lsn" if "lsn" in origin else _NO_VALUE,
    }


def _fields(type_: T.DataType | None) -> dict[str, T.DataType]:
    return {f.name: f.dataType for f in type_} if isinstance(type_, T.StructType) else {}
