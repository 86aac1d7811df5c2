"""From lines of text to bronze's columns: every line is kept, whatever it holds.

A line takes the first of three paths that can say all of it: nearly all the fast one, most others
the plain one, and the rest the exact one, each of them several times dearer than the one before.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.ingest.parsing.exact_path import exact_path
from medallion.ingest.parsing.fast_path import IS_SAME, MORE, LineLayout, fast_path
from medallion.ingest.parsing.json_text import parsed_struct, path_type, with_variables
from medallion.ingest.parsing.plain_path import plain_path
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

# Text beside `value` that is no JSON to its format, whatever it looks like.
NOT_JSON = "_no_json"


def parse_lines(
    lines: DataFrame, schema: Mapping[str, str], layout: LineLayout | None = None
) -> DataFrame:
    """Parse each line as one JSON object of the declared schema.

    Args:
        lines: `value` (the line), the columns that say where it came from, and maybe `_no_json`,
            which goes to `_corrupt_record` as it is. Or rows with types: see `parse_typed`.
        schema: bronze's own columns with their Spark types. If `_full_times` is among them, times
            may have nanoseconds: it holds those that their columns have truncated.
        layout: how most lines are written, which makes it fast; by default the columns in order.
            It decides one thing: whether `_rescued_data` of a line with unknown fields holds only
            these, or all fields.

    Returns:
        The columns of `schema`, then the technical ones. A line that is not one JSON object is in
        `_corrupt_record` as it came. Unknown fields, values that do not fit their column, and lines
        that name a field twice are in `_rescued_data` as JSON. A line that is not UTF-8 is kept as
        Latin-1, which loses no byte.
    """
    if has_typed_columns(lines):
        return parse_typed_rows(lines, schema)
    origin = [name for name in lines.columns if name not in ("value", NOT_JSON)]
    fields, digits = line_fields(schema), max_fraction_digits(schema)
    layout = layout or LineLayout.of((), fields)
    rows = fast_path(lines, fields, layout, digits)
    # The other paths are dear: only the lines that need them are carried there.
    rows = rows.withColumn("value", F.expr(f"case when not {IS_SAME} then value end"))
    other = f"coalesce({plain_path(fields)}, {exact_path(fields, digits)})"
    if layout.quotes:  # no field that this layout has besides may decide what the others are
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
    # A time that is rescued has no value in its column.
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
