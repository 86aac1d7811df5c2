"""Verification by Spark, for a deep audit: silver against bronze, and gold against silver.

A table is verified if its query has read all of its input, at the versions that it has read.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, GoldTable, Join
from medallion.config.queries import Query, QueryType, queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.source import Verification
from medallion.inspect.definitions import changed_settings
from medallion.layers.gold.flow import LATE_ROWS_ADVICE
from medallion.layers.gold.transform import gold_rows
from medallion.layers.silver import transform
from medallion.layers.silver.changes import tied_changes
from medallion.layers.silver.child import elements
from medallion.layers.silver.envelope import unwrapped
from medallion.layers.silver.keys import with_recorded_time_digits
from medallion.layers.silver.lookup import recorded_lookup_rules
from medallion.layers.silver.rules import LATE_RULE
from medallion.layers.silver.scd import merge_keys, table_rows, tie_message
from medallion.spark import checkpoints, delta_reads, plans, signals
from medallion.spark.errors import SPARK_ERRORS, describe_error
from medallion.spark.plans import analyzed_plan, node_type, plan_expressions, plan_nodes
from medallion.spark.session import session_of_command
from medallion.state import journal, pending_work
from medallion.state.runs import RunRecords
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
# Spark's functions whose result depends on the order of rows, which differs in a stream.
_ORDER_DEPENDENT = re.compile(
    "AnyValue|Approx(imatePercentile|TopK)|Collect(List|Set)|First|Last|HistogramNumeric|ListAgg"
    "|M(ax|in)By|Mode|RowNumber|NTile|NthValue|Lag|Lead"
)
_SIDE = " side"  # no column of gold has a blank
_ROW, _NUMBER, _MORE = "_row", "_number", "_more"
_MICROS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}


@dataclass(frozen=True)
class VerifiableQuery:
    """A query that has read all of its input.

    Attributes:
        config: the configuration.
        query: the query.
        versions: of each table that it reads or writes, by name.
    """

    config: Config
    query: Query
    versions: Mapping[str, int]

    def tables(self, spark: SparkSession) -> list[DataFrame]:
        """Return the rows of the tables that it reads, then of those that it writes."""
        return [
            delta_reads.rows_at(spark, self.config.layout.table(name), self.versions[name])
            for name in (*self.query.upstream, *self.query.targets)
        ]


def verify_tables(config: Config, unchecked: Collection[str], report: Reporter) -> Verification:
    """Verify each table of silver and gold whose query has read all of its input.

    Args:
        config: the configuration.
        unchecked: sources that are being written; if there is one, gold is not verified.
        report: reports that Spark is started.
    """
    result = Verification()
    silver = _verifiable(config, "silver", result)
    silver = [target for target in silver if target.query.source not in unchecked]
    gold = [] if unchecked else _verifiable(config, "gold", result)
    if unchecked:
        sources = ", ".join(sorted(unchecked))
        result.notes.append(f"gold: not verified: {sources} is being written.")
    if silver or gold:
        with _session(config, report) as spark:
            for target in (*silver, *gold):
                signals.raise_if_requested()
                try:
                    _FUNCTIONS[target.query.type](spark, target, result)
                except (*ITEM_ERRORS, *SPARK_ERRORS) as error:  # e.g. a data file is missing
                    reason = describe_error(error)
                    result.findings.append(f"{target.query.name}: it cannot be verified: {reason}")
    return result


@contextmanager
def _session(config: Config, report: Reporter) -> Iterator[SparkSession]:
    """Yield the active session, or a new one."""
    if active := SparkSession.getActiveSession():
        yield active
        return
    report("starting Spark to verify silver against bronze, and gold against silver")
    with session_of_command(config, "medallion audit") as spark:
        yield spark


def _verifiable(config: Config, layer: str, result: Verification) -> list[VerifiableQuery]:
    """Return the queries of a layer that can be verified; add a note for each of the others."""
    runs, verifiable = RunRecords(config.layout), list[VerifiableQuery]()
    for query in queries(config, [layer]):
        name = query.name
        try:
            done = checkpoints.last_committed(config.layout.checkpoint(name))
            if done < 0 or name in journal.rebuilds(config):
                continue
            if not delta_tables.table_exists(config.layout.table(name)):
                result.findings.append(
                    f"{name}: the table is missing; `medallion run {layer}` reports what to do."
                )
            elif reason := _unverifiable_reason(config, runs, query, done):
                result.notes.append(f"{name}: not verified: {reason}")
            elif target := _with_versions(config, query, done):
                verifiable.append(target)
            else:
                result.notes.append(f"{name}: not verified: it has not read all of its input.")
        except ITEM_ERRORS as error:
            result.findings.append(error_message(error))
    return verifiable


def _unverifiable_reason(config: Config, runs: RunRecords, query: Query, done: int) -> str | None:
    """Return why a table may differ from its input; None if it may not.

    Args:
        config: the configuration.
        runs: the recorded runs.
        query: the query that writes the table.
        done: its last completed batch.
    """
    if query.layer == "silver" and runs.last_batch(query.name) < done:
        return "its last batch is not recorded, which inserts late rows."
    if query.layer == "gold" and runs.late_rows(query.name):
        return f"it lacks late rows; {LATE_ROWS_ADVICE}."
    table = config.gold.get(query.name.removeprefix("gold."))
    if table and isinstance(table.definition, Join) and table.definition.kind != "inner":
        return "unmatched rows of a left join wait for the watermark."
    if changes := changed_settings(config, query):
        return f"its definition has changed ({'; '.join(map(str, changes))}): run medallion apply."
    return None


def _with_versions(config: Config, query: Query, done: int) -> VerifiableQuery | None:
    """Return a query with the current versions of its targets, and the versions that it read.

    The targets' versions are read before the inputs', so that a running stream does not add rows
    to a target that the inputs lack at these versions.

    Args:
        config: the configuration.
        query: the query.
        done: its last completed batch.

    Returns:
        None if the batch has not read all input, or a later batch has ended.
    """
    checkpoint, table = config.layout.checkpoint(query.name), config.layout.table
    versions = {name: delta_tables.table_version(table(name)) for name in query.targets}
    for name in query.upstream:
        if name in config.changing_tables:
            has_input = pending_work.has_input(config, query.name, table(name))
            version = None if has_input else delta_tables.table_version(table(name))
        else:
            version = pending_work.version_read(checkpoint, done, table(name))
        if version is None:
            return None
        versions[name] = version
    if checkpoints.last_committed(checkpoint) != done:
        return None
    return VerifiableQuery(config, query, versions)


def verify_silver(spark: SparkSession, target: VerifiableQuery, result: Verification) -> None:
    """Compare silver and quarantine with bronze by the rows' keys and origins.

    Args:
        spark: the session.
        target: the query of silver.
        result: gets findings for rows of silver or quarantine that bronze lacks or has less often,
            and for rows of bronze that are in neither table and do not duplicate one that is.
    """
    source = target.query.source
    for origin, difference, count in _differing_rows(spark, target).limit(_MAX_FINDINGS).collect():
        where, some = "/".join(origin) or "the source", counted(count, "row")
        if difference == _EXTRA:
            problem = "silver or quarantine that bronze does not have as often."
        else:
            remedy = f"`medallion refresh silver.{source}` rebuilds both."
            problem = f"bronze that neither silver nor quarantine has; {remedy}"
        result.findings.append(f"{source}: {where} has {some} in {problem}")


def verify_child(spark: SparkSession, target: VerifiableQuery, result: Verification) -> None:
    """Compare a child table and its quarantine with the elements of its parent.

    Args:
        spark: the session.
        target: the query of the table.
        result: gets a finding for each difference.
    """
    name, table = target.query.name, target.config.silver[target.query.table]
    source = target.config.sources[target.query.source]
    parent, silver, quarantine = target.tables(spark)
    rows = elements(parent, table)
    in_quarantine = [column for column in rows.columns if column != table.explode]
    missing = quarantine.unionByName(rows.limit(0), allowMissingColumns=True)
    rows = _numbered(rows, in_quarantine)
    quarantined = _numbered(missing.drop(FAILED_RULES), in_quarantine).select(_ROW, _NUMBER)
    good = rows.join(quarantined, [_ROW, _NUMBER], "left_anti")
    expressions = [F.expr(sql).alias(column) for column, sql in table.columns.items()]
    origin = (*source.silver_origin_columns, INGESTED_AT)
    left = good.select(*expressions, *origin).withColumns({_MORE: F.lit(1), _KEY_TAKEN: F.lit(0)})
    right = silver.withColumns({_MORE: F.lit(-1), _KEY_TAKEN: F.lit(1)}).select(left.columns)
    keys = list(table.keys)
    row = _json([*table.columns, *origin]).alias(_ROW)
    both = left.unionByName(right).select(*keys, row, _MORE, _KEY_TAKEN)
    more, is_key_taken = F.sum(_MORE).alias(_MORE), F.max(_KEY_TAKEN).alias(_KEY_TAKEN)
    by_row = both.groupBy(*keys, _ROW).agg(more, is_key_taken)
    # If a key is taken, its other rows are duplicates.
    is_taken = F.max(_KEY_TAKEN).over(Window.partitionBy(*keys)) > 0 if keys else F.lit(False)
    is_lost = (F.col(_MORE) > 0) & ~(transform.has_identity(keys) & is_taken)
    sums = F.sum("_lost"), F.sum(F.when(F.col(_MORE) < 0, -F.col(_MORE)))
    marked = by_row.withColumn("_lost", F.when(is_lost, F.col(_MORE)))
    lost, extra = marked.agg(*sums).collect()[0]
    surplus = quarantined.join(rows, [_ROW, _NUMBER], "left_anti").count()
    differences = {
        f"in silver or quarantine are not of silver.{table.parent}": (extra or 0) + surplus,
        f"of silver.{table.parent} are in neither silver nor quarantine": lost or 0,
    }
    result.findings += [
        f"{name}: {counted(count, 'element')} {difference}; `medallion refresh {name}` rebuilds "
        "both."
        for difference, count in differences.items()
        if count
    ]


def _numbered(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the rows with their columns as one string, and a number among equal rows."""
    number = F.row_number().over(Window.partitionBy(_ROW).orderBy(F.lit(1)))
    return rows.withColumn(_ROW, _json(columns)).withColumn(_NUMBER, number)


