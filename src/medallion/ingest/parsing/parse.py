"""Lines of text parsed to bronze's columns: every line is kept.

Nearly all lines take the fast path: those whose fields are in the order of the batch's first lines.
The others take the exact path, which reads any line and costs several times more.
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.ingest.parsing.exact_path import exact_path, path_type
from medallion.ingest.parsing.fast_path import IS_SAME, MORE, LineLayout, fast_path
from medallion.ingest.parsing.json_text import parsed_field, parsed_struct, with_variables
from medallion.ingest.parsing.names import rename_fields
from medallion.ingest.parsing.times import as_strings, converted_column, converted_columns
from medallion.ingest.parsing.typed import has_typed_columns, parse_typed_rows
from medallion.storage.table_specs import CORRUPT, INGESTED_AT, RESCUED

# A column with text that is corrupt in the source's format, even if it looks like JSON.
NOT_JSON = "_no_json"
NEEDS_EXACT_PATH = "NEEDS_EXACT_PATH"
"""Raised by Spark at a line that the fast path cannot parse, if nothing else may."""


def parse_lines(
    lines: DataFrame,
    schema: Mapping[str, str],
    layout: LineLayout | None = None,
    fields: Mapping[str, str] | None = None,
    is_fast_only: bool = False,
) -> DataFrame:
    """Parse each line as one JSON object of the declared schema.

    Args:
        lines: `value` (the line), the columns of its origin, and maybe `_no_json`, which goes to
            `_corrupt_record` unchanged. Or rows of typed files: see `parse_typed_rows`.
        schema: bronze's own columns with Spark types.
        layout: the layout of most lines, for speed; by default the columns in order. It also
            decides whether `_rescued_data` has only the unknown fields of a line, or all fields.
        fields: the fields of the columns in the same order, if some have other names, at any depth,
            or a time format as type (`times.is_time_format`).
        is_fast_only: whether to fail with `NEEDS_EXACT_PATH` at a line that the fast path cannot
            parse. Planning the exact path takes most of the time of a small batch.

    Returns:
        The columns of `schema`, then the technical ones. `_corrupt_record` has each line that is
        not one JSON object. `_rescued_data` has, as JSON, unknown fields, values that do not fit
        their column, and lines that repeat a field. A line that is not UTF-8 is kept as Latin-1,
        which loses no byte.
    """
    if has_typed_columns(lines):
        return parse_typed_rows(lines, schema, fields)
    origin = [name for name in lines.columns if name not in ("value", NOT_JSON)]
    fields = fields or schema
    layout = layout or LineLayout.from_lines((), fields)
    rows = fast_path(lines, fields, layout)
    # The exact path gets only the lines that need it.
    rows = rows.withColumn("value", F.expr(f"case when not {IS_SAME} then value end"))
    if is_fast_only:
        other = f"cast(raise_error('{NEEDS_EXACT_PATH}') as {path_type(fields)})"
    else:
        other = exact_path(fields)
        if layout.quotes:  # the layout's unknown fields must not change the result
            steps = {"_parsed": parsed_struct(as_strings(fields))}
            other = with_variables(steps, other, path_type(fields))
    rows = rows.withColumn("_other", F.expr(f"case when not {IS_SAME} then {other} end"))
    columns = _column_values(schema, fields)
    corrupt = F.col(f"_other.{CORRUPT}")
    if NOT_JSON in lines.columns:
        corrupt = F.coalesce(NOT_JSON, corrupt).alias(CORRUPT)
    return rows.select(
        *(F.expr(columns[name]).alias(name) for name in schema),
        F.expr(f"case when {IS_SAME} then {MORE} else _other.{RESCUED} end").alias(RESCUED),
        corrupt,
        *origin,
        F.current_timestamp().alias(INGESTED_AT),
    )


def _column_values(schema: Mapping[str, str], fields: Mapping[str, str]) -> dict[str, str]:
    """Return SQL for the value of each column from the paths' results.

    Args:
        schema: columns with Spark types.
        fields: their fields in the same order, with the types that the paths parse.
    """
    columns, converted = {}, converted_columns(fields)
    for (name, dtype), column in zip(fields.items(), schema, strict=True):
        value = converted_column(name) if name in converted else parsed_field(name)
        value = f"case when {IS_SAME} then {value} else {parsed_field(name, '_other')} end"
        columns[column] = rename_fields(value, dtype, schema[column])
    return columns
