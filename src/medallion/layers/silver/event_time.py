"""The type of silver's event time, which has to be a time."""

from __future__ import annotations

import json
import re

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import Config, SourceConfig
from medallion.config.values import folded
from medallion.errors import ConfigError
from medallion.storage.table_specs import quoted
from medallion.storage.text import visible

_COLUMN = re.compile(r"`?([^\W\d]\w*)`?")
_MOST_SHOWN = 60  # characters of a value


def refuse_string(config: Config, source: SourceConfig, bronze: DataFrame, rows: DataFrame) -> None:
    """Raise ConfigError if the event time is a string.

    Args:
        config: the configuration.
        source: the source.
        bronze: the columns of its bronze table.
        rows: the columns of silver.
    """
    time = source.event_time
    if not isinstance(rows.schema[time].dataType, T.StringType):
        return
    table = f"silver.{source.name}"
    column = _COLUMN.fullmatch(source.silver[time].strip())
    name = _spelled(column[1], bronze) if column else None
    if name is None:
        raise ConfigError(
            f"The event time {time} of {table} is a string: make it a timestamp in "
            f"sources.{source.name}.silver.{time}, with try_to_timestamp."
        )
    raise ConfigError(
        f"The event time {time} of {table} is a string, because the column {name} of "
        f"bronze.{source.name} is one{_example(config, source, name, rows)}. Set hints: "
        f"{{{name}: timestamp}} for the source, and run medallion refresh bronze.{source.name}."
    )


def _spelled(name: str, bronze: DataFrame) -> str | None:
    return next((column for column in bronze.columns if folded(column) == folded(name)), None)


def _example(config: Config, source: SourceConfig, name: str, rows: DataFrame) -> str:
    """Return a value of the column that is no time, if there is one, as part of a sentence."""
    path = str(config.layout.table(f"bronze.{source.name}"))
    table = rows.sparkSession.read.format("delta").load(path)
    value = F.col(quoted(name))
    odd = table.where(value.isNotNull() & F.try_to_timestamp(value).isNull())
    row = odd.select(F.left(value, F.lit(_MOST_SHOWN)).alias("value")).first()
    text = visible(json.dumps(row.value, ensure_ascii=False)) if row else ""
    return f", with values such as {text}" if row else ""