def _json(columns: Sequence[str]) -> Column:
    return F.to_json(F.struct(*columns), _MICROS)


def _differing_rows(spark: SparkSession, target: VerifiableQuery) -> DataFrame:
    """Return one row per origin and difference (`_EXTRA`, `_LOST`), with the number of rows."""
    source = with_recorded_time_digits(target.config, target.config.sources[target.query.source])
    keys = list(source.keys)
    # Partitioned once for both groupings.
    rows = _rows_of_three_tables(spark, target).repartition(*keys)
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
    if not source.cdc:  # if a key is taken, its other rows may have been dropped as duplicates
        lost = F.when(~(transform.has_identity(keys) & is_taken), lost)
    by_key = by_row.groupBy(*keys).agg(F.array(extra, lost).alias("_differences"))
    exploded = by_key.select(F.explode("_differences").alias("_one")).where("_one.rows > 0")
    return exploded.groupBy("_one.origin", "_one.difference").agg(F.sum("_one.rows"))


def _rows_of_three_tables(spark: SparkSession, target: VerifiableQuery) -> DataFrame:
    """Return the rows of bronze, silver and quarantine.

    Returns:
        Keys, origin and time of ingestion of each row; `_in_bronze`, 1 for a row of bronze and -1
        for others; `_key_taken`, 1 if other rows with its key are duplicates.
    """
    source = with_recorded_time_digits(target.config, target.config.sources[target.query.source])
    bronze, silver, quarantine = target.tables(spark)
    source = unwrapped(source, bronze)
    origin = [F.col(column) for column in (*source.silver_origin_columns, INGESTED_AT)]
    keys = (transform.silver_column(k, source.silver[k], source.event_time) for k in source.keys)
    by_expression = [*keys, *origin]
    # Rows quarantined by these rules had passed deduplication, or were late: they take their key.
    rules = [LATE_RULE, *recorded_lookup_rules(target.config.layout.checkpoint(target.query.name))]
    was_taken = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules))).cast("int")
    quarantined = transform.with_bronze_columns(quarantine, bronze)
    one, less = F.lit(1), F.lit(-1).alias(_IN_BRONZE)
    first = bronze.select(*by_expression, one.alias(_IN_BRONZE), F.lit(0).alias(_KEY_TAKEN))
    second = silver.select(*map(F.col, source.keys), *origin, less, one.alias(_KEY_TAKEN))
    third = quarantined.select(*by_expression, less, was_taken.alias(_KEY_TAKEN))
    return first.unionByName(second).unionByName(third)


