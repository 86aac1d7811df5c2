"""The keys of a silver table, with `_time_digits` for times finer than a microsecond.

If bronze has the column `_full_times` and a key is computed from such a time, silver has the key
column `_time_digits`. An existing table cannot get another key. In an older table, rows that differ
only in these digits would be duplicates, so rows with such digits go to quarantine by the rule
`time_digits` until the table is rebuilt.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import Config, SourceConfig
from medallion.config.values import fold_case
from medallion.errors import ConfigError
from medallion.ingest.parsing.times import digits_beyond_micros
from medallion.layers.silver.transform import has_identity
from medallion.spark import checkpoints
from medallion.spark.plans import contains_type, fields_in
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import FULL_TIMES, TIME_DIGITS, quote_identifier

TIME_DIGITS_RULE = "time_digits"
NULL_KEY_RULE = "null_key"
# Functions and target types of casts whose result does not depend on digits beyond microseconds.
_COARSE = {
    *("bigint", "date", "date_format", "date_part", "date_trunc", "datepart", "day", "dayofmonth"),
    *("extract", "hour", "int", "minute", "month", "quarter", "second", "to_date", "trunc"),
    *("to_unix_timestamp", "unix_date", "unix_millis", "unix_seconds", "unix_timestamp", "year"),
}
_MOST_KEYS = 2_500_000  # of a table, held in memory: 400 MB
_RANGED = (T.StringType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType)


def has_null_key(keys: Sequence[str]) -> str:
    """Return the condition that a key of a row is null, in SQL."""
    return " OR ".join(f"{quote_identifier(key)} IS NULL" for key in keys)


def with_time_digits(
    config: Config, source: SourceConfig, bronze: DataFrame
) -> tuple[SourceConfig, dict[str, str]]:
    """Return a source's configuration, with the key `_time_digits` if bronze's rows need it.

    Args:
        source: the source as it is configured.
        bronze: the source's bronze table.

    Returns:
        The source's configuration; and the rule for rows that need the key, if silver's table was
        started without it.
    """
    digits = _time_digits_sql(source, bronze)
    if not digits:
        return source, {}
    name = f"silver.{source.name}"
    table = config.layout.table(name)
    # Change records are merged by the configured keys.
    is_older = source.cdc is not None or (
        delta_tables.table_exists(table)
        and TIME_DIGITS not in delta_tables.column_names(table)
        and checkpoints.last_planned(config.layout.checkpoint(name)) >= 0
    )
    if is_older:
        return source, {TIME_DIGITS_RULE: f"{digits} <> ''"}
    return _with_key(source, digits), {}


def with_recorded_time_digits(config: Config, source: SourceConfig) -> SourceConfig:
    """Return a source's configuration, with the key `_time_digits` if silver's table has it."""
    checkpoint = config.layout.checkpoint(f"silver.{source.name}")
    digits = (checkpoints.read_document(checkpoint, "definition") or {}).get(f"{TIME_DIGITS} as")
    return _with_key(source, digits) if digits and TIME_DIGITS not in source.silver else source


def _with_key(source: SourceConfig, digits: str) -> SourceConfig:
    silver = {**source.silver, TIME_DIGITS: digits}
    return replace(source, silver=silver, keys=(*source.keys, TIME_DIGITS))


def _time_digits_sql(source: SourceConfig, bronze: DataFrame) -> str | None:
    """Return SQL for the digits beyond the microsecond of the times in a source's keys, if any."""
    types = dict(bronze.dtypes)
    if FULL_TIMES not in types:
        return None
    keys = (source.silver[key] for key in source.keys)
    named = {fold_case(name[0]) for name in fields_in(bronze.sparkSession, keys, _COARSE)}
    times = sorted(name for name, type_ in types.items() if type_ == "timestamp")
    digits = [digits_beyond_micros(name) for name in times if fold_case(name) in named]
    # Separated, so that the digits of one time are not taken for those of another.
    return f"rtrim(',', concat_ws(',', {', '.join(digits)}))" if digits else None


def key_range(rows: DataFrame, keys: Sequence[str]) -> Column:
    """Return the condition that each key is between the least and the greatest one of some rows.

    By it, Delta skips files of a table that have none of these keys.
    """
    types = {f.name: f.dataType for f in rows.schema if f.name in keys}
    ranged = [name for name, type_ in types.items() if isinstance(type_, _RANGED)]
    ends = [end(name).cast("string") for name in ranged for end in (F.min, F.max)]
    values = rows.agg(F.count(F.lit(1)), *ends).collect()[0][1:]
    condition = F.lit(True)
    for number, name in enumerate(ranged):
        first, last = (F.lit(v).cast(types[name]) for v in values[2 * number : 2 * number + 2])
        condition = condition & F.col(name).between(first, last)
    return condition


def refuse_inexact_keys(config: Config, entry: str, keys: Sequence[str], rows: DataFrame) -> None:
    """Raise ConfigError for floating-point keys.

    0.0 and -0.0 are equal in SQL, but two keys in Spark's state, which compares bytes.

    Args:
        entry: the path of the table's entry in pipeline.yaml.
        keys: the keys of the table.
        rows: rows of the table.
    """
    types = {field.name: field.dataType for field in rows.schema}
    if inexact := [key for key in keys if contains_type(types[key], T.FloatType, T.DoubleType)]:
        raise ConfigError(
            f"{config.pipeline_file}: {entry}.keys has the floating-point column "
            f"{', '.join(inexact)}, whose equal values may differ in their bytes (0.0 and -0.0). "
            "Cast it to a decimal or a string."
        )


def has_unique_keys(table: StoragePath, key: Sequence[str]) -> bool:
    """Return whether no two rows of a table have the same key; False also for a large table.

    Rows with a null in their key are ignored. DataFusion runs the query in a fifth of Spark's
    time, but holds all keys in memory.

    Args:
        table: the Delta table.
        key: the columns of a row's identity.
    """
    if delta_tables.row_count(table) > _MOST_KEYS:
        return False
    columns = [quote_identifier(column) for column in key]
    has_key = " and ".join(f"{column} is not null" for column in columns)
    repeated = f"where {has_key} group by {', '.join(columns)} having count(*) > 1 limit 1"
    return not delta_tables.select_rows(table, "count(*)", repeated)


def with_rows_of_same_key(new: DataFrame, rows: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return new rows, and the older rows that have the key of a new row.

    Args:
        new: the new rows.
        rows: all rows of the table, the new ones included.
        key: the columns of a row's identity.
    """
    has_key = has_identity(key)
    same = rows.join(new.where(has_key).select(*key), on=list(key), how="left_semi")
    return same.select(new.columns).unionByName(new.where(~has_key))
