"""Lines of text parsed to bronze's columns: every line is kept.

A line takes the first of three paths that can hold all of it: nearly all lines the fast path, most
others the plain path, and the rest the exact path. Each costs several times more than the last.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.ingest.parsing.fast_path import IS_SAME, MORE, LineLayout, fast_path
from medallion.ingest.parsing.json_text import parsed_struct, path_type, with_variables
from medallion.ingest.parsing.slow_paths import exact_path, plain_path
from medallion.ingest.parsing.times import (
    PLAIN_TIME,
    full_times_json,
    line_fields,
    max_fraction_digits,
    time_columns,
    times_as_strings,
)
from medallion.ingest.parsing.typed import has_typed_columns, parse_typed_rows
from medallion.storage.table_specs import CORRUPT, FULL_TIMES, INGESTED_AT, RESCUED

# A column of text that is corrupt to its format, even if it looks like JSON.
NOT_JSON = "_no_json"


def parse_lines(
    lines: DataFrame, schema: Mapping[str, str], layout: LineLayout | None = None
) -> DataFrame:
    """Parse each line as one JSON object of the declared schema.

    Args:
        lines: `value` (the line), the columns that say where it came from, and maybe `_no_json`,
            which goes to `_corrupt_record` as it is. Or rows with types: see `parse_typed`.
        schema: bronze's own columns with Spark types. With `_full_times` times may have
            nanoseconds: it holds those that their columns truncate.
        layout: the layout of most lines, for speed; by default the columns in order. It also
            decides whether `_rescued_data` has only the unknown fields of a line, or all fields.

    Returns:
        The columns of `schema`, then the technical ones. `_corrupt_record` has each line that is
        not one JSON object. `_rescued_data` has, as JSON, unknown fields, values that do not fit
        their column, and lines that repeat a field. A line that is not UTF-8 is kept as Latin-1,
        which loses no byte.
    """
    if has_typed_columns(lines):
        return parse_typed_rows(lines, schema)
    origin = [name for name in lines.columns if name not in ("value", NOT_JSON)]
    fields, digits = line_fields(schema), max_fraction_digits(schema)
    layout = layout or LineLayout.of((), fields)
    rows = fast_path(lines, fields, layout, digits)
    # The slow paths get only the lines that need them.
    rows = rows.withColumn("value", F.expr(f"case when not {IS_SAME} then value end"))
    other = f"coalesce({plain_path(fields)}, {exact_path(fields, digits)})"
    if layout.quotes:  # fields that only the layout has must not change the result
        other = with_variables(
            {"_parsed": parsed_struct(times_as_strings(fields))}, other, path_type(fields)
        )
    rows = rows.withColumn("_other", F.expr(f"case when not {IS_SAME} then {other} end"))
    times = time_columns(fields)
    same = {
        name: f"`{PLAIN_TIME}{name}`" if name in times else f"_parsed.`{name}`" for name in fields
    }
    columns = {
        name: f"case when {IS_SAME} then {value} else _other.`{name}` end"
        for name, value in same.items()
    }
    # Rescued times have no value in their column.
    columns[FULL_TIMES] = full_times_json(
        {
            name: f"case when {IS_SAME} or _other.`{name}` is not null then _parsed.`{name}` end"
            for name, kind in times.items()
            if kind == "timestamp"
        }
    )
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