def verify_changes(spark: SparkSession, target: VerifiableQuery, result: Verification) -> None:
    """Compute the table of a source of change records from their log, and compare.

    Args:
        spark: the session.
        target: the query that merges the changes.
        result: gets a finding if rows differ, and a note if changes have no order.
    """
    source, name = target.config.sources[target.query.source], target.query.name
    log, table = target.tables(spark)
    recomputed = _comparable(table_rows(log, source))
    count = _count_differing(_comparable(table), recomputed, merge_keys(source))
    ties = tie_message(tied_changes(log, source.keys), source)
    if count:
        result.findings.append(_difference(name, f"its changes in {counted(count, 'row')}"))
    if ties:
        result.notes.append(f"{source.rows_table}: {ties}.")


def _difference(name: str, where: str) -> str:
    return f"{name}: it differs from {where}; `medallion refresh {name}` rebuilds it."


def _comparable(rows: DataFrame) -> DataFrame:
    """Return rows with strings in place of maps and variants, which cannot be compared."""
    opaque = [field.name for field in rows.schema if not plans.is_comparable(field.dataType)]
    return rows.withColumns({name: F.to_json(F.struct(name)) for name in opaque})


def verify_gold(spark: SparkSession, target: VerifiableQuery, result: Verification) -> None:
    """Recompute a gold table from the tables that it reads.

    Args:
        spark: the session.
        target: the query of gold.
        result: gets a finding if groups differ.
    """
    name = target.query.name
    groups, skipped = _differing_groups(spark, target)
    if groups:
        result.findings.append(_difference(name, f"its input in {counted(groups, 'group')}"))
    if skipped:
        columns = "; ".join(f"{column} ({reason})" for column, reason in skipped.items())
        result.notes.append(f"{name}: not verified, because the order of rows matters: {columns}.")


