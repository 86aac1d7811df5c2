"""A table of gold written in SQL, over streams named like the tables of silver."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import NullType

from medallion.config.model import GoldTable, Statement
from medallion.config.values import TABLE_NAME
from medallion.errors import ConfigError
from medallion.spark.errors import one_line
from medallion.spark.plans import analyzed, catalyst, kind_of, nodes

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


def result(
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
    if is_stream and (problem := _problem(table, found)):
        raise ConfigError(f"{made.file}: {problem}.")
    return found


def _problem(table: GoldTable, found: DataFrame) -> str | None:
    """What a stream cannot do of it, or a table cannot hold."""
    # With what WITH has named in the places of its names: there too, groups stand beside rows.
    plan = catalyst(found, "optimizer.InlineCTE")(True, False).apply(analyzed(found))
    tree = list(nodes(plan))
    kinds = [kind_of(node) for node in tree]
    for node, kind in zip(tree, kinds, strict=True):
        if kind in _REFUSED:
            return _REFUSED[kind]
        if kind == "Union" and "Aggregate" in map(kind_of, nodes(node)):
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
    return _unfit(found)


def _unfit(found: DataFrame) -> str | None:
    names = found.columns
    for field in found.schema.fields:
        if not TABLE_NAME.fullmatch(field.name):
            return f"has a column {field.name!r}: give it a snake_case name with AS"
        if names.count(field.name) > 1:
            return f"has the column {field.name} twice"
        if isinstance(field.dataType, NullType):
            return f"has a column {field.name} without a type: CAST it to one"
    return None
