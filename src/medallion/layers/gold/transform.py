"""The rows of a gold table, computed from those that it reads; the same for batches and streams."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from medallion.config.model import Aggregate, Config, GoldTable, Join, Statement
from medallion.config.values import TABLE_NAME
from medallion.errors import ConfigError
from medallion.spark.errors import classify
from medallion.spark.plans import CONFIG_TYPES, analyzed_plan, catalyst_class, node_type, plan_nodes
from medallion.storage.layout import short_name, view_name
from medallion.storage.table_specs import WINDOW

_FRAME = "_window"

# Plan nodes that a stream cannot run, and what to do instead.
_UNSUPPORTED_NODES = {
    "Sort": "sorts rows, but a table has no order: use ORDER BY when you query the table",
    "GlobalLimit": "limits the rows: use LIMIT when you query the table",
    "Offset": "skips rows by number: use OFFSET when you query the table",
    "Sample": "samples rows (TABLESAMPLE): sample when you query the table",
    "Distinct": "uses DISTINCT: use GROUP BY instead",
    "Intersect": "uses INTERSECT: compare the tables when you query them",
    "Except": "uses EXCEPT: compare the tables when you query them",
    "Window": "has a window function (OVER): use GROUP BY window(time, '10 minutes') instead",
}
# A batch can run the others.
_WITHOUT_ORDER = ("Sort", "GlobalLimit", "Offset", "Sample")
_SUBQUERY = "has a subquery in a condition or column: do that when you query the table"
_STREAM_JOIN = (
    "joins two streams, which needs watermarks: configure join instead of sql, or read two tables "
    "with output_mode: complete"
)
_TWO_AGGREGATES = "aggregates twice: do the second step in a gold table that reads this one"
_UNION_OF_GROUPS = "combines groups with other rows (UNION): make one table of each instead"
_OTHER_INPUT = "reads {}: a gold table reads silver and gold tables only"
_CONSTANT_NODES = ("OneRowRelation", "LocalRelation", "Range")


def gold_rows(
    spark: SparkSession, config: Config, table: GoldTable, rows: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows of a gold table.

    Args:
        config: the configuration of the silver tables.
        rows: the rows of the tables that it reads, by name: either all streams or all batches.

    Raises:
        ConfigError: the SQL is not valid on a stream, or a join's columns have different types.
    """
    if isinstance(table.definition, Statement):
        return statement_rows(spark, table, table.definition, rows)
    rows = {short_name(name): rows[name] for name in rows}
    tables = {name: config.silver_tables[f"silver.{name}"] for name in rows}
    times = {name: tables[name].event_time or "" for name in rows}
    match table.definition:
        case Join() as join:
            name = f"{config.pipeline_file}: gold.{table.name}"
            _refuse_different_types(name, rows, join)
            return joined(rows, times, {name: tables[name].watermark.text for name in rows}, join)
        case Aggregate() as aggregate:
            (source,) = rows
            return aggregated(rows[source], times[source], aggregate)


def aggregated(rows: DataFrame, event_time: str, aggregate: Aggregate) -> DataFrame:
    """Return one row per group: the group's columns, then the measures."""
    if aggregate.where:
        rows = rows.where(F.expr(aggregate.where))
    if aggregate.session is None:
        return per_group(windowed(rows, event_time, aggregate), aggregate.groups, aggregate.measure)
    # The bounds of a session are known only after grouping, so they cannot be group columns.
    framed = rows.withColumn(_FRAME, F.session_window(event_time, aggregate.session.text))
    sessions = per_group(framed, (_FRAME, *aggregate.group_by), aggregate.measure)
    bounds = zip(("start", "end"), WINDOW, strict=True)
    return sessions.select(
        *(F.col(f"{_FRAME}.{bound}").alias(name) for bound, name in bounds),
        *aggregate.group_by,
        *aggregate.measure,
    )


def windowed(rows: DataFrame, event_time: str, aggregate: Aggregate) -> DataFrame:
    """Return each row once per window that contains it, with `window_start` and `window_end` (UTC).

    Without `window`, return the rows unchanged.
    """
    if aggregate.window is None:
        return rows
    if aggregate.calendar_unit:
        rows = rows.where(F.col(event_time).isNotNull())  # F.window drops the others, too
        bounds = calendar_window(F.col(event_time), aggregate)
    else:
        slide, start = (each.text if each else None for each in (aggregate.slide, aggregate.start))
        frame = F.window(event_time, aggregate.window.text, slide, start)
        bounds = frame.getField("start"), frame.getField("end")
    return rows.withColumns(dict(zip(WINDOW, bounds, strict=True)))


