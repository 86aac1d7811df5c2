"""Verification by Spark, for a deep audit: silver against bronze, and gold against silver.

A table is verified if its query has read all of its input, at the versions at which that holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, GoldTable, Join
from medallion.config.queries import Query, queries
from medallion.errors import ITEM_ERRORS, ConfigError, error_message
from medallion.ingest.source import Verification
from medallion.layers.gold.definition import gold_definition, refuse_changed_gold
from medallion.layers.gold.flow import LATE_ROWS_ADVICE
from medallion.layers.gold.transform import gold_rows
from medallion.layers.silver import transform
from medallion.layers.silver.keys import with_recorded_time_digits
from medallion.layers.silver.lookup import recorded_lookup_rules
from medallion.layers.silver.rules import LATE_RULE, refuse_changed_silver
from medallion.spark import checkpoints, delta_reads, signals
from medallion.spark.errors import SPARK_ERRORS, FailureCode, classify, describe_error, one_line
from medallion.spark.plans import analyzed_plan, node_type, plan_expressions, plan_nodes
from medallion.spark.session import session_of_command
from medallion.state import pending_work, refresh_plan
from medallion.state.runs import Runs
from medallion.storage import delta_tables
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, OFFSET
from medallion.storage.text import Reporter, counted

_MAX_FINDINGS = 20
_EXTRA, _LOST = "extra", "lost"
_IN_BRONZE, _KEY_TAKEN = "_in_bronze", "_key_taken"
# Sums of doubles depend on the order of their terms. Below 1 the tolerance is absolute, because
# terms that cancel leave a small remainder.
_TOLERANCE = 1e-9
_FLOAT_TYPES = ("double", "float")
# Spark's aggregates whose result depends on the order of rows, which differs in a stream.
_ORDER_DEPENDENT = re.compile(
    "AnyValue|Approx(imatePercentile|TopK)|Collect(List|Set)|First|Last|HistogramNumeric|ListAgg"
    "|M(ax|in)By|Mode"
)
_SIDE = " side"  # no column of gold has a blank


@dataclass(frozen=True)
class VerifiableQuery:
    """A query that has read all of its input.

    Attributes:
        query: the query.
        versions: of each table that it reads or writes, by name.
        watermark: that of its last batch, in milliseconds since 1970.
    """

    query: Query
    versions: Mapping[str, int]
    watermark: int | None


def verify_tables(config: Config, unchecked: Collection[str], say: Reporter) -> Verification:
    """Verify each table of silver and gold whose query has read all of its input.

    Args:
        config: the configuration.
        unchecked: sources that are being written; if there is one, gold is not verified.
        say: reports that Spark is started.
    """
    result = Verification()
    silver = _verifiable_silver(config, unchecked, result)
    gold = [] if unchecked else _verifiable_gold(config, result)
    if unchecked:
        sources = ", ".join(sorted(unchecked))
        result.notes.append(f"gold: not verified: {sources} is being written.")
    if silver or gold:
        with _session(config, say) as spark:
            for target in silver:
                signals.raise_if_requested()
                verify_silver(spark, config, target, result)
            for target in gold:
                signals.raise_if_requested()
                verify_gold(spark, config, target, result)
    return result


@contextmanager
def _session(config: Config, say: Reporter) -> Iterator[SparkSession]:
    """Yield the active session, or a new one."""
    if active := SparkSession.getActiveSession():
        yield active
        return
    say("starting Spark to verify silver against bronze, and gold against silver")
    with session_of_command(config, "medallion audit") as spark:
        yield spark


def _verifiable_silver(
    config: Config, unchecked: Collection[str], result: Verification
) -> list[VerifiableQuery]:
    """Return the queries of silver that can be verified; add a note for each of the others."""
    runs, verifiable = Runs(config.layout), list[VerifiableQuery]()
    try:
        rebuilding = refresh_plan.pending_tables(config.layout)
    except ITEM_ERRORS:  # the audit reports a damaged plan
        return []
    for query in queries(config, ["silver"]):
        name, checkpoint = query.name, config.layout.checkpoint(query.name)
        try:
            done = checkpoints.last_committed(checkpoint)
            if query.source in unchecked or name in rebuilding or done < 0:
                continue
            # Late rows are inserted when the batch is recorded.
            is_recorded = runs.last_batch(name) >= done
            if reason := _changed_reason(config, query):
                result.notes.append(f"{name}: not verified: {reason}")
            elif is_recorded and (target := _at_versions(config, query, done)):
                verifiable.append(target)
            else:
                result.notes.append(
                    f"{name}: not verified: it has not read all of bronze, or its last batch is "
                    "not recorded."
                )
        except ITEM_ERRORS as error:
            result.findings.append(error_message(error))
    return verifiable


def _verifiable_gold(config: Config, result: Verification) -> list[VerifiableQuery]:
    """Return the queries of gold that can be verified; add a note for each of the others."""
    runs, verifiable = Runs(config.layout), list[VerifiableQuery]()
    for query in queries(config, ["gold"]):
        name = query.name
        try:
            done = checkpoints.last_committed(config.layout.checkpoint(name))
            if not delta_tables.table_exists(config.layout.table(name)):
                if done >= 0:
                    result.findings.append(
                        f"{name}: the table is missing; `medallion run gold` reports what to do."
                    )
            elif runs.late_rows(name):
                result.notes.append(
                    f"{name}: not verified: it lacks late rows; {LATE_ROWS_ADVICE}."
                )
            elif reason := _changed_reason(config, query):
                result.notes.append(f"{name}: not verified: {reason}")
            elif target := _at_versions(config, query, done):
                verifiable.append(target)
            elif runs.has_failed(name):
                error = runs.run_state.last[name].error
                result.findings.append(
                    f"{name}: not verified: it failed ({error}) and has not read all of silver."
                )
            else:
                result.notes.append(f"{name}: not verified: it has not read all of silver yet.")
        except ITEM_ERRORS as error:
            result.findings.append(error_message(error))
    return verifiable


def _changed_reason(config: Config, query: Query) -> str | None:
    """Return how the definition has changed since the table was written; None if it has not."""
    then = checkpoints.noted(config.layout.checkpoint(query.name), "definition")
    layer, _, name = query.name.partition(".")
    try:
        if layer == "silver":
            source = with_recorded_time_digits(config, config.sources[name])
            refuse_changed_silver(config, source, then or {})
        else:
            table = config.gold[name]
            refuse_changed_gold(config, table, then or gold_definition(table))
    except ConfigError as error:
        return f"its definition has changed: {error}"
    return None


def _at_versions(config: Config, query: Query, done: int) -> VerifiableQuery | None:
    """Return a query with the versions of its tables after batch `done`.

    The targets' versions are read before the inputs', so that a running stream does not add rows
    to a target that the inputs lack at these versions.

    Returns:
        None if the batch has not read all input, or another batch has ended since.
    """
    checkpoint, table = config.layout.checkpoint(query.name), config.layout.table
    versions = {name: delta_tables.table_version(table(name)) for name in query.targets}
    for name in query.upstream:
        version = pending_work.version_read(checkpoint, done, table(name))
        if version is None:
            return None
        versions[name] = version
    if checkpoints.last_committed(checkpoint) != done:
        return None
    return VerifiableQuery(query, versions, checkpoints.watermark(checkpoint, done))


def verify_silver(
    spark: SparkSession, config: Config, target: VerifiableQuery, result: Verification
) -> None:
    """Compare silver and quarantine with bronze by the rows' keys and origins.

    Add findings for rows of silver or quarantine that bronze lacks or has less often, and for rows
    of bronze that are in neither table and do not duplicate one that is.
    """
    source = target.query.source
    try:
        rows = _differing_rows(spark, config, target).limit(_MAX_FINDINGS).collect()
    except (*ITEM_ERRORS, *SPARK_ERRORS) as error:  # e.g. a data file is missing
        reason = describe_error(error)
        result.findings.append(f"silver.{source}: it cannot be verified: {reason}")
        return
    for origin, difference, count in rows:
        where, some = "/".join(origin) or "the source", counted(count, "row")
        if difference == _EXTRA:
            message = (
                f"{where} has {some} in silver or quarantine that bronze does not have as often."
            )
        else:
            message = (
                f"{where} has {some} in bronze that neither silver nor quarantine has; "
                f"`medallion refresh silver.{source}` rebuilds both."
            )
        result.findings.append(f"{source}: {message}")


def _differing_rows(spark: SparkSession, config: Config, target: VerifiableQuery) -> DataFrame:
    """Return one row per origin and difference (`_EXTRA`, `_LOST`), with the number of rows."""
    source = with_recorded_time_digits(config, config.sources[target.query.source])
    keys = list(source.keys)
    # Partitioned once for both groupings.
    rows = _rows_of_three_tables(spark, config, target).repartition(*keys)
    by_row = rows.groupBy(*rows.columns[:-2]).agg(F.sum(_IN_BRONZE), F.sum(_KEY_TAKEN))
    more, is_taken = F.col(f"sum({_IN_BRONZE})"), F.sum(f"sum({_KEY_TAKEN})") > 0
    columns = [column for column in source.silver_origin_columns if column != OFFSET]
    origin = F.array(*(F.col(column).cast("string") for column in columns))
    extra, lost = (
        F.struct(
            F.max(F.when(count > 0, origin)).alias("origin"),
            F.lit(difference).alias("difference"),
            F.sum(F.when(count > 0, count)).alias("rows"),
        )
        for difference, count in ((_EXTRA, -more), (_LOST, more))
    )
    # If a key is taken, any of its other rows may have been dropped as duplicates.
    lost = F.when(~(transform.has_identity(keys) & is_taken), lost)
    by_key = by_row.groupBy(*keys).agg(F.array(extra, lost).alias("_differences"))
    exploded = by_key.select(F.explode("_differences").alias("_one")).where("_one.rows > 0")
    return exploded.groupBy("_one.origin", "_one.difference").agg(F.sum("_one.rows"))


def _rows_of_three_tables(
    spark: SparkSession, config: Config, target: VerifiableQuery
) -> DataFrame:
    """Return the rows of bronze, silver and quarantine.

    Returns:
        Keys, origin and time of ingestion of each row; `_in_bronze`, 1 for a row of bronze and -1
        for others; `_key_taken`, 1 if other rows with its key are duplicates.
    """
    source = with_recorded_time_digits(config, config.sources[target.query.source])
    bronze, silver, quarantine = (
        delta_reads.rows_at(spark, config.layout.table(name), target.versions[name])
        for name in (*target.query.upstream, *target.query.targets)
    )
    origin = [F.col(column) for column in (*source.silver_origin_columns, INGESTED_AT)]
    by_expression = [*(F.expr(source.silver[key]).alias(key) for key in source.keys), *origin]
    # Rows quarantined by these rules had passed deduplication, or were late: they take their key.
    rules = [LATE_RULE, *recorded_lookup_rules(config.layout.checkpoint(target.query.name))]
    was_taken = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules))).cast("int")
    quarantined = transform.with_bronze_columns(quarantine, bronze)
    one, less = F.lit(1), F.lit(-1).alias(_IN_BRONZE)
    first = bronze.select(*by_expression, one.alias(_IN_BRONZE), F.lit(0).alias(_KEY_TAKEN))
    second = silver.select(*map(F.col, source.keys), *origin, less, one.alias(_KEY_TAKEN))
    third = quarantined.select(*by_expression, less, was_taken.alias(_KEY_TAKEN))
    return first.unionByName(second).unionByName(third)


def verify_gold(
    spark: SparkSession, config: Config, target: VerifiableQuery, result: Verification
) -> None:
    """Recompute a gold table from silver, and add findings for the groups that differ."""
    name = target.query.name
    table = config.gold[name.removeprefix("gold.")]
    try:
        groups, skipped = _differing_groups(spark, config, table, target)
    except (*ITEM_ERRORS, *SPARK_ERRORS) as error:
        if _is_sql_error(error):
            result.notes.append(f"{name}: not verified ({one_line(str(error))}).")
        else:
            result.findings.append(f"{name}: it cannot be verified: {one_line(str(error))}")
        return
    if groups:
        result.findings.append(
            f"{name}: it differs from silver in {counted(groups, 'group')}; `medallion refresh "
            f"{name}` rebuilds it."
        )
    if skipped:
        columns = "; ".join(f"{column} ({reason})" for column, reason in skipped.items())
        result.notes.append(f"{name}: not verified, because the order of rows matters: {columns}.")


def _is_sql_error(error: Exception) -> bool:
    """Return whether the SQL is wrong; Spark's analysis also fails if a data file is missing."""
    if isinstance(error, AnalysisException):
        return classify(error).code is not FailureCode.PATH_NOT_FOUND
    return isinstance(error, ConfigError)


