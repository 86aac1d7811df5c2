"""What the configuration declares of a source's columns: types and names that a table can have."""

from __future__ import annotations

from typing import NoReturn

from pyspark.errors import PySparkException
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.config.values import folded
from medallion.errors import ConfigError
from medallion.schema.inference import inner
from medallion.schema.names import is_plain, reserved
from medallion.spark.errors import one_line

# Of the others, Spark rounds or cuts a value that does not fit, and says nothing.
_WITHIN = ("string", "boolean", "int", "bigint", "double", "timestamp", "date")


def check_declared(source: SourceConfig) -> None:
    """Raise ConfigError for a type or a name that is written down and no table can have."""
    for key, columns in (("schema", source.schema or {}), ("hints", source.hints)):
        for column, kind in columns.items():
            _check(f"sources.{source.name}.{key}", column, kind)
            if folded(column) in reserved(source.origin):
                _refuse_name(f"sources.{source.name}.{key}", column, column)


def _check(where: str, column: str, kind: str) -> None:
    try:
        found = T.DataType.fromDDL(kind)
    except PySparkException as error:
        raise ConfigError(f"{where}: not types of Spark: {one_line(str(error))}") from None
    lossy = [leaf for leaf in _leaves(found) if leaf not in _WITHIN]
    if lossy:
        raise ConfigError(
            f"{where}.{column}: {lossy[0]} cannot be a type here, for it would change values that "
            f"do not fit it; within struct<> and array<> there can be {', '.join(_WITHIN)} (and "
            "long, which is bigint). A column that bronze has already may be left out."
        )
    refused = [name for name in (column, *_fields(found)) if not is_plain(name)]
    if refused:
        _refuse_name(where, column, refused[0])


def _refuse_name(where: str, column: str, name: str) -> NoReturn:
    raise ConfigError(
        f"{where}.{column}: {name!r} cannot be the name of a column here. Leave it out: such a "
        "field is kept in _rescued_data."
    )


def _fields(kind: T.DataType) -> list[str]:
    """The names of all fields within a type."""
    names = kind.names if isinstance(kind, T.StructType) else []
    return [*names, *(name for within in inner(kind) for name in _fields(within))]


def _leaves(kind: T.DataType) -> list[str]:
    """The types within a type that hold no others, as Spark spells them."""
    if inner(kind):
        return [name for within in inner(kind) for name in _leaves(within)]
    return [kind.simpleString()]
