"""Renamed sources and tables, and left-over tables.

`renamed_from` moves records, files, checkpoints and tables to the new name. Each step may be
repeated: while the journal has the rename, the next command repeats all.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from medallion.config.model import Config
from medallion.config.queries import layers_in_use, queries
from medallion.errors import ConfigError, UsageError
from medallion.inspect.edits import pending_renames
from medallion.spark import checkpoints
from medallion.state import erasures, journal, ledger, topics
from medallion.state.journal import Backfill, Entry, Erasure, Rebuild, Rename, Replay
from medallion.state.runs import TABLE as RUNS
from medallion.storage import delta_tables, locks, records
from medallion.storage.layout import PUBLISH, short_name, view_name
from medallion.storage.text import Reporter

_LINKS = ("source", "with")  # keys of definitions that name a table


def carry_out_renames(config: Config, report: Reporter) -> None:
    """Move what has an older name; the caller holds the locks of its layers.

    Raises:
        ConfigError: there are rows under both names.
        UsageError: the caller does not write all layers, or another command is unfinished.
    """
    for rename in pending_renames(config):
        key = f"{config.pipeline_file}: {rename.part}.{rename.new}.renamed_from is {rename.old}"
        if not all(locks.is_held_here(config.layout, layer) for layer in layers_in_use(config)):
            raise UsageError(f"{key}: run medallion nightly, which moves its tables.")
        old, last = [*rename.tables.items()][-1]
        is_started = journal.is_renaming(config, rename)  # then a bucket may have both
        if delta_tables.table_exists(config.layout.table(last)) and not is_started:
            advice = "Choose another name, or move away the tables and checkpoints of one of them"
            raise ConfigError(f"{key}, but {last} exists, too. {advice}.")
        for entry in journal.read_entries(config, Rebuild, Replay, Erasure):
            raise UsageError(f"{key}, but there is an {entry}, under the older name.")
        journal.write_entry(config.layout, entry := Entry(old, rename))
        files, tables = ("files", _rename_files), ("tables", _rename_tables)
        parts = (files, tables) if rename.part == "sources" else (tables,)
        steps = ((name, partial(step, config, rename)) for name, step in parts)
        journal.run_steps(config.layout, entry, steps)
        report(f"rename    {rename.old}: its tables and records have the name {rename.new}")


def _rename_files(config: Config, rename: Rename) -> None:
    """Rename what only sources have: the ledger, and the files that are not in landing."""
    layout, old, new = config.layout, rename.old, rename.new
    moved = f"regexp_replace(moved_to, '^(archive|rejected)/{old}/', '${{1}}/{new}/')"
    items = f"case item {_cases(rename.tables)} else item end"
    updates = {ledger.TABLE: {"moved_to": moved}, topics.TABLE: {}, erasures.TABLE: {"item": items}}
    for table, columns in updates.items():
        columns = {"source": f"'{new}'", **columns}
        records.update_rows(layout.table(table), columns, f"source = '{old}'")
    for entry in journal.read_entries(config, Backfill):
        if entry.arguments.source == old:
            arguments = replace(entry.arguments, source=new)
            journal.write_entry(layout, replace(entry, arguments=arguments))
    for path in (layout.archive, layout.rejected, layout.queue, layout.schemas):
        path(old).move_directory(path(new))


def _rename_tables(config: Config, rename: Rename) -> None:
    layout, tables = config.layout, rename.tables
    names = tables | dict(_outputs(config, rename))
    recorded = {"query": f"case query {_cases(names)} else query end"}
    where = ", ".join(f"'{name}'" for name in names)
    records.update_rows(layout.table(RUNS), recorded, f"query in ({where})")
    for query in queries(config):
        checkpoint = layout.checkpoint(query.name)
        if definition := checkpoints.read_document(checkpoint, "definition"):
            for old, new in tables.items():
                definition = _renamed_definition(definition, old, new)
            checkpoints.write_document(checkpoint, "definition", definition)
    layout.published(rename.old).move_directory(layout.published(rename.new))
    for old, new in names.items():
        for suffix in ("", ".json"):  # the pointer to the current generation
            checkpoint = layout.checkpoint_pointer(old).parent / f"{old}{suffix}"
            checkpoint.move_directory(checkpoint.parent / f"{new}{suffix}")
        if old in tables:
            layout.table(old).move_directory(layout.table(new))


def _outputs(config: Config, rename: Rename) -> Iterator[tuple[str, str]]:
    """Yield the older and the new name of each output of a gold table."""
    table = config.gold.get(rename.new)
    for output in table.outputs if table and rename.part == "gold" else ():
        yield f"{PUBLISH}.{rename.old}.{output}", f"{PUBLISH}.{rename.new}.{output}"


def _cases(names: Mapping[str, str]) -> str:
    return " ".join(f"when '{old}' then '{new}'" for old, new in names.items())


def _renamed_definition(definition: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return a definition that reads a table, as `silver.orders`, under its new name."""
    short, renamed = map(short_name, (old, new))
    links = {key: renamed for key in _LINKS if definition.get(key) == short}
    if "sql" in definition:
        links["sql"] = re.sub(rf"\b{view_name(old)}\b", view_name(new), definition["sql"])
    return {**definition, **links}


def drop_table(config: Config, table: str, report: Reporter = lambda _: None) -> None:
    """Delete a table, or published files, with its checkpoints; no query writes it any more.

    Raises:
        UsageError: another process writes one of the layers.
    """
    layout = config.layout
    with journal.lock_layers(config, layers_in_use(config), "drop", report):
        for query in (table, f"{table}.files"):
            pointer = layout.checkpoint_pointer(query)
            (pointer.parent / query).delete_prefix()
            pointer.delete()
        layout.table(table).delete_prefix()
