"""Definitions of gold tables: the check for changes, and the parts of a definition."""

from collections.abc import Mapping
from typing import Any

from medallion.config.model import UTC, Aggregate, Config, GoldTable, Join, Statement
from medallion.layers.definition import Change, changes_between
from medallion.spark import checkpoints


def gold_definition(table: GoldTable) -> dict[str, Any]:
    """Return all settings that determine the rows of a table; a change of them needs a refresh."""
    mode, definition = {"output_mode": table.output_mode}, table.definition
    tables = [name.removeprefix("silver.") for name in table.tables]
    match definition:
        case Statement():
            return {"sql": definition.sql, **mode}
        case Join():
            return {
                **dict(zip(("source", "with"), tables, strict=True)),
                "within": definition.within.text,
                "on": dict(definition.on),
                "where": definition.where,
                "condition": definition.condition,
                "kind": definition.kind,
                "columns": dict(definition.columns),
                **mode,
            }
    return {
        "source": tables[0],
        "window": _window(definition),
        "slide": definition.slide.text if definition.slide else None,
        "session": definition.session.text if definition.session else None,
        "group_by": list(definition.group_by),
        "measure": dict(definition.measure),
        # Only if they are set: definitions of earlier releases lack them.
        **({"start": definition.start.text} if definition.start else {}),
        **({"where": definition.where} if definition.where else {}),
        **({"time_zone": definition.time_zone} if definition.time_zone != UTC else {}),
        **mode,
    }


def _window(aggregate: Aggregate) -> str | None:
    if aggregate.calendar_unit:  # not the same as a duration: a week and 7 days start differently
        return f"calendar {aggregate.calendar_unit}"
    return aggregate.window.text if aggregate.window else None


def gold_changes(config: Config, table: GoldTable, then: Mapping[str, Any]) -> list[Change]:
    """Return what has changed in a table's definition, and in the event time of its silver tables.

    Args:
        config: the current configuration.
        table: the table's current entry.
        then: the `gold_definition` that its rows were written with.
    """
    # Spark's state identifies measures, and the keys of a join, by position.
    ordered = () if table.output_mode == "update" else ("measure", "on")
    changes = changes_between(then, gold_definition(table), ordered)
    if isinstance(table.definition, Statement):  # windows and joins use event time
        return changes
    for silver in table.tables:
        recorded = checkpoints.read_document(config.layout.checkpoint(silver), "definition") or {}
        old, new = recorded.get("event_time"), config.silver_tables[silver].event_time
        if "event_time" in recorded and old != new:
            changes.append(Change(f"event_time of {silver}", old, new))
    return changes
