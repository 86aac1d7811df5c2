"""What the configuration says of a table of gold: by which definition it is made, and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from medallion.config.model import Aggregate, Config, GoldTable, Join, Statement
from medallion.layers.definition import refuse_changed
from medallion.spark import checkpoints


def gold_definition(table: GoldTable) -> dict[str, Any]:
    """All that the configuration says of what a table is made of: another one is refused until
    `medallion refresh`."""
    mode, made = {"output_mode": table.output_mode}, table.definition
    match made:
        case Statement():
            return {"sql": made.sql, **mode}
        case Join():
            within = {"within": made.within.text, "on": dict(made.on)}
            said = {"where": made.where, "condition": made.condition, "kind": made.kind}
            sources = dict(zip(("source", "with"), table.sources, strict=True))
            return {**sources, **within, **said, "columns": dict(made.columns), **mode}
    return {
        "source": table.sources[0],
        "window": made.window.text if made.window else None,
        "slide": made.slide.text if made.slide else None,
        "session": made.session.text if made.session else None,
        "group_by": list(made.group_by),
        "measure": dict(made.measure),
        **mode,
    }


def refuse_changed_gold(config: Config, table: GoldTable, then: Mapping[str, Any]) -> None:
    """Raise ConfigError where a table was made by another definition than the configuration's, or
    its silver table by another event time than the one that windows and joins would now go by."""
    if not isinstance(table.definition, Statement):
        for source in table.sources:
            checkpoint = config.layout.checkpoint(f"silver.{source}")
            made = checkpoints.noted(checkpoint, "definition") or {}
            time = {"event_time": config.sources[source].event_time}
            refuse_changed(config, f"silver.{source}", time | made, made | time)
    # Spark's state knows measures, and the keys of a join, by their order.
    in_order = () if table.output_mode == "update" else ("measure", "on")
    refuse_changed(config, f"gold.{table.name}", then, gold_definition(table), in_order)


def definition_parts(table: GoldTable) -> Mapping[str, GoldTable]:
    """Tables of one part of its definition each, by what that is called in the configuration; one
    that others are made with is before them.

    A column `_rows` is in the place of those that are another part.
    """
    made, found = table.definition, dict[str, Aggregate | Statement | Join]()
    match made:
        case Statement():
            found[f"SQL ({made.file})"] = made
        case Aggregate():
            window = "session" if made.session else "window"
            found[window] = replace(made, measure={"_rows": "count(*)"})
            for column, sql in made.measure.items():
                found[f"measure.{column}"] = replace(made, measure={column: sql})
        case Join():
            pairs = replace(made, columns={"_rows": "1"})
            found["where"] = replace(pairs, kind="left", condition=None)
            found["join"] = pairs
            for column, sql in made.columns.items():
                found[f"columns.{column}"] = replace(made, columns={column: sql})
    return {what: replace(table, definition=part) for what, part in found.items()}
