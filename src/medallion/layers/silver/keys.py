"""The keys of a silver table."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import Config
from medallion.errors import ConfigError
from medallion.layers.silver.transform import has_identity, has_null_key
from medallion.spark.plans import contains_type
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import quote_identifier

NULL_KEY_RULE = "null_key"
_MOST_KEYS = 2_500_000  # of a table, held in memory: 400 MB
_RANGED = (T.StringType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType)


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
    columns = ", ".join(map(quote_identifier, key))
    repeated = f"where not ({has_null_key(key)}) group by {columns} having count(*) > 1 limit 1"
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
