"""From lines of text to bronze's columns: every line is kept, whatever it holds."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.lakehouse.columns import CORRUPT, INGESTED_AT, RESCUED
from medallion.parsing.exact_path import exact_path
from medallion.parsing.fast_path import MORE, fast_path
from medallion.parsing.times import PLAIN_TIME, times_of

# Text beside `value` that is no JSON to its format, whatever it looks like.
NO_JSON = "_no_json"


def parse(lines: DataFrame, schema: Mapping[str, str]) -> DataFrame:
    """Parse each line as one JSON object of the declared schema.

    Args:
        lines: `value` (the line), and the columns that say where it came from; and `_no_json`,
            which goes to `_corrupt_record` as it is, if there are lines that are not to be parsed.
        schema: bronze's own columns with their Spark types.

    Returns:
        The columns of `schema`, then the technical ones. A line that is not one whole JSON object
        is in `_corrupt_record` as it came, its columns null. Fields that the schema does not know,
        values that are not of their column's type or that it cannot say, and lines that name a
        field twice are in `_rescued_data` as JSON. A line that is not UTF-8 is kept as Latin-1,
        which loses no byte.
    """
    origin = [name for name in lines.columns if name not in ("value", NO_JSON)]
    rows = fast_path(lines, schema)
    # The exact path is dear: it is for the few lines that need it, and only they are carried there.
    rows = rows.withColumn("value", F.expr("case when _needs_exact_path then value end"))
    exact = F.expr(f"case when _needs_exact_path then {exact_path(schema)} end")
    rows = rows.withColumn("_exact", exact)
    times = times_of(schema)
    plain = {
        name: f"`{PLAIN_TIME}{name}`" if name in times else f"_parsed.`{name}`" for name in schema
    }
    corrupt = F.col(f"_exact.{CORRUPT}")
    if NO_JSON in lines.columns:
        corrupt = F.coalesce(NO_JSON, corrupt).alias(CORRUPT)
    return rows.select(
        *(
            F.expr(
                f"case when _needs_exact_path then _exact.`{name}` else {plain[name]} end"
            ).alias(name)
            for name in schema
        ),
        F.expr(f"case when _needs_exact_path then _exact.{RESCUED} else {MORE} end").alias(RESCUED),
        corrupt,
        *origin,
        F.current_timestamp().alias(INGESTED_AT),
    )
