"""What the configuration says of a table of silver: by which definition it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.layers.definition import refuse_changed


def definition_of(source: SourceConfig) -> dict[str, Any]:
    """The keys, event time and expressions that a table of silver is made by: others are refused
    until `medallion refresh`. The types of its columns are in the table itself."""
    found: dict[str, Any] = {"event_time": source.event_time, "keys": list(source.keys)}
    found |= {f"{column} as": sql for column, sql in source.silver.items()}
    return {**found, "enrich.on": source.enrich.on} if source.enrich else found


def refuse_changed_definition(
    config: Config,
    source: SourceConfig,
    then: Mapping[str, Any],
    columns: tuple[Mapping[str, str], Mapping[str, str]] = ({}, {}),
) -> None:
    """Raise ConfigError where a table was made by another definition than the configuration's.

    Args:
        columns: those of the table with their types, and those that it would get now; without them
            columns that are new are not looked for.
    """
    now = {key: it for key, it in definition_of(source).items() if key in then}
    there, made = ({f"column {name}": kind for name, kind in some.items()} for some in columns)
    refuse_changed(config, f"silver.{source.name}", {**then, **there}, {**now, **made})
