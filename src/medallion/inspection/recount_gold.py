"""Gold counted again: silver aggregated once more, as one batch, and compared group by group."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.expressions import without_quoted
from medallion.config.model import Aggregate, Config, GoldTable, Join, Statement
from medallion.errors import FAULTS, ConfigError
from medallion.inspection.comparable import Comparable
from medallion.lakehouse.text import counted
from medallion.layers.gold.flow import made_of
from medallion.sources.base import Recount
from medallion.spark.errors import SPARK_ERRORS, one_line
from medallion.spark.table_files import rows_at

# Sums of fractions depend on the order of their terms. Two of them are the same if they differ by
# less than this part of the greater one, or by less than this part of the sum of the terms without
# their signs: terms that cancel leave little beside them. Unknown terms are taken to make 1.
_NEAR, _NEAR_OF_TERMS = 1e-9, 1e-12
_FRACTIONS = ("double", "float")
_NUMBERS = (*_FRACTIONS, "decimal", "bigint", "int")
_FINITE = 1e300
# Aggregates that depend on the order of rows, which in a stream is another one.
_BY_ORDER = re.compile(
    r"\b(array_agg|collect_(?:list|set)|(?:first|last)(?:_value)?|any_value|m(?:ax|in)_by|mode"
    r"|percentile_approx|approx_percentile|listagg|string_agg|histogram_numeric)\s*\(",
    re.IGNORECASE,
)
_WORD = re.compile(r"\w+")
# What a measure adds up, as far as that shows without a parser of SQL.
_SUM = re.compile(r"\b(?:sum|avg|mean)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.IGNORECASE)
_NO_TERM = re.compile(r"['\"`]|--|/\*|\A\s*(?:distinct|all)\b", re.IGNORECASE)
_SIDE, _TERMS = " side", " terms"  # no column of gold has a blank


def compare(spark: SparkSession, config: Config, same: Comparable, found: Recount) -> None:
    """Make a table of gold anew, and find the groups that differ."""
    name = same.query.name
    table = config.gold[name.removeprefix("gold.")]
    try:
        differing, by_order = _differing(spark, config, table, same)
    except (*FAULTS, *SPARK_ERRORS) as error:
        told = one_line(str(error))
        # Spark's analysis also fails of a file of data that is gone, which is no fault of the SQL.
        if isinstance(error, (AnalysisException, ConfigError)) and "PATH_NOT_FOUND" not in told:
            found.notes.append(f"{name}: not compared ({told}).")
        else:
            found.findings.append(f"{name}: it cannot be compared: {told}")
        return
    told = f"{name}: it differs from silver's rows in {counted(differing or by_order, 'group')}"
    if differing:
        found.findings.append(f"{told}: medallion refresh {name} makes it anew.")
    elif by_order:
        taken = ", ".join(sorted(set().union(*_by_order(table.made).values())))
        why = (
            f"which is no fault where that is for {taken or 'fractions'} of its query"
            if isinstance(table.made, Statement)
            else f"by {taken or 'fractions in a struct or a list'} alone"
        )
        found.notes.append(f"{told}, {why}: those depend on the order of rows.")


def _by_order(made: Aggregate | Statement | Join) -> dict[str, set[str]]:
    """The measures that depend on the order of rows, with the functions; "" is all of a query."""
    if isinstance(made, Join):
        return {}
    texts = made.measure if isinstance(made, Aggregate) else {"": made.sql}
    called = {name: _BY_ORDER.findall(without_quoted(sql)) for name, sql in texts.items()}
    return {name: {call.lower() for call in calls} for name, calls in called.items() if calls}


def _differing(
    spark: SparkSession, config: Config, table: GoldTable, same: Comparable
) -> tuple[int, int]:
    """How many groups differ surely, and how many do if measures count as well that depend on the
    order of rows.

    A group differs if it is not there as often in both, or has another measure. Where the table is
    no aggregate, rows with the same values in all columns but fractions are a group.
    """
    made = table.made
    gold, *read = (
        rows_at(spark, config.layout.table(name), same.versions[name])
        for name in (same.query.name, *same.query.upstream)
    )
    silver = dict(zip(same.query.sources, read, strict=True))
    kinds = dict(gold.dtypes)
    fractions = [name for name, kind in kinds.items() if kind in _FRACTIONS]
    nested = {n for n, k in kinds.items() if n not in fractions and any(f in k for f in _FRACTIONS)}
    exact = [name for name in kinds if name not in fractions and name not in nested]
    keys = made.groups if isinstance(made, Aggregate) else exact
    rest = [name for name in kinds if name not in keys]
    terms = _terms(made, silver, fractions) if isinstance(made, Aggregate) else {}
    again = _again(spark, config, _with(table, terms), silver, same.watermark)
    by_order = {*_by_order(made), *nested}
    known = [name for name in rest if name not in by_order]
    surely = F.lit(False) if "" in by_order else _differs(known, fractions, terms)
    (found,) = (
        _side_by_side(gold, again, keys, rest, fractions)
        .agg(F.count_if(surely), F.count_if(_differs(rest, fractions, terms)))
        .collect()
    )
    return found[0], found[1]


def _terms(
    made: Aggregate, silver: Mapping[str, DataFrame], fractions: Collection[str]
) -> dict[str, str]:
    """For each measure that is a fraction: the sum of the numbers that it is made of, and of the
    terms that it adds up, without their signs, as SQL."""
    kinds = {name: kind for rows in silver.values() for name, kind in rows.dtypes}
    numbers = [name for name, kind in kinds.items() if kind.startswith(_NUMBERS)]
    found = {}
    for name in fractions:
        sql = made.measure.get(name, "")
        words = {word.lower() for word in _WORD.findall(sql)}
        if named := [f"`{number}`" for number in numbers if number.lower() in words]:
            added = (term for term in _SUM.findall(sql) if not _NO_TERM.search(term))
            each = (f"sum(abs(cast({term} as double)))" for term in (*named, *added))
            found[name] = " + ".join(each)
    return found


def _with(table: GoldTable, terms: Mapping[str, str]) -> GoldTable:
    """The table with the sums of the terms beside its measures."""
    made = table.made
    if not terms or not isinstance(made, Aggregate):
        return table
    more = {f"{name}{_TERMS}": sql for name, sql in terms.items()}
    return replace(table, made=replace(made, measure={**made.measure, **more}))


def _side_by_side(
    gold: DataFrame,
    again: DataFrame,
    keys: Collection[str],
    rest: Iterable[str],
    fractions: Collection[str],
) -> DataFrame:
    """A row a group: how much more often gold has it, and of each other column what is in gold
    (`column 1`) and what is counted again (`column -1`); of fractions, their sums."""
    sides = gold.withColumn(_SIDE, F.lit(1)), again.withColumn(_SIDE, F.lit(-1))
    both = sides[0].unionByName(sides[1], allowMissingColumns=True)

    def of(side: int, name: str) -> Column:
        value = F.when(F.col(_SIDE) == side, F.col(f"`{name}`"))
        return F.sum(value) if name in fractions else F.first(value, ignorenulls=True)

    found = [of(side, name).alias(f"{name} {side}") for name in rest for side in (1, -1)]
    found += [F.sum(f"`{name}`").alias(name) for name in again.columns if name.endswith(_TERMS)]
    return both.groupBy(*(f"`{key}`" for key in keys)).agg(F.sum(_SIDE).alias(_SIDE), *found)


def _differs(names: Iterable[str], fractions: Collection[str], terms: Collection[str]) -> Column:
    """Whether a group of `_side_by_side` is not as often in both, or differs in these columns."""
    same = F.col(_SIDE) == 0
    for name in names:
        one, other = F.col(f"`{name} 1`"), F.col(f"`{name} -1`")
        is_same = one.eqNullSafe(other)
        if name in fractions:
            is_same |= _are_near(one, other, F.col(f"`{name}{_TERMS}`") if name in terms else None)
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


def _are_near(one: Column, other: Column, terms: Column | None) -> Column:
    """Whether two fractions are the same but for the order of their terms.

    Strictly less: with `<=` an infinity would be the same as any number, and so would NaN.
    """
    apart = F.abs(one - other)
    near = apart < _NEAR * F.greatest(F.abs(one), F.abs(other))
    if terms is None:
        near |= apart < _NEAR
    else:
        near |= (terms < _FINITE) & (apart < _NEAR_OF_TERMS * terms)
    return F.coalesce(near, F.lit(False))