def _differing_groups(
    spark: SparkSession, config: Config, table: GoldTable, target: VerifiableQuery
) -> tuple[int, dict[str, str]]:
    """Count the groups that gold does not have as often, or with other measures.

    In a table without measures, rows with the same values in all columns but doubles are a group.

    Returns:
        The number of groups, and the columns that were skipped with the reason.
    """
    gold, *inputs = (
        delta_reads.rows_at(spark, config.layout.table(name), target.versions[name])
        for name in (target.query.name, *target.query.upstream)
    )
    silver = dict(zip(target.query.sources, inputs, strict=True))
    recomputed = _recomputed(spark, config, table, silver, target.watermark)
    skipped = _skipped_columns(table, recomputed)
    names = [name for name in gold.columns if name not in skipped]
    floats = [name for name, type_ in gold.dtypes if type_ in _FLOAT_TYPES]
    definition = table.definition
    keys = definition.groups if isinstance(definition, Aggregate) else set(names).difference(floats)
    measures = [name for name in names if name not in keys]
    if not names:
        return 0, skipped
    sides = _both_sides(gold.select(names), recomputed.select(names), keys, measures, floats)
    return sides.where(_differs(measures, floats)).count(), skipped


def _skipped_columns(table: GoldTable, recomputed: DataFrame) -> dict[str, str]:
    """Return the columns that depend on the order of rows, each with the reason.

    An order-dependent aggregate in a SQL statement skips all columns.
    """
    skipped = {
        name: "a double in a struct or a list"
        for name, type_ in recomputed.dtypes
        if type_ not in _FLOAT_TYPES and any(float_ in type_ for float_ in _FLOAT_TYPES)
    }
    plan = analyzed_plan(recomputed)
    if isinstance(table.definition, Aggregate):
        for alias in (node for node in plan_expressions(plan) if node_type(node) == "Alias"):
            if functions := _order_dependent(plan_nodes(alias)):
                skipped[alias.name()] = functions
    elif functions := _order_dependent(plan_expressions(plan)):
        skipped = dict.fromkeys(recomputed.columns, functions)
    return skipped


