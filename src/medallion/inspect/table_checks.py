"""Verification by Spark, for a deep audit: each table against the rows that it is computed from.

A table is verified if its query has read all of its input, at the versions that it has read. It is
computed again by the layer's own transformation, and compared with what is stored, as by EXCEPT ALL
both ways. Three things are not compared exactly:

- Doubles are equal up to `_TOLERANCE`: a sum depends on the order of its terms.
- Columns of gold that depend on the order of rows are left out, with a note.
- A rule may have changed since it sent a row to quarantine, and a lookup table, too. So rules are
  not applied again, and columns of lookup tables are left out.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField

from medallion.config.model import Aggregate, Config, GoldTable, Join
from medallion.config.queries import Query, QueryType, queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.ingest.parsing.times import EXACT_FORMATS
from medallion.ingest.source import Verification
from medallion.inspect.definitions import changed_settings
from medallion.layers.gold.flow import LATE_ROWS_ADVICE
from medallion.layers.gold.transform import gold_rows
from medallion.layers.silver import transform
from medallion.layers.silver.changes import tied_changes
from medallion.layers.silver.child import elements
from medallion.layers.silver.envelope import unwrapped
from medallion.layers.silver.lookup import recorded_lookup_rules
from medallion.layers.silver.rules import LATE_RULE, with_quarantined
from medallion.layers.silver.scd import table_rows, tie_message
from medallion.spark import checkpoints, delta, plans, signals
from medallion.spark.errors import SPARK_ERRORS, describe_error
from medallion.spark.session import session_of_command
from medallion.state import journal, pending_work
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, quote_identifier
from medallion.storage.text import Reporter, counted

# Below 1 the tolerance is absolute, because terms that cancel leave a small remainder.
_TOLERANCE = 1e-9
_FLOAT_TYPES = ("double", "float")
# Spark's functions whose result depends on the order of rows, which differs in a stream.
_ORDER_DEPENDENT = re.compile(
    "AnyValue|Approx(imatePercentile|TopK)|Collect(List|Set)|First|Last|HistogramNumeric|ListAgg"
    "|M(ax|in)By|Mode|RowNumber|NTile|NthValue|Lag|Lead"
)
_MORE, _HASH, _IS_TAKEN = " more", " hash", " taken"  # no column has a blank
_EXAMPLE_LENGTH = 300  # characters


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
            delta.rows_at(spark, self.config.layout.table(name), self.versions[name])
            for name in (*self.query.upstream, *self.query.targets)
        ]


def verify_tables(config: Config, unchecked: Collection[str], report: Reporter) -> Verification:
    """Verify each table of silver and gold whose query has read all of its input.

    Args:
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
            # Constraints double with each column whose SQL is part of another's, as of Debezium.
            spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
            for target in (*silver, *gold):
                signals.raise_if_requested()
                try:
                    for each in _COMPARISONS[target.query.type](spark, target, result.notes):
                        result.findings += _findings(target.query, each)
                except (*ITEM_ERRORS, *SPARK_ERRORS) as error:  # e.g. a data file is missing
                    reason = describe_error(error)
                    result.findings.append(f"{target.query.name}: it cannot be verified: {reason}")
    return result


@contextmanager
def _session(config: Config, report: Reporter) -> Iterator[SparkSession]:
    """Yield a session beside the active one, or of a Spark that it starts."""
    if active := SparkSession.getActiveSession():
        yield active.newSession()
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


class Comparison(NamedTuple):
    """A table, and the rows that it should have.

    Attributes:
        table: its name.
        actual, expected: its rows, and what they should be; the columns of both are compared.
        keys: if the table has the key of an expected row, it may lack the row, as a duplicate;
            empty if it may lack none.
    """

    table: str
    actual: DataFrame
    expected: DataFrame
    keys: Sequence[str] = ()


