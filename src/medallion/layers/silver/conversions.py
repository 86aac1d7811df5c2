"""Values that a conversion of silver turned into null: the rules about them, and their counts."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.model import SourceConfig
from medallion.layers.silver.transform import FIRST_LOST, LOST
from medallion.spark.plans import converted_value
from medallion.state.runs import RescuedField, RescuedSummary
from medallion.storage.table_specs import SOURCE_FILE, SOURCE_POSITION, string_literal, struct_sql
from medallion.storage.text import Reporter

_RULE_PREFIX = "conversion_"
_EXAMPLE_LENGTH = 60  # characters


def lost_values(
    spark: SparkSession, source: SourceConfig, columns: Mapping[str, str], event_time: str = ""
) -> dict[str, str]:
    """Return SQL of the value that each conversion loses in a row; null if it loses none.

    A value that did not fit its field of bronze is null there, so that no conversion loses it: the
    rules about rescued values count it. A blank string is no value.

    Args:
        spark: the session that parses the expressions.
        source: the source of the rows.
        columns: SQL of silver's columns.
        event_time: the column that is cast to a timestamp. It may be null with change records only;
            else another rule is about it.
    """
    lost, unavailable = {}, source.cdc and source.cdc.unavailable_value
    for column, sql in columns.items():
        is_time = column == event_time
        value = converted_value(spark, sql, is_cast=is_time)
        if not value or (is_time and not source.cdc):
            continue
        if unavailable:
            value = f"nullif({value}, {string_literal(unavailable)})"
        result = f"try_cast({sql} as timestamp)" if is_time else f"({sql})"
        lost[column] = f"if({result} is null, {value}, null)"
    return lost


def conversion_rules(lost: Mapping[str, str]) -> dict[str, str]:
    """Return the rules that quarantine rows with lost values, by name."""
    return {_RULE_PREFIX + column: f"{sql} is not null" for column, sql in lost.items()}


def lost_struct(source: SourceConfig, lost: Mapping[str, str], columns: Collection[str]) -> str:
    """Return SQL of the lost values of a row with its position, by column; empty for none.

    It is null if the row has lost none.

    Args:
        source: the source of the rows.
        lost: the result of `lost_values`.
        columns: the columns of the rows.
    """
    if not lost:
        return ""
    position = SOURCE_FILE if SOURCE_FILE in columns else "cast(null as string)"
    if source.has_lines and SOURCE_POSITION in columns:
        position = source.position_sql
    values = {
        column: f"if({sql} is null, null, "
        f"named_struct('position', {position}, 'example', left({sql}, {_EXAMPLE_LENGTH})))"
        for column, sql in lost.items()
    }
    return f"if(coalesce({', '.join(lost.values())}) is null, null, {struct_sql(values)})"


def lost_summary(
    observed: Iterable[Mapping[str, Any]], table: str, say: Reporter
) -> RescuedSummary:
    """Return the summary of several results of `lost_metrics`, also of those among others.

    Args:
        observed: the results.
        table: the name of the table in messages.
        say: receives a message for each column.
    """
    rows, fields = 0, dict[str, RescuedField]()
    for metrics in observed:
        rows += metrics.get(LOST) or 0
        for name, example in metrics.items():
            column = name.removeprefix(FIRST_LOST)
            if example and column != name:
                known = fields.get(column) or RescuedField(0, **json.loads(example))
                fields[column] = replace(known, rows=known.rows + metrics[f"{LOST}.{column}"])
    summary = RescuedSummary(rows, fields)
    for sentence in summary.lost_sentences.values():
        say(f"  {table}: {sentence}")
    return summary
