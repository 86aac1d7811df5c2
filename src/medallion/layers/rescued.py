"""What silver reads of bronze, and the rules about values that did not fit their columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.ingest.parsing.rescued import touches
from medallion.spark.plans import fields_in
from medallion.storage.table_specs import FULL_TIMES, RESCUED, bronze_columns

FieldPath = tuple[str, ...]
PREFIX = "rescued_"


def own_columns(source: SourceConfig, bronze: T.StructType) -> dict[str, T.DataType]:
    """Return the source's own columns of its bronze table, without the technical ones."""
    technical = {FULL_TIMES, *bronze_columns({}, source.origin)}
    return {field.name: field.dataType for field in bronze if field.name not in technical}


def rescue_rules(
    spark: SparkSession,
    source: SourceConfig,
    columns: Mapping[str, T.DataType],
    conditions: Iterable[str] = (),
) -> dict[str, FieldPath]:
    """Return the rules that a value breaks if it did not fit and silver reads its field.

    So does a rule of bronze's suite, which would take the field for null.

    An expression of silver that names `_rescued_data` handles such values itself: the fields that
    it names have no rule.

    Args:
        spark: the session that parses silver's expressions.
        source: the source with its silver columns.
        columns: the source's own columns of bronze, with their types.
        conditions: the SQL of the rules of bronze's suite.

    Returns:
        The names of the rules, such as `rescued_user.plan`, with the path of each one's field.
    """
    fields, handled = set[FieldPath](), set[FieldPath]()
    for expression in (*source.silver.values(), *conditions):
        names = fields_in(spark, [expression])
        is_handled = any(name[0].lower() == RESCUED for name in names)
        (handled if is_handled else fields).update(
            path for name in names if (path := _spelled(name, columns))
        )
    return {
        PREFIX + ".".join(path): path
        for path in sorted(fields)
        if not any(path[: len(other)] == other for other in handled)
    }


def _spelled(name: FieldPath, columns: Mapping[str, T.DataType]) -> FieldPath:
    """Return the path of a field as the table spells it; empty if the table has no such column."""
    path, fields = list[str](), columns
    for part in name:
        spelled = next((field for field in fields if field.lower() == part.lower()), None)
        if spelled is None:
            return (*path, part) if path else ()
        path.append(spelled)
        kind = fields[spelled]
        inner = kind.elementType if isinstance(kind, T.ArrayType) else kind
        fields = {f.name: f.dataType for f in inner} if isinstance(inner, T.StructType) else {}
    return tuple(path)


def broken_by(path: FieldPath, rules: Mapping[str, FieldPath]) -> list[str]:
    """Return the names of the rules that a rescued value in a field breaks."""
    return [name for name, field in rules.items() if touches(path, field)]


def columns_of(
    rules: Mapping[str, FieldPath], columns: Mapping[str, T.DataType]
) -> dict[str, T.DataType]:
    """Return the columns that rules are about."""
    named: Collection[str] = {path[0] for path in rules.values()}
    return {name: kind for name, kind in columns.items() if name in named}