def calendar_window(time: Column, aggregate: Aggregate) -> tuple[Column, Column]:
    """Return the start and end of the window that contains a time, both as UTC.

    The window is computed in local time, so a day has 23 or 25 hours if daylight saving starts or
    ends. A window whose local start does not exist on that day starts at the next time that does.
    """
    unit, zone = aggregate.calendar_unit, aggregate.time_zone
    shift = F.expr(f"interval {aggregate.start.seconds if aggregate.start else 0} seconds")
    step = F.expr("interval 3 months" if unit == "quarter" else f"interval 1 {unit}")
    local = F.date_trunc(str(unit), F.from_utc_timestamp(time, zone) - shift)
    return (F.to_utc_timestamp(local + shift, zone), F.to_utc_timestamp(local + step + shift, zone))


def per_group(rows: DataFrame, groups: Sequence[str], measure: Mapping[str, str]) -> DataFrame:
    """Return one row per group: the group's columns, then the measures.

    Args:
        rows: silver rows, `windowed` if the table has windows.
        groups: the group columns, with those of the window first.
        measure: SQL aggregates by column name.
    """
    measures = [F.expr(aggregate).alias(name) for name, aggregate in measure.items()]
    if not groups:
        return rows.agg(*measures)
    return rows.groupBy(*groups).agg(*measures).select(*groups, *measure)


def is_joinable(time: str) -> Column:
    """Return the condition that a stream join keeps a row: its time is after 1970-01-01 00:00 UTC.

    Spark's watermark starts there, and a row that is not after it counts as late.
    """
    return F.col(time) > F.timestamp_millis(F.lit(0))


def joined(
    rows: Mapping[str, DataFrame],
    times: Mapping[str, str],
    watermarks: Mapping[str, str],
    join: Join,
) -> DataFrame:
    """Return the pairs of rows of two silver tables; a left join also returns unmatched left rows.

    Rows that are not `is_joinable` are dropped, from batches and streams alike.

    Args:
        rows: both tables by source, the left one first.
        times: the event time column of each.
        watermarks: the delay that each allows, such as `1 hour`.
        join: keys, conditions and columns of the join.
    """
    (left, first), (right, second) = (
        (name, some.where(is_joinable(times[name]))) for name, some in rows.items()
    )
    if join.where:
        first = first.where(join.where)
    # After the filters: rows that they drop do not move the watermark.
    first, second = (
        some.withWatermark(times[name], watermarks[name])
        for name, some in ((left, first), (right, second))
    )
    time, other = F.col(f"{left}.{times[left]}"), F.col(f"{right}.{times[right]}")
    within = F.expr(f"interval {join.within.seconds} seconds")
    conditions = [F.col(f"{left}.{a}") == F.col(f"{right}.{b}") for a, b in join.on.items()]
    conditions += [other >= time - within, other <= time + within]
    if join.condition:
        # As one expression over both sides: if a part names the left table alone, Spark emits a row
        # that fails it as unmatched at once, instead of when its time has passed.
        conditions += [F.expr(join.condition).eqNullSafe(other.isNotNull())]
    pairs = first.alias(left).join(second.alias(right), reduce(and_, conditions), join.kind)
    return pairs.select(*(F.expr(sql).alias(name) for name, sql in join.columns.items()))


def _refuse_different_types(name: str, rows: Mapping[str, DataFrame], join: Join) -> None:
    """Raise ConfigError if join keys have different types.

    Spark's cast would fail at a value that is not a number, or match two different numbers.
    """
    (first, left), (second, right) = ((source, dict(some.dtypes)) for source, some in rows.items())
    for a, b in join.on.items():
        if a not in left or b not in right:  # Spark reports it
            continue
        if CONFIG_TYPES.get(left[a], left[a]) != CONFIG_TYPES.get(right[b], right[b]):
            raise ConfigError(
                f"{name}.join.on compares {first}.{a} ({left[a]}) with {second}.{b} "
                f"({right[b]}). Cast both to the same type in silver, e.g. with string or "
                "try_cast."
            )


