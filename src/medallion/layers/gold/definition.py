"""Definitions of gold tables: the check for changes, and the parts of a definition."""

from collections.abc import Mapping
from typing import Any

from medallion.config.model import UTC, Aggregate, Config, GoldTable, Statement
from medallion.layers.definition import Change, changes_between, settings_document
from medallion.spark import checkpoints


def gold_definition(table: GoldTable) -> dict[str, Any]:
    """Return all settings that determine the rows of a table; a change of them needs a refresh."""
    tables = [name.removeprefix("silver.") for name in table.tables]
    names = dict(zip(("source", "with"), tables, strict=False))
    own, mode = settings_document(table.definition), {"output_mode": table.output_mode}
    match table.definition:
        case Statement() as statement:
            return {"sql": statement.sql, **mode}
        case Aggregate() as aggregate:
            if unit := aggregate.calendar_unit:  # a week and 7 days start differently
                own["window"] = f"calendar {unit}"
            if aggregate.time_zone == UTC:  # definitions of earlier releases lack it
                del own["time_zone"]
    return {**names, **own, **mode}


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
