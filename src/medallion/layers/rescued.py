"""Silver's rules for rescued values, which do not fit their columns, and the report on them."""

from collections.abc import Iterable, Mapping, Sequence

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import SourceConfig
from medallion.ingest.parsing.names import column_path
from medallion.ingest.parsing.rescued import paths_overlap, rescued_fields
from medallion.layers.flow import Flow
from medallion.spark import delta_reads
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

    Silver, or a rule of bronze's suite, would read null instead. An expression that names
    `_rescued_data` handles rescued values itself: its fields have no rule.

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


def rules_broken_at(path: FieldPath, rules: Mapping[str, FieldPath]) -> list[str]:
    """Return the names of the rules that a rescued value in a field breaks."""
    return [name for name, field in rules.items() if paths_overlap(path, field)]


# Appended to the fields of each row: an empty path, whose group counts the rows.
_ROW = "named_struct('path', cast(array() as array<string>), 'example', '')"


class RescuedValues:
    """The values of some batches of a bronze table that did not fit its columns.

    Attributes:
        summary: how many rows and values they are, with examples.
    """

    def __init__(
        self, flow: Flow, batches: range, conditions: Sequence[str], names: Mapping[str, str]
    ) -> None:
        """Count the values in the files that the batches added.

        Args:
            flow: the flow of the table. Spark is used only if a row has rescued data.
            batches: their numbers.
            conditions: the SQL of the rules of the table's suite.
            names: the original names of fields by path.
        """
        self._spark, self._source, (table,) = flow.spark, flow.source, flow.target_paths
        self._conditions, self._names = conditions, names
        self.summary, self._paths = RescuedSummary(), tuple[FieldPath, ...]()
        files = _files_of(table, batches)
        count = f"count({RESCUED})"
        if not files:
            return
        ((rescued,),) = delta_tables.select_rows(
            table, count, "", "added", files=files, columns=RESCUED
        )
        if rescued:
            rows = delta_reads.rows_of(flow.spark, table, files)
            self._columns = source_columns(flow.source, rows.schema)
            self._count(rows)

    def _count(self, rows: DataFrame) -> None:
        fields = F.expr(rescued_fields(self._columns, self._names)).alias("fields")
        position = F.expr(self._source.position_sql).alias("position")
        rescued = rows.where(f"{RESCUED} is not null").select(fields, position)
        every_field = F.explode(F.expr(f"array_append(fields, {_ROW})")).alias("field")
        by_row = rescued.where("size(fields) > 0").select(every_field, "position")
        first = F.first(F.struct("field.example", "position"))
        columns = F.count(F.lit(1)).alias("rows"), first.alias("first")
        counts = by_row.groupBy("field.path").agg(*columns).orderBy(F.desc("rows"), "path")
        if most := counts.limit(MOST_FIELDS + 1).collect():
            total, *by_field = most
            by_path = {
                tuple(column_path(row.path, self._names)): RescuedField(row.rows, *row["first"])
                for row in by_field
            }
            self._paths = tuple(by_path)
            fields_by_name = {".".join(path): value for path, value in by_path.items()}
            self.summary = RescuedSummary(total.rows, fields_by_name)

    def report(self) -> str | None:
        """Return a message for the user: what happens to the rows, and what to do.

        Return None if all values fit, or the source's `on_rescued` is `ignore`.
        """
        source = self._source
        if not self.summary.rows or source.on_rescued == "ignore":
            return None
        line = f"{source.name}: {self.summary}."
        try:
            rules = rescue_rules(self._spark, source, self._columns, self._conditions)
        except ParseException:  # silver reports it with the column or rule
            return line
        broken = dict.fromkeys(r for path in self._paths for r in rules_broken_at(path, rules))
        if not broken:
            return f"{line} Silver does not read these fields; {RESCUED} keeps the values."
        columns = ", ".join(dict.fromkeys(rules[rule][0] for rule in broken))
        key, bronze = "hints" if source.schema is None else "schema", f"bronze.{source.name}"
        remedy = f"set {key} for {columns} to a type that fits and run medallion refresh {bronze}"
        if source.on_rescued == "warn":
            return f"{line} They are null in silver; to get the values, {remedy}."
        return (
            f"{line} They go to quarantine as {', '.join(broken)}; to keep them, {remedy}, or set "
            "on_rescued: warn."
        )


def _files_of(table: StoragePath, batches: range) -> list[StoragePath]:
    """Return the data files that batches added, as far as they still exist."""
    since = delta_log.transactions(table, batches.start)
    versions = sorted(each.version for each in since if each.number in batches)
    readable = [version for version in versions if delta_log.are_readable(table, [version])]
    return [file for each in readable for file in delta_log.added_files(table, each, each)]
