"""Verification of child tables by Spark: the elements of a parent against silver and quarantine."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.layers.silver import transform
from medallion.layers.silver.child import elements
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT

_ROW, _NUMBER, _MORE, _TAKEN = "_row", "_number", "_more", "_taken"


_MICROS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


def child_differences(
    config: Config, name: str, parent: DataFrame, silver: DataFrame, quarantine: DataFrame
) -> dict[str, int]:
    """Return the number of rows by difference, without those of 0.

    Args:
        config: the configuration.
        name: the child table, without its layer.
        parent: the rows of its parent.
        silver: its rows.
        quarantine: its quarantined rows.
    """
    table, source = config.silver[name], config.sources[config.root(name)]
    rows = elements(parent, table)
    in_quarantine = [column for column in rows.columns if column != table.explode]
    missing = quarantine.unionByName(rows.limit(0), allowMissingColumns=True)
    rows = _numbered(rows, in_quarantine)
    quarantined = _numbered(missing.drop(FAILED_RULES), in_quarantine).select(_ROW, _NUMBER)
    good = rows.join(quarantined, [_ROW, _NUMBER], "left_anti")
    expressions = [F.expr(sql).alias(column) for column, sql in table.columns.items()]
    origin = (*source.silver_origin_columns, INGESTED_AT)
    left = good.select(*expressions, *origin).withColumns({_MORE: F.lit(1), _TAKEN: F.lit(0)})
    right = silver.withColumns({_MORE: F.lit(-1), _TAKEN: F.lit(1)}).select(left.columns)
    keys = list(table.keys)
    row = _json([*table.columns, *origin]).alias(_ROW)
    both = left.unionByName(right).select(*keys, row, _MORE, _TAKEN)
    by_row = both.groupBy(*keys, _ROW).agg(F.sum(_MORE).alias(_MORE), F.max(_TAKEN).alias(_TAKEN))
    # If a key is taken, its other rows are duplicates.
    is_taken = F.max(_TAKEN).over(Window.partitionBy(*keys)) > 0 if keys else F.lit(False)
    is_lost = (F.col(_MORE) > 0) & ~(transform.has_identity(keys) & is_taken)
    lost, extra = (
        by_row.withColumn("_lost", F.when(is_lost, F.col(_MORE)))
        .agg(F.sum("_lost"), F.sum(F.when(F.col(_MORE) < 0, -F.col(_MORE))))
        .collect()[0]
    )
    surplus = quarantined.join(rows, [_ROW, _NUMBER], "left_anti").count()
    found = {
        f"in silver or quarantine are not of silver.{table.parent}": (extra or 0) + surplus,
        f"of silver.{table.parent} are in neither silver nor quarantine": lost or 0,
    }
    return {difference: count for difference, count in found.items() if count}


def _numbered(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows with their columns as one string, and a number among equal rows."""
    number = F.row_number().over(Window.partitionBy(_ROW).orderBy(F.lit(1)))
    return rows.withColumn(_ROW, _json(columns)).withColumn(_NUMBER, number)


def _json(columns: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns), _MICROS)
