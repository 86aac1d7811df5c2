"""What a deep audit has Spark look at: silver held against bronze, and gold against silver."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, GoldTable, Join
from medallion.errors import ITEM_ERRORS, ConfigError
from medallion.ingest.source import Verification
from medallion.inspect import comparable
from medallion.inspect.comparable import Comparable
from medallion.layers.gold.transform import gold_rows
from medallion.layers.silver import transform
from medallion.layers.silver.keys import with_recorded_time_digits
from medallion.layers.silver.lookup import recorded_lookup_rules
from medallion.layers.silver.rules import LATE_RULE
from medallion.spark import delta_reads, signals
from medallion.spark.delta_reads import rows_at
from medallion.spark.errors import SPARK_ERRORS, describe_error, one_line
from medallion.spark.plans import analyzed_plan, node_type, plan_expressions, plan_nodes
from medallion.spark.session import session_of_command
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, OFFSET
from medallion.storage.text import Reporter, counted


def verify_tables(config: Config, unjudged: Collection[str], say: Reporter) -> Verification:
    """Compare each table that has read all there is; Spark is started for that, and said to be.

    Args:
        unjudged: the sources that are being written; with any, gold is not compared.
    """
    silver, found = comparable.comparable_silver(config, unjudged)
    gold, of_gold = ([], Verification()) if unjudged else comparable.comparable_gold(config)
    found.findings += of_gold.findings
    found.notes += of_gold.notes
    if unjudged:
        found.notes.append(
            f"gold: not compared, for {', '.join(sorted(unjudged))} is being written."
        )
    if silver or gold:
        with _session(config, say) as spark:
            for table in silver:
                signals.raise_if_requested()
                verify_silver(spark, config, table, found)
            for same in gold:
                signals.raise_if_requested()
                verify_gold(spark, config, same, found)
    return found


@contextmanager
def _session(config: Config, say: Reporter) -> Iterator[SparkSession]:
    """The session that is on already, or one of its own."""
    if there := SparkSession.getActiveSession():
        yield there
        return
    say("starting Spark, to hold silver against bronze and to make gold anew")
    with session_of_command(config, "medallion audit") as spark:
        yield spark


_SHOWN = 20
_INVENTED, _LOST = "invented", "lost"
_MORE, _TAKEN = "_more", "_taken"


def verify_silver(
    spark: SparkSession, config: Config, same: Comparable, found: Verification
) -> None:
    """Find rows of silver and quarantine that bronze does not have, or not as often; and rows of
    bronze that are in neither table, and are no duplicates of a row that is.

    Only the keys are compared, and where a row came from.
    """
    name = same.query.source
    try:
        odd = _differing_rows(spark, config, same).limit(_SHOWN).collect()
    except (*ITEM_ERRORS, *SPARK_ERRORS) as error:  # such as a file, or a table, that is gone
        told = describe_error(error)
        found.findings.append(f"silver.{name}: it cannot be held against bronze: {told}")
        return
    for place, what, count in odd:
        where, rows = "/".join(place) or "all of it", counted(count, "row")
        found.findings.append(
            f"{name}: {where} has {rows} in silver or quarantine that bronze has not, or not so "
            "often."
            if what == _INVENTED
            else f"{name}: {where} has {rows} in bronze that came into neither silver nor "
            f"quarantine, and no duplicates: medallion refresh silver.{name} rebuilds both."
        )


def _differing_rows(spark: SparkSession, config: Config, same: Comparable) -> DataFrame:
    """A row a place and fault: where rows came from, what is wrong, and with how many of them."""
    source = with_recorded_time_digits(config, config.sources[same.query.source])
    keys = list(source.keys)
    rows = _rows_of_all_three(spark, config, same).repartition(*keys)  # once for both groupings
    by_row = rows.groupBy(*rows.columns[:-2]).agg(F.sum(_MORE), F.sum(_TAKEN))
    more, taken = F.col(f"sum({_MORE})"), F.sum(f"sum({_TAKEN})") > 0
    columns = [column for column in source.silver_origin_columns if column != OFFSET]
    place = F.array(*(F.col(column).cast("string") for column in columns))
    sides = [
        F.struct(
            F.max(F.when(count > 0, place)).alias("place"),
            F.lit(what).alias("what"),
            F.sum(F.when(count > 0, count)).alias("rows"),
        )
        for what, count in ((_INVENTED, -more), (_LOST, more))
    ]
    # Of the rows of a key that is taken, it does not matter which are left out as duplicates.
    sides[1] = F.when(~(transform.has_identity(keys) & taken), sides[1])
    by_key = by_row.groupBy(*keys).agg(F.array(*sides).alias("_odd"))
    odd = by_key.select(F.explode("_odd").alias("_odd")).where("_odd.rows > 0")
    return odd.groupBy("_odd.place", "_odd.what").agg(F.sum("_odd.rows"))


def _rows_of_all_three(spark: SparkSession, config: Config, same: Comparable) -> DataFrame:
    """The rows of all three tables: their keys, where they came from and when; `_more`, 1 for a row
    of bronze and -1 for others; and `_taken`, 1 for a row that makes its key taken."""
    source = with_recorded_time_digits(config, config.sources[same.query.source])
    bronze, silver, quarantine = (
        delta_reads.rows_at(spark, config.layout.table(name), same.versions[name])
        for name in (*same.query.upstream, *same.query.targets)
    )
    rest = [F.col(column) for column in (*source.silver_origin_columns, INGESTED_AT)]
    made = [*(F.expr(source.silver[key]).alias(key) for key in source.keys), *rest]
    # Rows set aside for these rules had passed the deduplication, or were late: their key is taken.
    rules = [LATE_RULE, *recorded_lookup_rules(config.layout.checkpoint(same.query.name))]
    was_taken = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules))).cast("int")
    aside = transform.with_bronze_columns(quarantine, bronze)
    one, less = F.lit(1), F.lit(-1).alias(_MORE)
    first = bronze.select(*made, one.alias(_MORE), F.lit(0).alias(_TAKEN))
    second = silver.select(*map(F.col, source.keys), *rest, less, one.alias(_TAKEN))
    third = aside.select(*made, less, was_taken.alias(_TAKEN))
    return first.unionByName(second).unionByName(third)


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


def verify_gold(spark: SparkSession, config: Config, same: Comparable, found: Verification) -> None:
    """Recompute a table of gold and add findings for the groups that differ."""
    name = same.query.name
    table = config.gold[name.removeprefix("gold.")]
    try:
        differing, skipped = _differing_groups(spark, config, table, same)
    except (*ITEM_ERRORS, *SPARK_ERRORS) as error:
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


def _differing_groups(
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
    again = _recomputed(spark, config, table, silver, same.watermark)
    skipped = _skipped(table, again)
    names = [name for name in gold.columns if name not in skipped]
    fractions = [name for name, kind in gold.dtypes if kind in _FRACTIONS]
    made = table.definition
    keys = made.groups if isinstance(made, Aggregate) else set(names).difference(fractions)
    rest = [name for name in names if name not in keys]
    if not names:
        return 0, skipped
    sides = _both_sides(gold.select(names), again.select(names), keys, rest, fractions)
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
    plan = analyzed_plan(again)
    if isinstance(table.definition, Aggregate):
        for alias in (node for node in plan_expressions(plan) if node_type(node) == "Alias"):
            if functions := _order_dependent(plan_nodes(alias)):
                skipped[alias.name()] = functions
    elif functions := _order_dependent(plan_expressions(plan)):
        skipped = dict.fromkeys(again.columns, functions)
    return skipped


def _order_dependent(found: Iterable[Any]) -> str:
    """Return the names of the order-dependent aggregates among expressions, in one string."""
    return ", ".join(
        sorted({n.prettyName() for n in found if _ORDER_DEPENDENT.fullmatch(node_type(n))})
    )


def _both_sides(
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


def _recomputed(
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
    made = table.definition
    if not isinstance(made, Join):
        again = gold_rows(spark, config, table, silver)
        # A count of nothing is a row to a batch, and none to a stream.
        return again.limit(0) if all(rows.isEmpty() for rows in silver.values()) else again
    pairs = replace(table, definition=replace(made, kind="inner"))
    if made.kind == "inner" or watermark is None:
        return gold_rows(spark, config, pairs, silver)
    first = table.sources[0]
    until = (watermark - made.within.seconds * 1000 - 1) * 1000
    waits = F.unix_micros(config.sources[first].event_time) > until
    waiting = {**silver, first: silver[first].where(waits)}
    told = {**silver, first: silver[first].where(~waits)}
    found = gold_rows(spark, config, pairs, waiting)
    return gold_rows(spark, config, table, told).unionByName(found)