def _order_dependent(expressions: Iterable[Any]) -> str:
    """Return the names of the order-dependent aggregates among expressions, in one string."""
    return ", ".join(
        sorted({e.prettyName() for e in expressions if _ORDER_DEPENDENT.fullmatch(node_type(e))})
    )


def _both_sides(
    gold: DataFrame,
    recomputed: DataFrame,
    keys: Collection[str],
    measures: Iterable[str],
    floats: Collection[str],
) -> DataFrame:
    """Return one row per group: how much more often gold has it, and each measure twice.

    `column 1` is the value in gold and `column -1` the recomputed one; doubles are summed.
    """
    both = gold.withColumn(_SIDE, F.lit(1)).unionByName(recomputed.withColumn(_SIDE, F.lit(-1)))

    def value(side: int, name: str) -> Column:
        values = F.when(F.col(_SIDE) == side, F.col(f"`{name}`"))
        return F.sum(values) if name in floats else F.first(values, ignorenulls=True)

    columns = [value(side, name).alias(f"{name} {side}") for name in measures for side in (1, -1)]
    return both.groupBy(*(f"`{key}`" for key in keys)).agg(F.sum(_SIDE).alias(_SIDE), *columns)


def _differs(measures: Iterable[str], floats: Collection[str]) -> Column:
    """Return the condition that a group of `_both_sides` differs in number or in a measure."""
    same = F.col(_SIDE) == 0
    for name in measures:
        one, other = F.col(f"`{name} 1`"), F.col(f"`{name} -1`")
        is_same = one.eqNullSafe(other)
        if name in floats:
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
    """Return, as one batch, the rows that a stream has emitted for these rows of silver by now.

    A left join of streams emits an unmatched row only when the watermark excludes a later match.
    (Source: getStateValueWatermark of Spark's StreamingJoinHelper, for inclusive bounds.)
    """
    join = table.definition
    if not isinstance(join, Join):
        rows = gold_rows(spark, config, table, silver)
        # A count of nothing is one row on a batch, and none on a stream.
        return rows.limit(0) if all(one.isEmpty() for one in silver.values()) else rows
    inner = replace(table, definition=replace(join, kind="inner"))
    if join.kind == "inner" or watermark is None:
        return gold_rows(spark, config, inner, silver)
    left = table.sources[0]
    until = (watermark - join.within.seconds * 1000 - 1) * 1000
    is_waiting = F.unix_micros(config.sources[left].event_time) > until
    waiting = {**silver, left: silver[left].where(is_waiting)}
    emitted = {**silver, left: silver[left].where(~is_waiting)}
    matched = gold_rows(spark, config, inner, waiting)
    return gold_rows(spark, config, table, emitted).unionByName(matched)
