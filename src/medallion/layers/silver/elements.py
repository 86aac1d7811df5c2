"""Pure transformations from a silver table's rows to those of a child table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType

from medallion.config.tables import ChildTable
from medallion.errors import ConfigError
from medallion.layers.silver import transform
from medallion.quality.rules import Rule
from medallion.storage.table_specs import FAILED_RULES

DUPLICATE_RULE = "duplicate_key"


def elements(parent: DataFrame, table: ChildTable) -> DataFrame:
    """Return the parent's rows, once per element, that meet the table's condition.

    Raises:
        ConfigError: `explode` gives neither an array nor a map, or `key` is a column already.
    """
    rows = parent
    if table.explode:
        type_ = parent.select(F.expr(table.explode)).schema[0].dataType
        if not isinstance(type_, ArrayType | MapType):
            raise ConfigError(
                f"silver.{table.name}: explode is {type_.simpleString()}, neither an array nor a "
                "map. Name another column, or convert it with from_json or split."
            )
        names = ["pos", "item"] if isinstance(type_, ArrayType) else ["pos", "key", "item"]
        if {*names} & {*parent.columns}:
            raise ConfigError(
                f"silver.{table.name}: explode adds the column key, which silver.{table.parent} "
                "already has. Rename that column."
            )
        function = F.posexplode_outer if table.outer else F.posexplode
        rows = parent.select("*", function(F.expr(table.explode)).alias(*names))
    return rows.where(F.expr(table.where)) if table.where else rows


def child_rows(
    rows: DataFrame, table: ChildTable, rules: Mapping[str, str], origin: Sequence[str]
) -> DataFrame:
    """Return a child table's columns, and the rules that each row breaks.

    Args:
        rows: the rows of `elements`.
        table: the child table.
        rules: its rules, with Spark SQL over its columns.
        origin: columns that say where a row came from.

    Returns:
        The columns of `transform.apply_rules`. The row for quarantine lacks an exploded column,
        which would repeat all elements of the parent in each.
    """
    conditions = [Rule(name, broken) for name, broken in rules.items()]
    return transform.apply_rules(
        rows, table.columns, "", (), conditions, origin, left_out=table.explode or ""
    )


def quarantine_duplicates(rows: DataFrame) -> DataFrame:
    """Return rows with `_is_duplicate`; those whose key is taken break DUPLICATE_RULE."""
    rule = F.when(F.col(transform.DUPLICATE), F.array(F.lit(DUPLICATE_RULE)))
    return rows.withColumn(FAILED_RULES, F.coalesce(rule, FAILED_RULES))
