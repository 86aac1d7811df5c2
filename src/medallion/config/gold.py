"""The entries below `gold` of pipeline.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import cast

from medallion.config import values
from medallion.config.document import Node
from medallion.config.model import OUTPUT_MODES, GoldTable, OutputMode, SourceConfig
from medallion.config.values import Duration
from medallion.lakehouse.columns import WINDOW

_MOST_WINDOWS = 1000  # Spark makes a copy of each row for each of them
_DURATION = "a duration such as '10 minutes'"


def gold_table(name: str, node: Node, sources: Mapping[str, SourceConfig]) -> GoldTable:
    """One table of gold over one of these sources' silver."""
    node.only(*(field.name for field in fields(GoldTable) if field.name != "name"))
    silver = node.get("source", values.text, "a silver table")
    layer, _, source = silver.partition(".")
    if layer != "silver" or source not in sources:
        tables = ", ".join(f"silver.{s}" for s in sources)
        node.fail("source", f"must be one of {tables}, not {silver}")
    window, slide = _windows(node)
    group_by = node.get("group_by", values.texts, "a list of silver columns")
    for column in group_by:
        if column not in sources[source].silver:
            node.fail("group_by", f"names {column!r}, which is not a column of silver.{source}")
        if [*group_by, *(WINDOW if window else ())].count(column) > 1:
            node.fail("group_by", f"names {column!r}, which the table has twice then")
    measure = node.get(
        "measure", values.named_columns, "snake_case columns with their Spark SQL aggregates"
    )
    for column in measure:
        if column in (*group_by, *(WINDOW if window else ())):
            node.fail("measure", f"names {column!r}, which the table has as a group")
    modes = values.one_of(OUTPUT_MODES)
    mode = node.get("output_mode", modes, " or ".join(OUTPUT_MODES), OUTPUT_MODES[0])
    return GoldTable(name, source, window, slide, group_by, measure, cast(OutputMode, mode))


def _windows(node: Node) -> tuple[Duration | None, Duration | None]:
    window = node.get("window", values.duration, _DURATION) if "window" in node.value else None
    slide = node.get("slide", values.duration, _DURATION) if "slide" in node.value else None
    if slide and (not window or slide.seconds > window.seconds):
        node.fail("slide", "needs a window that is at least as long")
    if slide and window and window.seconds > _MOST_WINDOWS * slide.seconds:
        node.fail(
            "slide", f"puts each row into more than {_MOST_WINDOWS:,} windows: make it longer"
        )
    return window, slide