def _source(spark: SparkSession, target: VerifiableQuery, _: list[str]) -> Iterator[Comparison]:
    """Yield the quarantine and the silver table of a source, to be compared with bronze."""
    config, (bronze, silver, quarantine) = target.config, target.tables(spark)
    source = unwrapped(config.sources[target.query.source], bronze)
    # As fields of Debezium's envelopes get other types, so do the expressions for older values.
    names = source.keys if source.is_debezium else source.silver
    row = [transform.silver_column(n, source.silver[n], source.event_time) for n in names]
    row += map(F.col, (*source.silver_origin_columns, INGESTED_AT))
    # Rows quarantined by these rules have passed the others: they take their key as in silver.
    rules = [LATE_RULE, *recorded_lookup_rules(config.layout.checkpoint(target.query.name))]
    has_key = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules)))
    quarantine = transform.with_bronze_columns(quarantine, bronze)
    broken, late = quarantine.where(~has_key).drop(FAILED_RULES), quarantine.where(has_key)
    found, others = _split(bronze, broken)
    yield Comparison(target.query.targets[1], broken, found)
    good = others.select(row)
    actual = silver.select(good.columns).unionByName(late.select(row))
    yield Comparison(target.query.name, actual, good, () if source.cdc else source.keys)


def _child(spark: SparkSession, target: VerifiableQuery, _: list[str]) -> Iterator[Comparison]:
    """Yield a child table and its quarantine, to be compared with the elements of its parent."""
    config, (parent, silver, quarantine) = target.config, target.tables(spark)
    table, source = config.silver[target.query.table], config.sources[target.query.source]
    rows = elements(parent, table)
    quarantined = rows.select([name for name in rows.columns if name != table.explode])
    broken = transform.with_bronze_columns(quarantine, quarantined).drop(FAILED_RULES)
    found, others = _split(rows, broken)
    yield Comparison(target.query.targets[1], broken, found)
    own = (F.expr(sql).alias(column) for column, sql in table.columns.items())
    good = others.select(*own, *source.silver_origin_columns, INGESTED_AT)
    yield Comparison(target.query.name, silver, good, table.keys)


def _split(rows: DataFrame, quarantined: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Return the rows that are in quarantine, with its columns, and the others.

    Silver's expressions may fail at rows in quarantine. Equal rows break the same rules.
    """
    # A null does not change the hash: quarantine may have columns that were added later.
    row = F.xxhash64(*(_comparable(rows.schema[name]) for name in quarantined.columns))
    by_hash, hashes = rows.withColumn(_HASH, row), quarantined.select(row.alias(_HASH))
    found = by_hash.join(hashes, _HASH, "left_semi").select(quarantined.columns)
    return found, by_hash.join(hashes, _HASH, "left_anti").drop(_HASH)


def _changes(
    spark: SparkSession, target: VerifiableQuery, notes: list[str]
) -> Iterator[Comparison]:
    """Yield the table of a source of change records; add a note if changes have no order."""
    source, (log, table) = target.config.sources[target.query.source], target.tables(spark)
    if ties := tie_message(tied_changes(log, source.keys), source):
        notes.append(f"{source.rows_table}: {ties}.")
    rows = table_rows(with_quarantined(log, target.config, source), source)
    yield Comparison(target.query.name, table, rows)


def _gold(spark: SparkSession, target: VerifiableQuery, notes: list[str]) -> Iterator[Comparison]:
    """Yield a gold table; add a note about the columns that are left out."""
    table, (*inputs, gold) = target.config.gold[target.query.table], target.tables(spark)
    by_name = dict(zip(table.tables, inputs, strict=True))
    expected = gold_rows(spark, target.config, table, by_name)
    if not table.follows_changes and all(rows.isEmpty() for rows in inputs):
        # Without input, a global count has a row in a batch, but none in a stream.
        expected = expected.limit(0)
    if skipped := _skipped_columns(table, expected):
        columns = "; ".join(f"{column} ({reason})" for column, reason in skipped.items())
        reason = f"not verified, because the order of rows matters: {columns}."
        notes.append(f"{target.query.name}: {reason}")
    yield Comparison(target.query.name, gold, expected.drop(*skipped))


def _findings(query: Query, compared: Comparison) -> Iterator[str]:
    """Yield a finding with an example of each side, if a table is not what it should be."""
    expected = {*compared.expected.columns}
    fields = [field for field in compared.actual.schema if field.name in expected]
    if not fields:
        return
    exact = [f.name for f in fields if f.dataType.simpleString() not in _FLOAT_TYPES]
    floats = [f.name for f in fields if f.name not in exact]
    columns = [_comparable(field).alias(field.name) for field in fields]
    actual, rest = (
        rows.select(*columns, F.lit(more).alias(_MORE))
        for rows, more in ((compared.actual, 1), (compared.expected, -1))
    )
    both, more = actual.unionByName(rest, allowMissingColumns=True), F.col(_MORE)
    sums = [
        F.sum(F.when(more == side, F.col(quote_identifier(name)))).alias(f"{name} {side}")
        for name in floats
        for side in (1, -1)
    ]
    rows = both.groupBy(*map(quote_identifier, exact)).agg(F.sum(_MORE).alias(_MORE), *sums)
    are_equal = reduce(and_, map(_are_near, floats), F.lit(True))
    differing = rows.where((more != 0) | ~are_equal)
    if keys := list(compared.keys):
        taken = compared.actual.select(keys).distinct().withColumn(_IS_TAKEN, F.lit(True))
        known = differing.join(taken, keys, "left")
        differing = known.where((more >= 0) | F.col(_IS_TAKEN).isNull())

    def side(sign: int) -> list[Column]:
        """Return the number of rows that one side has and the other has not, and an example."""
        own = [F.col(f"`{name} {sign}`").alias(name) for name in floats]
        row = F.to_json(F.struct(*map(quote_identifier, exact), *own), EXACT_FORMATS)
        values = F.greatest(sign * more, F.lit(1)), F.left(row, F.lit(_EXAMPLE_LENGTH))
        has_more = sign * more >= 0
        return [f(F.when(has_more, v)) for f, v in zip((F.sum, F.min), values, strict=True)]

    extra, first_extra, missing, first_missing = differing.agg(*side(1), *side(-1)).collect()[0]
    parts = []
    if extra:
        parts.append(f"has {counted(extra, 'row')} too many, such as {first_extra}")
    if missing:
        parts.append(f"lacks {counted(missing, 'row')}, such as {first_missing}")
    if parts:
        yield (
            f"{compared.table}: compared with {' and '.join(query.upstream)}, it "
            f"{', and '.join(parts)}; `medallion refresh {query.name}` rebuilds it."
        )


def _are_near(name: str) -> Column:
    """Return whether both sums of a group's doubles are equal up to the tolerance."""
    one, other = F.col(f"`{name} 1`"), F.col(f"`{name} -1`")
    # Strictly less: with `<=` an infinity would equal any number, and so would NaN.
    near = F.abs(one - other) < _TOLERANCE * F.greatest(F.abs(one), F.abs(other), F.lit(1))
    return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))


