"""What the configuration declares of a source's columns: types and names that a table can have."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from medallion.config.model import TYPED, SourceConfig
from medallion.config.values import folded
from medallion.errors import ConfigError
from medallion.ingest.schema.inference import names_within
from medallion.ingest.schema.names import is_plain, reserved
from medallion.spark.errors import one_line
from medallion.spark.plans import ddl, inner

# Of the others, Spark rounds or cuts a value of a line of text that does not fit, and says nothing.
_WITHIN: tuple[str, ...] = ("string", "boolean", "int", "bigint", "double", "timestamp", "date")
# Files that bring their types are not parsed by Spark's functions for text.
_WITHIN_TYPED = (*_WITHIN, "tinyint", "smallint", "float", "decimal", "binary", "map")


def declared(source: SourceConfig) -> tuple[Mapping[str, str] | None, Mapping[str, str]]:
    """A source's `schema`, if it has one, and its `hints`, with types as versions spell them.

    Raises:
        ConfigError: a type or a name that is written down and no table can have.
    """
    found = [
        {column: _checked(source, key, column, kind) for column, kind in (columns or {}).items()}
        for key, columns in (("schema", source.schema), ("hints", source.hints))
    ]
    return found[0] if source.schema is not None else None, found[1]


def _checked(source: SourceConfig, key: str, column: str, kind: str) -> str:
    where = f"sources.{source.name}.{key}"
    try:
        found = T.DataType.fromDDL(kind)
    except PySparkException as error:
        raise ConfigError(f"{where}: not types of Spark: {one_line(str(error))}") from None
    allowed, more = _WITHIN, f"Sources of {', '.join(TYPED)} can have more. "
    if source.format in TYPED:
        allowed, more = _WITHIN_TYPED, ""
    lossy = [name for name in _types_within(found) if re.split("[(<]", name)[0] not in allowed]
    if lossy:
        raise ConfigError(
            f"{where}.{column}: {lossy[0]} cannot be a type here, for it would change values that "
            f"do not fit it; within struct<> and array<> there can be {', '.join(allowed)} (and "
            f"long, which is bigint). {more}A column that bronze has already may be left out."
        )
    refused = [name for name in (column, *names_within(found)) if not is_plain(name)]
    if refused or folded(column) in reserved(source.origin):
        raise ConfigError(
            f"{where}.{column}: {(*refused, column)[0]!r} cannot be the name of a column here. "
            "Leave it out: such a field is kept in _rescued_data."
        )
    if twice := _alike(found):
        raise ConfigError(
            f"{where}.{column}: it has fields whose names differ in case alone, {twice}: leave one "
            "of them out, and it is kept in _rescued_data."
        )
    return ddl(found)


def _alike(kind: T.DataType) -> str | None:
    """The first two fields of one object that are one to Spark."""
    first: dict[str, str] = {}
    for name in kind.names if isinstance(kind, T.StructType) else []:
        if folded(name) in first:
            return f"{first[folded(name)]} and {name}"
        first[folded(name)] = name
    return next(filter(None, map(_alike, inner(kind))), None)


def _types_within(kind: T.DataType) -> list[str]:
    """Return the types within a type, without structs and arrays, as Spark spells them."""
    within = [name for each in inner(kind) for name in _types_within(each)]
    if isinstance(kind, T.StructType | T.ArrayType):
        return within
    return [kind.simpleString(), *within]
