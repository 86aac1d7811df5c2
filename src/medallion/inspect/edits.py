"""Edits of pipeline.yaml: the tables whose rows have another definition than the configuration.

`medallion check` shows the edits, and `medallion apply` rebuilds these tables; until then, nightly
runs leave them and their readers as they are. It imports PySpark only if settings have changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from medallion.config.model import Config
from medallion.config.queries import Query, queries
from medallion.errors import ITEM_ERRORS, UsageError
from medallion.inspect.problems import Problem, ProblemCode
from medallion.spark import checkpoints
from medallion.state import journal, pending_work
from medallion.state.journal import Rename
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, objects
from medallion.storage.layout import PUBLISH, layer_of

if TYPE_CHECKING:
    from medallion.layers.definition import Change


_ROWS_WITHOUT_COST = 100_000  # up to which a query takes as long as for one row


class EditAction(StrEnum):
    """What becomes of a table."""

    REBUILD = "rebuild"
    NEW = "new"
    NEW_ROWS = "new_rows_only"
    LEFT_OVER = "left_over"


@dataclass(frozen=True)
class Edit:
    """One table that an edit concerns.

    Attributes:
        table: its name.
        action: what becomes of it.
        changes: what has changed in its definition.
        reads: the tables before it that are rebuilt.
        rows: the number of rows that a rebuild processes.
        seconds: how long the last run suggests that it takes; None if there was none.
    """

    table: str
    action: EditAction
    changes: tuple[Change, ...] = ()
    reads: tuple[str, ...] = ()
    rows: int = 0
    seconds: float | None = None

    @property
    def reason(self) -> str:
        """Why it is rebuilt, in a few words."""
        if self.changes:
            return f"{', '.join(change.key for change in self.changes)} changed"
        return f"reads {', '.join(self.reads)}"


def pending_renames(config: Config) -> list[Rename]:
    """Return what the next run renames; no JVM."""
    renames = (
        Rename(part, entry.renamed_from, entry.name)
        for part in ("sources", "silver", "gold")
        for entry in getattr(config, part).values()
        if entry.renamed_from
    )
    return [rename for rename in renames if rename.is_due(config)]


def find_edits(config: Config) -> list[Edit]:
    """Return the edits, in the order in which tables are rebuilt; left-over tables come last.

    A table that cannot be read has none: its query reports it.
    """
    if pending_renames(config):  # definitions are compared when names are the same again
        return []
    edits, rebuilt = list[Edit](), dict[str, None]()
    has_changed = _queries_with_changed_settings(config)
    for query in queries(config):
        reads = tuple(table for table in query.upstream if table in rebuilt)
        with suppress(*ITEM_ERRORS):
            is_edited = query.name in has_changed and query.layer in ("silver", "gold")
            changes = tuple(_changes(config, query)) if is_edited else ()
            if changes or (reads and delta_tables.table_exists(config.layout.table(query.name))):
                rebuilt |= dict.fromkeys((query.name, *query.targets))
                cost = _cost(config, query)
                edits.append(Edit(query.name, EditAction.REBUILD, changes, reads, *cost))
            elif checkpoints.last_planned(config.layout.checkpoint(query.name)) < 0:
                edits.append(Edit(query.name, EditAction.NEW))
            elif query.name in has_changed and (changes := _new_row_changes(config, query)):
                edits.append(Edit(query.name, EditAction.NEW_ROWS, changes))
    return edits + [Edit(table, EditAction.LEFT_OVER) for table in leftover_tables(config)]


def select_edits(edits: Sequence[Edit], tables: Collection[str]) -> list[Edit]:
    """Return the edits of some tables, with those of all tables that read them; all by default.

    Raises:
        UsageError: a table has no edit, or one before it has to be rebuilt first.
    """
    if not tables:
        return list(edits)
    rebuilds = {edit.table: edit for edit in edits if edit.action == EditAction.REBUILD}
    selected = dict[str, Edit]()
    for table in tables:
        if table not in rebuilds:
            known = f"these have: {', '.join(rebuilds)}" if rebuilds else "no table has"
            raise UsageError(f"{table} has no edit to apply; {known}.")
    for table, edit in rebuilds.items():
        if table in tables or selected.keys() & {*edit.reads}:
            if missing := [name for name in edit.reads if name not in selected]:
                raise UsageError(f"{table} reads {missing[0]}, which has to be rebuilt: name both.")
            selected[table] = edit
    return list(selected.values())


@objects.remembering()
def waiting_tables(config: Config) -> dict[str, str]:
    """Return the tables that wait for `medallion apply`, each with the reason.

    A table that an unfinished command rebuilds does not wait.
    """
    if not _queries_with_changed_settings(config):
        return {}
    rebuilds: Collection[str] = ()
    with suppress(*ITEM_ERRORS):  # what needs the journal reports it
        rebuilds = journal.rebuilds(config)
    return {
        edit.table: edit.reason
        for edit in find_edits(config)
        if edit.action == EditAction.REBUILD and edit.table not in rebuilds
    }


def refuse_waiting(config: Config, tables: Collection[str]) -> None:
    """Raise UsageError if one of these tables waits for `medallion apply`."""
    for table, reason in waiting_tables(config).items():
        if table in tables:
            raise UsageError(f"{table} waits for medallion apply ({reason}): run it first.")


def leftover_tables(config: Config) -> list[str]:
    """Return the tables that nothing in pipeline.yaml writes any more, except records.

    Files that are no longer published have the name `publish.<table>`.
    """
    written = {"ops", *(target for query in queries(config) for target in query.targets)}
    written |= {f"{PUBLISH}.{t.name}" for t in config.gold.values() if "files" in t.outputs}
    for rename in pending_renames(config):
        written |= {*rename.tables, f"{PUBLISH}.{rename.old}"}
    folders = (name for name in config.layout.published("").names() if not name.startswith("."))
    names = (*config.layout.tables(), *(f"{PUBLISH}.{name}" for name in folders))
    return sorted(name for name in names if not written & {name, layer_of(name)})


def leftover_problems(config: Config) -> Iterator[Problem]:
    """Yield a note if there are left-over tables."""
    if names := leftover_tables(config):
        sentence = (
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left over: nothing in "
            "pipeline.yaml writes there. If a source has another name now, set its renamed_from; "
            "medallion drop removes such tables."
        )
        yield Problem(ProblemCode.NOTE, "tables", sentence)


def edited_problems(config: Config) -> Iterator[Problem]:
    """Yield one problem for all tables that wait for `medallion apply`, or a note on them."""
    if waiting := waiting_tables(config):
        tables = ", ".join(f"{table} ({reason})" for table, reason in waiting.items())
        if config.on_change == "apply":
            yield Problem(ProblemCode.NOTE, "tables", f"the next nightly run rebuilds {tables}.")
            return
        wait = "1 table waits" if len(waiting) == 1 else f"{len(waiting)} tables wait"
        remedy = "run medallion apply, which rebuilds them, or undo the edit"
        detail, subject = f"{wait} for medallion apply", config.pipeline_file.name
        yield Problem(ProblemCode.EDITED, subject, f"{detail}: {tables}", remedy, detail)


def _queries_with_changed_settings(config: Config) -> set[str]:
    changed = set[str]()
    for name, digest in pending_work.settings_digests(config).items():
        with suppress(*ITEM_ERRORS):  # the query reports its checkpoint
            if pending_work.has_changed_settings(config, name, digest):
                changed.add(name)
    return changed


def _changes(config: Config, query: Query) -> Sequence[Change]:
    """Return what has changed for a table with rows.

    The log of a source that has got `cdc` is new, but its quarantine is not.
    """
    from medallion.inspect.definitions import changed_settings
    from medallion.layers.definition import Change

    source, table = config.sources[query.source], config.layout.table
    if source.cdc and query.name == source.rows_table:
        of_events = config.layout.checkpoint(f"silver.{source.name}")
        is_new = checkpoints.last_planned(config.layout.checkpoint(query.name)) < 0
        if is_new and checkpoints.last_planned(of_events) >= 0:
            return [Change("cdc", None, f"SCD {source.cdc.stored_as_scd_type}")]
    changes = changed_settings(config, query)
    return changes if any(map(delta_tables.row_count, map(table, query.targets))) else []


def _new_row_changes(config: Config, query: Query) -> tuple[Change, ...]:
    """Return what has changed for new rows only."""
    from medallion.layers.definition import changes_between

    recorded = pending_work.recorded_settings(config, query.name).get("new_rows")
    now = pending_work.new_row_settings(config, query.name)
    return () if recorded is None else tuple(changes_between(recorded, now))


def _cost(config: Config, query: Query) -> tuple[int, float | None]:
    """Return the rows that a rebuild processes, and how long the last run suggests it takes."""
    rows = sum(map(delta_tables.row_count, map(config.layout.table, query.upstream)))
    last = RunRecords(config.layout).run_state.last_busy.get(query.name)
    known = max(last.rows_in or 0, _ROWS_WITHOUT_COST) if last else 1
    return rows, last.seconds * max(rows / known, 1) if last else None
