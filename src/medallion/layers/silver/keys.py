"""The key that tells apart rows whose times differ only beyond the microsecond.

If bronze has the column `_full_times`, silver has the column `_time_digits`, which is one of its
keys. A table cannot get another key: in a table that is older, such rows would be duplicates of
each other, and go to quarantine by the rule `time_digits` until the table is rebuilt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from medallion.config.model import Config, SourceConfig
from medallion.config.values import folded
from medallion.ingest.parsing.times import digits_beyond_micros
from medallion.layers.silver.transform import has_identity
from medallion.spark import checkpoints
from medallion.spark.plans import fields_in
from medallion.storage import delta_tables
from medallion.storage.table_specs import FULL_TIMES, TIME_DIGITS, quote_identifier

TIME_DIGITS_RULE = "time_digits"
# Functions, and types that a time is cast to, whose result is the same for all of a microsecond.
_COARSE = {
    *("bigint", "date", "date_format", "date_part", "date_trunc", "datepart", "day", "dayofmonth"),
    *("extract", "hour", "int", "minute", "month", "quarter", "second", "to_date", "trunc"),
    *("to_unix_timestamp", "unix_date", "unix_millis", "unix_seconds", "unix_timestamp", "year"),
}


def with_time_digits(
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
        and checkpoints.last_planned(config.layout.checkpoint(f"silver.{source.name}")) >= 0
    )
    return (
        (source, {TIME_DIGITS_RULE: f"{digits} <> ''"})
        if is_older
        else (_extended(source, digits), {})
    )


def with_recorded_time_digits(config: Config, source: SourceConfig) -> SourceConfig:
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
    digits = [digits_beyond_micros(name) for name in sorted(times)]
    # By their positions, so that the digits of one time are not taken for those of another.
    return f"rtrim(',', concat_ws(',', {', '.join(digits)}))" if digits else None


_AT_ONCE = 2_500_000  # keys that are held in memory, 400 MB of them
_COPIES = "` copies`"  # no column of silver has a blank
_MANY = 500  # files, beyond which a query over all of them takes longer than one over the table


def has_unique_keys(
    table: Path, files: Sequence[Path] | None, key: Sequence[str], event_time: str
) -> bool:
    """Whether no row of some of a table's files has the key of another row of the table.

    A row with a null in its key has no key. This is asked of DataFusion, which takes a fifth of
    Spark's time, and passes over the parts of files that have other event times.

    Args:
        files: None for all that the table has.
        key: the columns of a row's identity; `event_time` is among them.
    """
    if files is None or len(files) > _MANY or _are_all(table, files):
        files = ()
    new = "added" if files else "rows"
    known = " and ".join(f"{quote_identifier(column)} is not null" for column in key)
    ((rows,),) = delta_tables.select_rows(table, "count(*)", f"where {known}", new, files=files)
    parts = 1 + rows // _AT_ONCE
    # Times come in whole milliseconds, seconds, or minutes: of none of these is 1009 a part.
    number = f"abs(arrow_cast({quote_identifier(event_time)}, 'Int64') / 1009 % {parts})"
    columns = ", ".join(map(quote_identifier, key))
    is_alike = " and ".join(
        f"new.{quote_identifier(column)} = rows.{quote_identifier(column)}" for column in key
    )
    for part in range(parts):
        some = f"from {new} where {known} and {number} = {part} group by {columns}"
        keys = f"(select {columns}, count(*) as {_COPIES} {some}) as new"
        found = f"coalesce(max({_COPIES}), 1), count(*)"
        ((copies, rows),) = delta_tables.select_rows(table, found, "", keys, files=files)
        if copies > 1:
            return False
        there = f"{keys} right semi join rows on {is_alike}"
        if files and delta_tables.select_rows(table, "count(*)", "", there, files=files) != [
            (rows,)
        ]:
            return False
    return True


def _are_all(table: Path, files: Sequence[Path]) -> bool:
    return {file.name for file in delta_tables.data_files(table)} <= {file.name for file in files}


def with_rows_of_same_key(new: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """The new rows, and with them older ones that have the key of a new one.

    Args:
        rows: all that the table has, the new ones among them.
        key: the columns of a row's identity.
    """
    has_key = has_identity(key)
    alike = rows.join(new.where(has_key).select(*key), on=list(key), how="left_semi")
    return alike.select(new.columns).unionByName(new.where(~has_key))
