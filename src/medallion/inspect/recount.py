"""The rows of a source counted again by Python and DataFusion, neither of which is Spark."""

from __future__ import annotations

from collections import Counter

from medallion.config.model import Config, SourceConfig
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.source import Verification
from medallion.spark import checkpoints
from medallion.storage import delta_tables
from medallion.storage.table_specs import OFFSET
from medallion.storage.text import counted

_SHOWN = 20


def recount(config: Config, source: SourceConfig) -> Verification:
    """Count what a source gave, and its rows in every table; name what differs."""
    found = SOURCE_TYPES[source.format].verify(config, source)
    found.findings += _beyond_bronze(config, source)
    found.findings += _twice_in_silver(config, source)
    if len(found.findings) > _SHOWN:
        more = len(found.findings) - _SHOWN
        found.findings[_SHOWN:] = [f"{source.name}: and {more:,} more."]
    return found


def _beyond_bronze(config: Config, source: SourceConfig) -> list[str]:
    """Files, or partitions of topics, with more rows in silver and quarantine than in bronze."""
    columns = [column for column in source.silver_origin if column != OFFSET]
    bronze = _by_origin(config, f"bronze.{source.name}", columns)
    carried = _by_origin(config, f"silver.{source.name}", columns)
    carried.update(_by_origin(config, f"quarantine.{source.name}", columns))
    return [
        f"{source.name}: {place or 'all of it'} has {counted(bronze[place], 'row')} in bronze, and "
        f"{rows:,} in silver and quarantine."
        for place, rows in carried.items()
        if rows > bronze[place]
    ]


def _by_origin(config: Config, table: str, columns: list[str]) -> Counter[str]:
    grouped = f"group by {', '.join(columns)}" if columns else ""
    what = ", ".join([*columns, "count(*)"])
    found = delta_tables.select_rows(config.layout.table(table), what, grouped)
    return Counter({"/".join(map(str, row[:-1])): int(row[-1]) for row in found})


def _twice_in_silver(config: Config, source: SourceConfig) -> list[str]:
    name = f"silver.{source.name}"
    # The table's own keys: others are refused until it is made anew by them.
    made = checkpoints.noted(config.layout.checkpoint(name), "definition") or {}
    names = made.get("keys", source.keys)
    keys = ", ".join(f'"{key}"' for key in names)
    known = " and ".join(f'"{key}" is not null' for key in names)
    sql = f"where {known} group by {keys} having count(*) > 1 limit {_SHOWN}"
    return [
        f"{source.name}: silver has {row[-1]} rows of {dict(zip(names, row, strict=False))}."
        for row in delta_tables.select_rows(config.layout.table(name), f"{keys}, count(*)", sql)
    ]