def _comparable(field: StructField) -> Column:
    """Return a column with strings in place of maps and variants, which cannot be compared."""
    if plans.is_comparable(field.dataType):
        return F.col(quote_identifier(field.name))
    return F.to_json(F.struct(field.name), EXACT_FORMATS)


def _skipped_columns(table: GoldTable, recomputed: DataFrame) -> dict[str, str]:
    """Return the columns that depend on the order of rows, each with the reason.

    An order-dependent aggregate in a SQL statement skips all columns.
    """
    skipped = {
        name: "a double in a struct or a list"
        for name, type_ in recomputed.dtypes
        if type_ not in _FLOAT_TYPES and any(float_ in type_ for float_ in _FLOAT_TYPES)
    }
    plan = plans.analyzed_plan(recomputed)
    if isinstance(table.definition, Aggregate):
        for alias in (
            node for node in plans.plan_expressions(plan) if plans.node_type(node) == "Alias"
        ):
            if functions := _order_dependent(plans.plan_nodes(alias)):
                skipped[alias.name()] = functions
    elif functions := _order_dependent(plans.plan_expressions(plan)):
        skipped = dict.fromkeys(recomputed.columns, functions)
    return skipped


def _order_dependent(expressions: Iterable[Any]) -> str:
    """Return the names of the order-dependent aggregates among expressions, in one string."""
    dependent = (each for each in expressions if _ORDER_DEPENDENT.fullmatch(plans.node_type(each)))
    return ", ".join(sorted({each.prettyName() for each in dependent}))


_COMPARISONS: Mapping[
    QueryType, Callable[[SparkSession, VerifiableQuery, list[str]], Iterator[Comparison]]
] = {
    QueryType.SILVER: _source,
    QueryType.CHANGES: _changes,
    QueryType.CHILD: _child,
    QueryType.GOLD: _gold,
}
