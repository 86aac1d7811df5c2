"""Parse many lines in one Spark job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from medallion.ingest.parsing.parse import parse_lines


def rows_of(spark: SparkSession, lines: Sequence[str], schema: Mapping[str, str]) -> list[Row]:
    """Return the parsed rows of the lines, in order."""
    frame = spark.createDataFrame(
        [(line, f"{number:09}") for number, line in enumerate(lines)],
        "value string, _source_file string",
    )
    parsed = parse_lines(
        frame.withColumn("_source_modified_at", F.current_timestamp()), schema
    ).collect()
    assert len(parsed) == len(lines)
    return sorted(parsed, key=lambda row: str(row["_source_file"]))
