"""Verification of gold: recompute a table from silver in one batch and compare the groups."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, GoldTable, Join
from medallion.errors import FAULTS, ConfigError
from medallion.ingest.source import Verification
from medallion.inspect.comparable import Comparable
from medallion.layers.gold.flow import made_of
from medallion.spark.delta_reads import rows_at
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.plans import analyzed, expressions, kind_of, nodes
from medallion.storage.text import counted

# Sums of doubles depend on the order of their terms. Below 1 the tolerance is absolute, because
# terms that cancel leave a small remainder.
_TOLERANCE = 1e-9
_FRACTIONS = ("double", "float")
# Spark's aggregates whose result depends on the order of rows, which differs in a stream.
_ORDER_DEPENDENT = re.compile(
    "AnyValue|Approx(imatePercentile|TopK)|Collect(List|Set)|First|Last|HistogramNumeric|ListAgg"
    "|M(ax|in)By|Mode"
)
_SIDE = " side"  # no column of gold has a blank


def compare(spark: SparkSession, config: Config, same: Comparable, found: Verification) -> None:
    """Recompute a table of gold and add findings for the groups that differ."""
    name = same.query.name
    table = config.gold[name.removeprefix("gold.")]
    try:
        differing, skipped = _differing(spark, config, table, same)
    except (*FAULTS, *SPARK_ERRORS) as error:
        message = one_line(str(error))
        # Spark's analysis also fails if a data file is gone, which is not an error in the SQL.
        if isinstance(error, (AnalysisException, ConfigError)) and "PATH_NOT_FOUND" not in message:
            found.notes.append(f"{name}: not compared ({message}).")
        else:
            found.findings.append(f"{name}: it cannot be compared: {message}")
        return
    if differing:
        groups = counted(differing, "group")
        found.findings.append(
            f"{name}: it differs from silver's rows in {groups}: medallion refresh {name} makes it "
            "anew."
        )
    if skipped:
        columns = "; ".join(f"{column} ({why})" for column, why in skipped.items())
        found.notes.append(f"{name}: not compared, because the order of rows matters: {columns}.")


def _differing(
    spark: SparkSession, config: Config, table: GoldTable, same: Comparable
) -> tuple[int, dict[str, str]]:
    """Count the groups that differ.

    A group differs if gold does not have it as often, or has another measure. In a table without
    measures, rows with the same values in all columns but doubles are a group.

    Returns:
        The number of groups, and the columns that were skipped with the reason.
    """
    gold, *read = (
        rows_at(spark, config.layout.table(name), same.versions[name])
        for name in (same.query.name, *same.query.upstream)
    )
    silver = dict(zip(same.query.sources, read, strict=True))
    again = _again(spark, config, table, silver, same.watermark)
    skipped = _skipped(table, again)
    names = [name for name in gold.columns if name not in skipped]
    fractions = [name for name, kind in gold.dtypes if kind in _FRACTIONS]
    made = table.made
    keys = made.groups if isinstance(made, Aggregate) else set(names).difference(fractions)
    rest = [name for name in names if name not in keys]
    if not names:
        return 0, skipped
    sides = _side_by_side(gold.select(names), again.select(names), keys, rest, fractions)
    return sides.where(_differs(rest, fractions)).count(), skipped


def _skipped(table: GoldTable, again: DataFrame) -> dict[str, str]:
    """Return the columns that depend on the order of rows, each with the reason.

    An order-dependent aggregate in a SQL statement skips all columns.
    """
    skipped = {
        name: "a double in a struct or a list"
        for name, kind in again.dtypes
        if kind not in _FRACTIONS and any(fraction in kind for fraction in _FRACTIONS)
    }
    plan = analyzed(again)
    if isinstance(table.made, Aggregate):
        for alias in (node for node in expressions(plan) if kind_of(node) == "Alias"):
            if functions := _order_dependent(nodes(alias)):
                skipped[alias.name()] = functions
    elif functions := _order_dependent(expressions(plan)):
        skipped = dict.fromkeys(again.columns, functions)
    return skipped


def _order_dependent(found: Iterable[Any]) -> str:
    """Return the names of the order-dependent aggregates among expressions, in one string."""
    return ", ".join(
        sorted({n.prettyName() for n in found if _ORDER_DEPENDENT.fullmatch(kind_of(n))})
    )


def _side_by_side(
    gold: DataFrame,
    again: DataFrame,
    keys: Collection[str],
    rest: Iterable[str],
    fractions: Collection[str],
) -> DataFrame:
    """Return one row for each group: how much more often gold has it, and each other column twice.

    `column 1` is the value in gold and `column -1` the recomputed one; doubles are summed.
    """
    both = gold.withColumn(_SIDE, F.lit(1)).unionByName(again.withColumn(_SIDE, F.lit(-1)))

    def value(side: int, name: str) -> Column:
        found = F.when(F.col(_SIDE) == side, F.col(f"`{name}`"))
        return F.sum(found) if name in fractions else F.first(found, ignorenulls=True)

    values = [value(side, name).alias(f"{name} {side}") for name in rest for side in (1, -1)]
    return both.groupBy(*(f"`{key}`" for key in keys)).agg(F.sum(_SIDE).alias(_SIDE), *values)


def _differs(names: Iterable[str], fractions: Collection[str]) -> Column:
    """Return the condition that a group of `_side_by_side` differs in number or in a column."""
    same = F.col(_SIDE) == 0
    for name in names:
        one, other = F.col(f"`{name} 1`"), F.col(f"`{name} -1`")
        is_same = one.eqNullSafe(other)
        if name in fractions:
            # Strictly less: with `<=` an infinity would equal any number, and so would NaN.
            near = F.abs(one - other) < _TOLERANCE * F.greatest(F.abs(one), F.abs(other), F.lit(1))
            is_same |= F.coalesce(near, F.lit(False))
        same &= is_same
    return ~same


def _again(
    spark: SparkSession,
    config: Config,
    table: GoldTable,
    silver: Mapping[str, DataFrame],
    watermark: int | None,
) -> DataFrame:
    """What a stream has made of these rows by now, made as one batch.

    With `left`, a join of streams gives out a row without a partner only when the watermark says
    that none can come any more. (Source: getStateValueWatermark of Spark's StreamingJoinHelper, for
    bounds that are inclusive.)
    """
    made = table.made
    if not isinstance(made, Join):
        again = made_of(spark, config, table, silver)
        # A count of nothing is a row to a batch, and none to a stream.
        return again.limit(0) if all(rows.isEmpty() for rows in silver.values()) else again
    pairs = replace(table, made=replace(made, kind="inner"))
    if made.kind == "inner" or watermark is None:
        return made_of(spark, config, pairs, silver)
    first = table.sources[0]
    until = (watermark - made.within.seconds * 1000 - 1) * 1000
    waits = F.unix_micros(config.sources[first].event_time) > until
    waiting = {**silver, first: silver[first].where(waits)}
    told = {**silver, first: silver[first].where(~waits)}
    found = made_of(spark, config, pairs, waiting)
    return made_of(spark, config, table, told).unionByName(found)
