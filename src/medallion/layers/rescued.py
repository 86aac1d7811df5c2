"""Silver's rules for rescued values, which do not fit their columns, and the report on them."""

from collections.abc import Iterable, Mapping

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.ingest.parsing.names import column_path
from medallion.ingest.parsing.rescued import rescued_fields
from medallion.layers.flow import Flow
from medallion.layers.silver.transform import BRONZE
from medallion.spark import delta
from medallion.spark.plans import fields_in
from medallion.state.runs import MOST_FIELDS, RescuedField, RescuedSummary
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import RESCUED, bronze_columns

FieldPath = tuple[str, ...]
_RULE_PREFIX = "rescued_"


def source_columns(source: SourceConfig, bronze: T.StructType) -> dict[str, T.DataType]:
    """Return the source's own columns of its bronze table, without the technical ones."""
    technical = bronze_columns({}, source.origin_columns)
    return {field.name: field.dataType for field in bronze if field.name not in technical}


def rescue_rules(
    spark: SparkSession,
    source: SourceConfig,
    columns: Mapping[str, T.DataType],
    conditions: Iterable[str] = (),
) -> dict[str, FieldPath]:
    """Return the rules that quarantine rows with rescued values in fields that silver reads.

    Silver, `cdc` or a rule of bronze's suite would read null instead: a delete would be an update.
    An expression that names `_rescued_data` handles rescued values itself: its fields have no rule.

    Args:
        spark: the session that parses silver's expressions.
        source: the source with its silver columns.
        columns: the source's own columns of bronze, with their types.
        conditions: the SQL of the rules of bronze's suite.

    Returns:
        The names of the rules, such as `rescued_user.plan`, with the path of each one's field.
    """
    fields, handled = set[FieldPath](), set[FieldPath]()
    changes = source.cdc.derived.values() if source.cdc else ()
    for expression in (*source.silver.values(), *conditions, *changes):
        names = fields_in(spark, [expression.replace(f"{BRONZE}.", "")])
        is_handled = any(name[0].lower() == RESCUED for name in names)
        (handled if is_handled else fields).update(
            path for name in names if (path := _table_path(name, columns))
        )
    return {
        _RULE_PREFIX + ".".join(path): path
        for path in sorted(fields)
        if not any(path[: len(other)] == other for other in handled)
    }


def _table_path(name: FieldPath, columns: Mapping[str, T.DataType]) -> FieldPath:
    """Return the path of a field as the table spells it; empty if the table has no such column."""
    path, fields = list[str](), columns
    for part in name:
        spelled = next((field for field in fields if field.lower() == part.lower()), None)
        if spelled is None:
            return (*path, part) if path else ()
        path.append(spelled)
        inner = fields[spelled]
        if isinstance(inner, T.ArrayType):
            inner = inner.elementType
        fields = {f.name: f.dataType for f in inner} if isinstance(inner, T.StructType) else {}
    return tuple(path)


# Appended to the fields of each row: an empty path, whose group counts the rows.
_ROW = "named_struct('path', cast(array() as array<string>), 'example', '')"


def rescued_summary(flow: Flow, batches: range, names: Mapping[str, str]) -> RescuedSummary:
    """Return how many values of some batches of a bronze table did not fit, with examples.

    Args:
        flow: the flow of the table. Spark is used only if a row has rescued data.
        batches: their numbers.
        names: the original names of fields by path.
    """
    (table,), count = flow.target_paths, f"count({RESCUED})"
    if not (files := _files_of(table, batches)):
        return RescuedSummary()
    ((rescued,),) = delta_tables.select_rows(
        table, count, "", "added", files=files, columns=RESCUED
    )
    if not rescued:
        return RescuedSummary()
    rows = delta.rows_of(flow.spark, table, files)
    fields = F.expr(rescued_fields(source_columns(flow.source, rows.schema), names)).alias("fields")
    position = F.expr(flow.source.position_sql).alias("position")
    with_fields = rows.where(f"{RESCUED} is not null").select(fields, position)
    every_field = F.explode(F.expr(f"array_append(fields, {_ROW})")).alias("field")
    by_row = with_fields.where("size(fields) > 0").select(every_field, "position")
    first = F.first(F.struct("field.example", "position"))
    columns = F.count(F.lit(1)).alias("rows"), first.alias("first")
    counts = by_row.groupBy("field.path").agg(*columns).orderBy(F.desc("rows"), "path")
    found = counts.limit(MOST_FIELDS + 1).collect()  # the first row counts all
    by_name = {
        ".".join(column_path(row.path, names)): RescuedField(row.rows, *row["first"])
        for row in found[1:]
    }
    return RescuedSummary(found[0].rows if found else 0, by_name)


def rescued_report(source: SourceConfig, summary: RescuedSummary) -> str | None:
    """Return a message for the user: what happens to the rows, and what to do.

    Return None if all values fit, or the source's `on_rescued` is `ignore`.
    """
    if not summary.rows or source.on_rescued == "ignore":
        return None
    effect = "A row is quarantined if silver reads the field; to keep it"
    if source.on_rescued == "warn":
        effect = "In silver the field is null; to get the values"
    key = "hints" if source.schema is None else "schema"
    remedy = f"set {key} for it to a type that fits and run medallion refresh bronze.{source.name}"
    return f"{source.name}: {summary}. {effect}, {remedy}."


def _files_of(table: StoragePath, batches: range) -> list[StoragePath]:
    """Return the data files that batches added, as far as they still exist."""
    versions = sorted(each.version for each in delta_log.batch_commits(table, batches))
    readable = [version for version in versions if delta_log.are_readable(table, [version])]
    return [file for each in readable for file in delta_log.added_files(table, each, each)]
