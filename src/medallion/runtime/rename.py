"""Renamed sources, and left-over tables.

`renamed_from` moves records, files, checkpoints and tables to the new name. Each step may be
repeated. Bronze's table moves last: until then, the next command repeats all.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from medallion.config.model import CHANGES, Config
from medallion.config.queries import layers_in_use, queries
from medallion.errors import ConfigError, UsageError
from medallion.spark import checkpoints
from medallion.state import erasures, journal, ledger, topics
from medallion.state.journal import Backfill, Erasure, Rebuild, Replay
from medallion.state.runs import TABLE as RUNS
from medallion.storage import delta_tables, locks, records
from medallion.storage.text import Reporter

_TABLES = "silver.{}", f"silver.{{}}{CHANGES}", "quarantine.{}", "bronze.{}"  # in this order
_LINKS = ("source", "with")  # keys of definitions that name a silver table


def pending_renames(config: Config) -> dict[str, str]:
    """Return the new name of each source whose tables have its older name; no JVM."""
    names = {s.renamed_from: s.name for s in config.sources.values() if s.renamed_from}
    table = config.layout.table
    return {old: names[old] for old in names if delta_tables.table_exists(table(f"bronze.{old}"))}


def rename_sources(config: Config, report: Reporter) -> None:
    """Move what the older names of sources have; the caller holds the locks of its layers.

    Raises:
        ConfigError: a source has rows under both names.
        UsageError: the caller does not write all layers, or another command is unfinished.
    """
    for old, new in pending_renames(config).items():
        key = f"{config.pipeline_file}: sources.{new}.renamed_from is {old}"
        if not all(locks.is_held_here(config.layout, layer) for layer in layers_in_use(config)):
            raise UsageError(f"{key}: run medallion nightly, which moves its tables.")
        if delta_tables.table_exists(config.layout.table(f"bronze.{new}")):
            raise ConfigError(
                f"{key}, but bronze.{new} exists, too. Choose another name, or move away the "
                "tables and checkpoints of one of them."
            )
        for entry in journal.read_entries(config, Rebuild, Replay, Erasure):
            raise UsageError(f"{key}, but there is an {entry}, under the older name.")
        _rename(config, old, new)
        report(f"rename    {old}: its tables, files and records have the name {new}")


def _rename(config: Config, old: str, new: str) -> None:
    layout = config.layout
    names = {table.format(old): table.format(new) for table in _TABLES}
    cases = " ".join(f"when '{name}' then '{renamed}'" for name, renamed in names.items())
    moved = f"regexp_replace(moved_to, '^(archive|rejected)/{old}/', '${{1}}/{new}/')"
    updates = {
        ledger.TABLE: {"moved_to": moved},
        topics.TABLE: {},
        erasures.TABLE: {"item": f"case item {cases} else item end"},
    }
    for table, columns in updates.items():
        columns = {"source": f"'{new}'", **columns}
        records.update_rows(layout.table(table), columns, f"source = '{old}'")
    recorded = {"query": f"case query {cases} else query end"}
    records.update_rows(layout.table(RUNS), recorded, f"query in {(*names,)}")
    for query in queries(config):
        checkpoint = layout.checkpoint(query.name)
        if definition := checkpoints.read_document(checkpoint, "definition"):
            definition = _renamed_definition(definition, old, new)
            checkpoints.write_document(checkpoint, "definition", definition)
    for entry in journal.read_entries(config, Backfill):
        if entry.arguments.source == old:
            arguments = replace(entry.arguments, source=new)
            journal.write_entry(layout, replace(entry, arguments=arguments))
    paths = layout.archive, layout.rejected, layout.queue, layout.schemas
    for path in paths:
        path(old).move_directory(path(new))
    for name, renamed in names.items():
        for suffix in ("", ".json"):  # the pointer to the current generation
            checkpoint = layout.checkpoint_pointer(name).parent / f"{name}{suffix}"
            checkpoint.move_directory(checkpoint.parent / f"{renamed}{suffix}")
        layout.table(name).move_directory(layout.table(renamed))


def _renamed_definition(definition: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return the definition of a table that reads the source's table under its new name."""
    links = {key: new for key in _LINKS if definition.get(key) == old}
    if "sql" in definition:
        links["sql"] = re.sub(rf"\bsilver\.{old}\b", f"silver.{new}", definition["sql"])
    return {**definition, **links}


def drop_table(config: Config, table: str) -> None:
    """Delete a table with its checkpoints; the caller knows that no query writes it.

    Raises:
        UsageError: another process writes one of the layers.
    """
    layout = config.layout
    with journal.lock_layers(config, layers_in_use(config), "drop"):
        pointer = layout.checkpoint_pointer(table)
        (pointer.parent / table).delete_prefix()
        pointer.delete()
        layout.table(table).delete_prefix()
