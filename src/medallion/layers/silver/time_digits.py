"""The key that tells apart rows whose times differ only beyond the microsecond.

If bronze has the column `_full_times`, silver has the column `_time_digits`, which is one of its
keys. A table cannot get another key: in a table that is older, such rows would be duplicates of
each other, and go to quarantine by the rule `time_digits` until the table is rebuilt.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import DataFrame

from medallion.config.model import Config, SourceConfig
from medallion.config.values import folded
from medallion.ingest.parsing.times import digits_beyond
from medallion.spark import checkpoints
from medallion.spark.plans import fields_in
from medallion.storage import delta_tables
from medallion.storage.table_specs import FULL_TIMES, TIME_DIGITS

RULE = "time_digits"
# Functions, and types that a time is cast to, whose result is the same for all of a microsecond.
_COARSE = {
    *("bigint", "date", "date_format", "date_part", "date_trunc", "datepart", "day", "dayofmonth"),
    *("extract", "hour", "int", "minute", "month", "quarter", "second", "to_date", "trunc"),
    *("to_unix_timestamp", "unix_date", "unix_millis", "unix_seconds", "unix_timestamp", "year"),
}


def resolve(
    config: Config, source: SourceConfig, bronze: DataFrame
) -> tuple[SourceConfig, dict[str, str]]:
    """Return a source's settings with the key `_time_digits`, if bronze's rows need it.

    Args:
        config: of the lakehouse.
        source: the settings as they are configured.
        bronze: the source's table.

    Returns:
        The settings; and the rule for the rows that need the key, if silver's table has rows and
        was created without it.
    """
    digits = _digits(source, bronze)
    if not digits:
        return source, {}
    table = config.layout.table(f"silver.{source.name}")
    is_older = (
        delta_tables.table_exists(table)
        and TIME_DIGITS not in delta_tables.column_names(table)
        and checkpoints.last_begun(config.layout.checkpoint(f"silver.{source.name}")) >= 0
    )
    return (source, {RULE: f"{digits} <> ''"}) if is_older else (_extended(source, digits), {})


def as_recorded(config: Config, source: SourceConfig) -> SourceConfig:
    """Return a source's settings with the key `_time_digits`, if silver's table has it."""
    checkpoint = config.layout.checkpoint(f"silver.{source.name}")
    digits = (checkpoints.noted(checkpoint, "definition") or {}).get(f"{TIME_DIGITS} as")
    return _extended(source, digits) if digits and TIME_DIGITS not in source.silver else source


def _extended(source: SourceConfig, digits: str) -> SourceConfig:
    silver = {**source.silver, TIME_DIGITS: digits}
    return replace(source, silver=silver, keys=(*source.keys, TIME_DIGITS))


def _digits(source: SourceConfig, bronze: DataFrame) -> str | None:
    """SQL: the digits beyond the microsecond of the times that a source's keys are made of; None if
    there are none."""
    types = dict(bronze.dtypes)
    if FULL_TIMES not in types:
        return None
    keys = (source.silver[key] for key in source.keys)
    named = {folded(name[0]) for name in fields_in(bronze.sparkSession, keys, _COARSE)}
    times = (name for name, kind in types.items() if kind == "timestamp" and folded(name) in named)
    digits = [digits_beyond(name) for name in sorted(times)]
    # By their positions, so that the digits of one time are not taken for those of another.
    return f"rtrim(',', concat_ws(',', {', '.join(digits)}))" if digits else None
