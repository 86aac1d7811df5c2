"""Maintenance: the tables of some layers are compacted, and rid of what nobody needs any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from medallion.config.model import Config
from medallion.config.queries import queries
from medallion.errors import UsageError
from medallion.lakehouse import lock, specs, tables
from medallion.lakehouse.layout import LAYERS
from medallion.lakehouse.specs import TableSpec
from medallion.ops import copies, refresh_plan
from medallion.ops.runs import Runs
from medallion.pipeline import needed_versions, table_maintenance
from medallion.pipeline.needed_versions import Need
from medallion.pipeline.table_maintenance import Done


@dataclass(frozen=True)
class Maintained:
    """What was done to each table that needed something, and why more was not, a line each."""

    tables: Mapping[str, Done]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Table:
    """A table, and how it is kept.

    `query` is the one that writes it; None for the records, and for what is handed over to bronze.
    `is_compacted` is false where whoever writes the table compacts it, or replaces its files.
    """

    name: str
    path: Path
    spec: TableSpec
    query: str | None = None
    is_compacted: bool = True
    needed: list[Need] = field(default_factory=list)

    def alone(self) -> AbstractContextManager[None]:
        """While nobody else writes it: all layers write the records, and the caller has the rest to
        itself."""
        return lock.alone(self.path) if self.name in specs.RECORDS else nullcontext()


def by_hand(config: Config) -> Maintained:
    """Maintain the layers that no other process writes; one that does maintains them itself."""
    free, notes = [], []
    with ExitStack() as stack:
        for layer in LAYERS:  # what is published has no tables
            try:
                stack.enter_context(lock.hold(config.layout, [layer], "maintain"))
                free.append(layer)
            except UsageError:
                holder = lock.holder(config.layout, layer) or "another process"
                notes.append(f"{layer}: left to {holder}, which writes it, and maintains it itself")
        if "gold" in free:
            refresh_plan.forget_unfinished(config.layout)
        done = maintain(config, Runs(config.layout), free)
    return Maintained(done.tables, (*notes, *done.notes))


def maintain(
    config: Config, runs: Runs, layers: Sequence[str], is_streaming: bool = False
) -> Maintained:
    """Maintain the tables of layers whose locks the caller holds; what fails is told, a line each.

    Args:
        is_streaming: the layers' queries are on. A table whose rows they put in the place of others
            is not compacted then: of two writers that replace the same files, one fails.
    """
    if refresh_plan.is_under_way(config.layout, layers):
        return Maintained({}, ("nothing is removed while a refresh has work left",))
    from deltalake.exceptions import CommitFailedError

    needs = needed_versions.needs(config, runs.standing)
    done, notes = {}, []
    for table in _tables(config, layers, is_streaming, needs):
        try:
            if not tables.exists(table.path):
                continue
            with table.alone():
                found, note = _maintain(config, runs, table, is_streaming)
        except Exception as error:  # maintenance stops nothing, and the other tables are no worse
            # Where a query has written the table meanwhile, the next time will do.
            if not (is_streaming and isinstance(error, CommitFailedError)):
                told, _, _ = str(error).partition("\n")
                notes.append(f"{table.name}: {type(error).__name__}: {told}")
            continue
        if found != Done():
            done[table.name] = found
        notes += [note] if note else []
    return Maintained(done, tuple(notes))


def align(config: Config, layers: Sequence[str]) -> None:
    """Give the tables of layers the properties of the policy, before their queries start."""
    for table in _tables(config, layers, True, {}):
        with suppress(Exception):  # maintenance stops nothing: whoever needs the table tells
            if tables.exists(table.path):
                with table.alone():
                    tables.align(table.path, config.maintain.properties(table.spec))


def _tables(
    config: Config, layers: Sequence[str], is_streaming: bool, needs: Mapping[str, list[Need]]
) -> Iterator[_Table]:
    layout = config.layout
    for query in queries(config, layers):
        if not query.upstream:
            name = f"_intake.{query.source}"
            intake = layout.intake(query.source)
            yield _Table(name, intake, specs.INTAKE, needed=needs.get(name, []))
        # Of two that write a whole table, one fails.
        gold = config.gold.get(query.name.removeprefix("gold."))
        is_compacted = not (is_streaming and gold and gold.output_mode != "append")
        for name in query.targets:
            path, needed = layout.table(name), needs.get(name, [])
            yield _Table(name, path, config.spec(name), query.name, is_compacted, needed)
    if "bronze" in layers:  # the records are compacted as they are written
        for name in specs.RECORDS:
            yield _Table(name, layout.table(name), config.spec(name), is_compacted=False)


def _maintain(
    config: Config, runs: Runs, table: _Table, is_streaming: bool
) -> tuple[Done, str | None]:
    """Maintain one table; what was done, and why more was not."""
    if table.query and copies.refusal(config, runs, table.query):
        # A commit more, and nobody could tell an older copy from the table that it was.
        return Done(), f"{table.name}: left as it is, until {table.query} is not refused any more"
    policy = config.maintain
    properties = policy.properties(table.spec)
    if not is_streaming:  # a batch that is under way fails of it
        tables.align(table.path, properties)
    compacted = table_maintenance.compact(table.path, policy) if table.is_compacted else 0
    if is_streaming and tables.properties_to_set(table.path, properties):
        why = "its own settings are not those of maintain: a run that starts puts them right"
        return Done(compacted), f"{table.name}: nothing is removed, for {why}"
    version = tables.version(table.path)
    need = needed_versions.oldest(table.needed, version)
    if need:  # what is gone from the log is not there to be kept
        first = tables.earliest_version(table.path)
        need = replace(need, version=max(need.version, first))
    is_idle, has_feed = not is_streaming, table.spec.has_feed
    found = table_maintenance.clean(table.path, policy, need, is_idle, has_feed)
    note = None
    if need and version - need.version >= table_maintenance.MOST_VERSIONS:
        behind = f"{version - need.version + 1:,} versions"
        note = f"{table.name}: nothing is removed, for {need.who} has {behind} still to read"
    return Done(compacted, found.removed_files, found.removed_commits), note
