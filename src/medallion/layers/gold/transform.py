"""From silver tables to one table of gold; the same on a batch and on a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import and_

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import NullType

from medallion.config.model import Aggregate, Config, GoldTable, Join, Statement
from medallion.config.values import TABLE_NAME
from medallion.errors import ConfigError
from medallion.spark.errors import one_line
from medallion.spark.plans import CONFIG_TYPES, analyzed_plan, catalyst_class, node_type, plan_nodes
from medallion.storage.table_specs import WINDOW

_FRAME = "_window"


def aggregated(rows: DataFrame, event_time: str, made: Aggregate) -> DataFrame:
    """One row a group of silver's rows: the group's columns, then the measures."""
    if made.session is None:
        return per_group(windowed(rows, event_time, made), made.groups, made.measure)
    # A session is known when its rows are together: its ends are no columns to group by.
    framed = rows.withColumn(_FRAME, F.session_window(event_time, made.session.text))
    sessions = per_group(framed, (_FRAME, *made.group_by), made.measure)
    ends = zip(("start", "end"), WINDOW, strict=True)
    return sessions.select(
        *(F.col(f"{_FRAME}.{end}").alias(name) for end, name in ends),
        *made.group_by,
        *made.measure,
    )


def windowed(rows: DataFrame, event_time: str, made: Aggregate) -> DataFrame:
    """Each row once for every window it falls in, with `window_start` and `window_end` (UTC).

    Without windows of a fixed length, the rows as they are.
    """
    if made.window is None:
        return rows
    frame = F.window(event_time, made.window.text, made.slide.text if made.slide else None)
    return (
        rows.withColumn(_FRAME, frame)
        .withColumn("window_start", F.col(f"{_FRAME}.start"))
        .withColumn("window_end", F.col(f"{_FRAME}.end"))
        .drop(_FRAME)
    )


def per_group(rows: DataFrame, groups: Sequence[str], measure: Mapping[str, str]) -> DataFrame:
    """One row a group: the group's columns, then the measures.

    Args:
        rows: silver rows, `windowed` where the table has windows.
        groups: the columns to group by, the window's first.
        measure: column names with their SQL aggregates.
    """
    measures = [F.expr(aggregated).alias(name) for name, aggregated in measure.items()]
    if not groups:
        return rows.agg(*measures)
    return rows.groupBy(*groups).agg(*measures).select(*groups, *measure)


def has_place(time: str) -> Column:
    """Whether a join of streams can hold a row: Spark's watermark begins at 1970, and what is not
    after that comes too late."""
    return F.col(time) > F.timestamp_millis(F.lit(0))


def joined(
    rows: Mapping[str, DataFrame],
    times: Mapping[str, str],
    watermarks: Mapping[str, str],
    made: Join,
) -> DataFrame:
    """The pairs of rows of two silver tables, and with `left` the rows that have no partner.

    Rows without a `has_place` are in none, on a batch as on a stream.

    Args:
        rows: both tables by their sources' names, the first one first.
        times: the columns of the event times, likewise.
        watermarks: how long after the newest time a row of a stream may come, likewise.
        made: what makes a pair, and the columns of one.
    """
    (left, first), (right, second) = (
        (name, some.where(has_place(times[name]))) for name, some in rows.items()
    )
    if made.where:
        first = first.where(made.where)
    # After that: what is left out moves no watermark.
    first, second = (
        some.withWatermark(times[name], watermarks[name])
        for name, some in ((left, first), (right, second))
    )
    seconds = made.within.seconds
    time, other = F.col(f"{left}.{times[left]}"), F.col(f"{right}.{times[right]}")
    reach = F.expr(f"interval {seconds} seconds")
    conditions = [F.col(f"{left}.{one}") == F.col(f"{right}.{two}") for one, two in made.on.items()]
    conditions += [other >= time - reach, other <= time + reach]
    if made.condition:
        # In one piece: where a part of it names the first table alone, Spark would give out a row
        # that fails it at once, as one without a partner, and not when its time has passed.
        conditions += [F.expr(made.condition).eqNullSafe(other.isNotNull())]
    pairs = first.alias(left).join(second.alias(right), reduce(and_, conditions), made.kind)
    return pairs.select(*(F.expr(sql).alias(name) for name, sql in made.columns.items()))


# What a stream cannot do, by the names of Spark's plans, and what to do instead.
_REFUSED = {
    "Sort": "sorts its rows, and a table has no order: say ORDER BY where the table is read",
    "GlobalLimit": "takes some rows only: say LIMIT where the table is read",
    "Offset": "leaves rows out by their number: say OFFSET where the table is read",
    "Sample": "takes rows by chance (TABLESAMPLE): do so where the table is read",
    "Distinct": "asks for DISTINCT rows: say GROUP BY",
    "Intersect": "compares two sets of rows (INTERSECT): do so where the tables are read",
    "Except": "compares two sets of rows (EXCEPT): do so where the tables are read",
    "Window": "has a function OVER other rows: GROUP BY window(time, '10 minutes') instead",
}
_NESTED = "has a query within its conditions or columns: do that where the table is read"
_JOINED = "joins two streams, which takes watermarks: write the table with join in place of sql"
_TWICE = "aggregates what it has aggregated: do the second step where the table is read"
_MIXED = "puts groups beside other rows (UNION): make a table of each, and UNION them when read"
_STATIC = "reads {}: a table of gold is made of silver tables alone"
_CONSTANTS = ("OneRowRelation", "LocalRelation", "Range")


def statement_rows(
    spark: SparkSession, table: GoldTable, made: Statement, rows: Mapping[str, DataFrame]
) -> DataFrame:
    """What the statement makes of silver's rows; of streams, if it is one for a stream.

    Args:
        rows: the silver tables that it names, by their sources' names.

    Raises:
        ConfigError: it is not a query that Spark can run, or not one for a stream.
    """
    for source, frame in rows.items():
        frame.createOrReplaceTempView(f"silver_{source}")
    try:
        # Whatever is no query is refused here, for the next line would run it.
        spark._jsparkSession.sessionState().sqlParser().parseQuery(made.sql)
        found = spark.sql(made.sql)
    except PySparkException as error:
        told = one_line(str(error))
        told = f"{_NESTED}." if "INVALID_SUBQUERY" in told else told
        raise ConfigError(f"{made.file}: {told}") from None
    finally:
        for source in rows:
            spark.catalog.dropTempView(f"silver_{source}")
    is_stream = all(frame.isStreaming for frame in rows.values())
    if is_stream and (problem := _stream_problem(table, found)):
        raise ConfigError(f"{made.file}: {problem}.")
    return found


def _stream_problem(table: GoldTable, found: DataFrame) -> str | None:
    """What a stream cannot do of it, or a table cannot hold."""
    # With what WITH has named in the places of its names: there too, groups stand beside rows.
    plan = catalyst_class(found, "optimizer.InlineCTE")(True, False).apply(analyzed_plan(found))
    tree = list(plan_nodes(plan))
    kinds = [node_type(node) for node in tree]
    for node, kind in zip(tree, kinds, strict=True):
        if kind in _REFUSED:
            return _REFUSED[kind]
        if kind == "Union" and "Aggregate" in map(node_type, plan_nodes(node)):
            return _MIXED  # groups are given anew in each batch, other rows once
        if kind == "Join" and node.left().isStreaming() and node.right().isStreaming():
            return _JOINED
        if not (node.children().size() or node.isStreaming() or kind in _CONSTANTS):
            return _STATIC.format(node.toString().strip()[:100])
    if not plan.subqueriesAll().isEmpty():
        return _NESTED
    if kinds.count("Aggregate") > 1:
        return _TWICE
    wanted = "complete" if "Aggregate" in kinds else "append"
    if table.output_mode != wanted:
        has = "groups, which change as rows come in" if wanted == "complete" else "no groups"
        return f"has {has}: its output_mode in pipeline.yaml must be {wanted}"
    return _column_problem(found)


def _column_problem(found: DataFrame) -> str | None:
    names = found.columns
    for field in found.schema.fields:
        if not TABLE_NAME.fullmatch(field.name):
            return f"has a column {field.name!r}: give it a snake_case name with AS"
        if names.count(field.name) > 1:
            return f"has the column {field.name} twice"
        if isinstance(field.dataType, NullType):
            return f"has a column {field.name} without a type: CAST it to one"
    return None


def gold_rows(
    spark: SparkSession, config: Config, table: GoldTable, rows: Mapping[str, DataFrame]
) -> DataFrame:
    """The rows of a table of gold, of silver's rows by source; the same on batch and stream.

    Raises:
        ConfigError: its SQL is not one that a stream can do, or a join's columns are unlike.
    """
    times = {name: config.sources[name].event_time for name in rows}
    match table.definition:
        case Statement() as made:
            return statement_rows(spark, table, made, rows)
        case Join() as made:
            _refuse_unlike(f"{config.conf_dir / 'pipeline.yaml'}: gold.{table.name}", rows, made)
            watermarks = {name: config.sources[name].watermark.text for name in rows}
            return joined(rows, times, watermarks, made)
        case Aggregate() as made:
            (source,) = rows
            return aggregated(rows[source], times[source], made)


def _refuse_unlike(name: str, rows: Mapping[str, DataFrame], made: Join) -> None:
    """Raise ConfigError where a join goes by columns of two types: Spark would make one of them the
    other, and stop at the first text that is no number, or take two numbers for one."""
    (first, left), (second, right) = ((source, dict(some.dtypes)) for source, some in rows.items())
    for one, two in made.on.items():
        if one not in left or two not in right:  # which Spark tells
            continue
        if CONFIG_TYPES.get(left[one], left[one]) != CONFIG_TYPES.get(right[two], right[two]):
            raise ConfigError(
                f"{name}.join.on goes by {first}.{one}, which is {left[one]}, and {second}.{two}, "
                f"which is {right[two]}: make both columns of silver the same type, as with string "
                "or try_cast."
            )