def statement_rows(
    spark: SparkSession, table: GoldTable, statement: Statement, rows: Mapping[str, DataFrame]
) -> DataFrame:
    """Return the rows of a SQL statement.

    Args:
        table: the table that the statement defines.
        statement: the statement; it reads views such as `silver_orders`.
        rows: the rows of its tables, by name.

    Raises:
        ConfigError: the statement is not a query, or not one that a stream can run.
    """
    views = {view_name(name): frame for name, frame in rows.items()}
    for view, frame in views.items():
        frame.createOrReplaceTempView(view)
    try:
        # Only a query parses here; spark.sql would run any statement.
        spark._jsparkSession.sessionState().sqlParser().parseQuery(statement.sql)
        result = spark.sql(statement.sql)
    except PySparkException as error:
        raise ConfigError(f"{statement.file}: {classify(error)}") from None
    finally:
        for view in views:
            spark.catalog.dropTempView(view)
    # Inline WITH, because a query in it may also combine groups with other rows.
    plan = catalyst_class(result, "optimizer.InlineCTE")(True, False).apply(analyzed_plan(result))
    problem = None
    if table.follows_changes:
        problem = _unrepeatable_reason(plan, rows.values()) or _invalid_column_reason(result)
    elif all(frame.isStreaming for frame in rows.values()):
        problem = _unsupported_reason(table, plan) or _invalid_column_reason(result)
    if problem:
        raise ConfigError(f"{statement.file}: {problem}.")
    return result


def _unrepeatable_reason(plan: Any, inputs: Iterable[DataFrame]) -> str | None:
    """Return the part that gives a batch rows by chance, or of other tables; None if there is none.

    Args:
        plan: the plan of a query.
        inputs: the rows that it may read.
    """
    known = [leaf for rows in inputs for leaf in _leaves(analyzed_plan(rows))]
    subqueries = plan.subqueriesAll()
    for tree in (plan, *(subqueries.apply(index) for index in range(subqueries.size()))):
        for node in plan_nodes(tree):
            if (type_ := node_type(node)) in _WITHOUT_ORDER:
                return _UNSUPPORTED_NODES[type_]
        for leaf in _leaves(tree):
            is_input = any(leaf.sameResult(each) for each in known)
            if not is_input and node_type(leaf) not in _CONSTANT_NODES:
                return _OTHER_INPUT.format(leaf.toString().strip()[:100])
    return None


def _leaves(plan: Any) -> list[Any]:
    return [node for node in plan_nodes(plan) if not node.children().size()]


def _unsupported_reason(table: GoldTable, plan: Any) -> str | None:
    """Return the part of a query's plan that a stream cannot run; None if there is none."""
    tree = list(plan_nodes(plan))
    types = [node_type(node) for node in tree]
    for node, type_ in zip(tree, types, strict=True):
        if type_ in _UNSUPPORTED_NODES:
            return _UNSUPPORTED_NODES[type_]
        if type_ == "Union" and "Aggregate" in map(node_type, plan_nodes(node)):
            return _UNION_OF_GROUPS  # groups are emitted in each batch, other rows once
        if type_ == "Join" and node.left().isStreaming() and node.right().isStreaming():
            return _STREAM_JOIN
        if not (node.children().size() or node.isStreaming() or type_ in _CONSTANT_NODES):
            return _OTHER_INPUT.format(node.toString().strip()[:100])
    if not plan.subqueriesAll().isEmpty():
        return _SUBQUERY
    if types.count("Aggregate") > 1:
        return _TWO_AGGREGATES
    wanted = "complete" if "Aggregate" in types else "append"
    if table.output_mode != wanted:
        has = "groups, which change as rows arrive" if wanted == "complete" else "no groups"
        return f"has {has}: set output_mode: {wanted} in pipeline.yaml"
    return None


def _invalid_column_reason(result: DataFrame) -> str | None:
    names = result.columns
    for field in result.schema.fields:
        if not TABLE_NAME.fullmatch(field.name):
            return f"has a column {field.name!r}: give it a snake_case name with AS"
        if names.count(field.name) > 1:
            return f"has the column {field.name} twice"
        if isinstance(field.dataType, NullType):
            return f"has a column {field.name} without a type: CAST it to one"
    return None