def _differing_groups(spark: SparkSession, target: VerifiableQuery) -> tuple[int, dict[str, str]]:
    """Count the groups that gold does not have as often, or with other measures.

    In a table without measures, rows with the same values in all columns but doubles are a group.

    Args:
        spark: the session.
        target: the query of gold.

    Returns:
        The number of groups, and the columns that were skipped with the reason.
    """
    table, (*inputs, gold) = target.config.gold[target.query.table], target.tables(spark)
    by_name = dict(zip(table.tables, inputs, strict=True))
    recomputed = gold_rows(spark, target.config, table, by_name)
    if not table.follows_changes and all(rows.isEmpty() for rows in inputs):
        # Without input, a global count has a row in a batch, but none in a stream.
        recomputed = recomputed.limit(0)
    skipped = _skipped_columns(table, recomputed)
    types = {name: type_ for name, type_ in gold.dtypes if name not in skipped}
    if not types:
        return 0, skipped
    keys: Collection[str] = [name for name in types if types[name] not in _FLOAT_TYPES]
    if isinstance(table.definition, Aggregate):
        keys = table.definition.groups
    return _count_differing(gold.select(*types), recomputed, keys), skipped


def _count_differing(rows: DataFrame, expected: DataFrame, keys: Collection[str]) -> int:
    """Count the groups that a table does not have as often as it should, or with other values.

    Args:
        rows: the rows of the table.
        expected: the rows that it should have, with at least its columns.
        keys: the columns that identify a group; doubles among the others are equal up to a
            tolerance.
    """
    floats = [name for name, type_ in rows.dtypes if type_ in _FLOAT_TYPES]
    measures = [name for name in rows.columns if name not in keys]
    same_columns = expected.select(rows.columns)
    both = rows.withColumn(_SIDE, F.lit(1)).unionByName(same_columns.withColumn(_SIDE, F.lit(-1)))

    def value(side: int, name: str) -> Column:
        """Return a measure of a group on one side; doubles are summed."""
        values = F.when(F.col(_SIDE) == side, F.col(f"`{name}`"))
        return F.sum(values) if name in floats else F.first(values, ignorenulls=True)

    columns = [value(side, name).alias(f"{name} {side}") for name in measures for side in (1, -1)]
    groups = both.groupBy(*(f"`{key}`" for key in keys)).agg(F.sum(_SIDE).alias(_SIDE), *columns)
    is_same = F.col(_SIDE) == 0  # both sides have the group as often
    for name in measures:
        one, other = F.col(f"`{name} 1`"), F.col(f"`{name} -1`")
        is_equal = one.eqNullSafe(other)
        if name in floats:
            # Strictly less: with `<=` an infinity would equal any number, and so would NaN.
            near = F.abs(one - other) < _TOLERANCE * F.greatest(F.abs(one), F.abs(other), F.lit(1))
            is_equal |= F.coalesce(near, F.lit(False))
        is_same &= is_equal
    return groups.where(~is_same).count()


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
    dependent = (each for each in expressions if _ORDER_DEPENDENT.fullmatch(node_type(each)))
    return ", ".join(sorted({each.prettyName() for each in dependent}))


_FUNCTIONS: Mapping[QueryType, Callable[..., None]] = {
    QueryType.SILVER: verify_silver,
    QueryType.CHANGES: verify_changes,
    QueryType.CHILD: verify_child,
    QueryType.GOLD: verify_gold,
}
