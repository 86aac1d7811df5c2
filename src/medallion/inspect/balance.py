"""The balance of a source: each row that landed is accounted for."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.inspect import ledger_files
from medallion.inspect.edits import waiting_tables
from medallion.inspect.problems import RETRY, Problem, ProblemCode
from medallion.layers import recovery
from medallion.state import erasures, pending_work
from medallion.state.runs import RunRecords, RunState
from medallion.storage import delta_tables, locks, objects
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import (
    ARRIVAL,
    INGESTED_AT,
    IS_DELETE,
    IS_TRUNCATE,
    OLD_KEY,
    SEQUENCE,
)
from medallion.storage.text import counted

_COUNT = "run medallion audit --deep, which names the files and tables that differ"
BALANCED_LAYERS = ("bronze", "silver")
"""Layers whose batches must all be recorded, because the balance needs their figures."""


@dataclass(frozen=True)
class Balance:
    """The rows of one source: where they came from and where they went.

    The rows of `rejected_files` are in none of the other figures; `erased_rows` were removed from
    bronze by `medallion erase`. `late_rows` are part of `silver_rows`. Of change records, those
    that a later one replaced are `superseded_rows` (in a history none), and those that delete a key
    are `deleted_rows`.
    """

    landed_lines: int
    bronze_rows: int
    silver_rows: int
    quarantined_rows: int
    duplicate_rows: int
    late_rows: int
    waiting_rows: int
    rejected_files: int = 0
    superseded_rows: int = 0
    deleted_rows: int = 0
    erased_rows: int = 0

    @property
    def faults(self) -> list[str]:
        """Return a message for each equation that does not hold.

        landed lines = bronze + erased
        bronze = silver + quarantined + duplicates + waiting + superseded + deleted
        """
        faults = []
        if self.landed_lines != self.bronze_rows + self.erased_rows:
            erased = f", and {self.erased_rows:,} were erased" if self.erased_rows else ""
            faults.append(
                f"{self.landed_lines:,} lines were read, but bronze has "
                f"{counted(self.bronze_rows, 'row')}{erased}."
            )
        total = self.silver_rows + self.quarantined_rows + self.duplicate_rows + self.waiting_rows
        total += self.superseded_rows + self.deleted_rows
        if total != self.bronze_rows:
            faults.append(
                f"bronze has {counted(self.bronze_rows, 'row')}, but silver, quarantine, "
                f"duplicates, waiting, superseded and deleted rows add up to {total:,}."
            )
        return faults

    @property
    def is_balanced(self) -> bool:
        """Return whether both equations hold."""
        return not self.faults


@dataclass(frozen=True)
class ChildBalance:
    """The rows of one child table: each element of its parent is in one of the other figures."""

    elements: int
    silver_rows: int
    quarantined_rows: int
    duplicate_rows: int

    @property
    def faults(self) -> list[str]:
        """Return a message if the figures do not add up."""
        total = self.silver_rows + self.quarantined_rows + self.duplicate_rows
        if total == self.elements:
            return []
        return [
            f"{counted(self.elements, 'element')} were read, but rows, quarantine and duplicates "
            f"add up to {total:,}."
        ]


@dataclass(frozen=True)
class BalanceSnapshot:
    """The balances of all sources at one moment.

    Attributes:
        balances: by source, of those that can be read.
        child_tables: by child table, of those that can be read.
        unrecorded: the source by query, for queries whose last batches are not in `ops.runs`: they
            run now, or were interrupted.
        unreadable: messages of what cannot be read.
    """

    balances: dict[str, Balance] = field(default_factory=dict)
    child_tables: dict[str, ChildBalance] = field(default_factory=dict)
    unrecorded: dict[str, str] = field(default_factory=dict)
    unreadable: list[str] = field(default_factory=list)

    @property
    def problems(self) -> list[Problem]:
        """Return what cannot be read, and each equation that does not hold."""
        faults = {name: balance.faults for name, balance in self.balances.items()}
        faults |= {f"silver.{name}": child.faults for name, child in self.child_tables.items()}
        return [
            *(Problem(ProblemCode.UNREADABLE, "tables", m, RETRY) for m in self.unreadable),
            *(
                Problem(ProblemCode.UNBALANCED, name, f"{name}: {fault}", _COUNT)
                for name, sentences in faults.items()
                for fault in sentences
            ),
        ]

    def of_source(self, name: str) -> tuple[Balance | None, list[str]]:
        """Return the balance of a source, and its queries with unrecorded batches."""
        unrecorded = [query for query, source in self.unrecorded.items() if source == name]
        return self.balances.get(name), unrecorded


def layer_writers(config: Config) -> dict[str, str]:
    """Return the process that writes each balanced layer, of those that one writes now."""
    holders = {layer: locks.lock_holder(config.layout, layer) for layer in BALANCED_LAYERS}
    return {layer: holder for layer, holder in holders.items() if holder}


@objects.remembering()
def take_snapshot(config: Config, runs: RunRecords) -> BalanceSnapshot:
    """Balance each source by itself; report an unreadable one, and continue with the rest.

    What waits for `medallion apply` is left out.
    """
    snapshot, waiting = BalanceSnapshot(), waiting_tables(config).keys()
    try:
        rejected = ledger_files.rejected_files(config)
    except ITEM_ERRORS as error:
        snapshot.unreadable.append(error_message(error))
        rejected = Counter[str]()
    for name, source in config.sources.items():
        if waiting & {source.rows_table, f"silver.{name}"}:
            continue
        alone = replace(config, sources={name: source}, gold={}, silver={})
        try:
            unrecorded = _unrecorded_queries(config, name, runs)
            balance = _balance(alone, source, runs.run_state)
            snapshot.balances[name] = replace(balance, rejected_files=rejected[name])
        except ITEM_ERRORS as error:
            if error_message(error) not in snapshot.unreadable:  # ops.runs concerns all sources
                snapshot.unreadable.append(error_message(error))
        else:
            snapshot.unrecorded.update(dict.fromkeys(unrecorded, name))
    for name in config.silver:
        # Only a deep audit counts the elements of a table that changes.
        if f"silver.{name}" in {*waiting, *config.changing_tables}:
            continue
        try:
            snapshot.child_tables[name] = _child_balance(config, name, runs.run_state)
        except ITEM_ERRORS as error:
            snapshot.unreadable.append(error_message(error))
    return snapshot


def _child_balance(config: Config, name: str, run_state: RunState) -> ChildBalance:
    recorded, table = run_state.totals_of(f"silver.{name}"), config.layout.table
    silver, quarantined = (_row_count(table(f"{s}.{name}")) for s in ("silver", "quarantine"))
    return ChildBalance(recorded.rows_in, silver, quarantined, recorded.duplicate_rows)


def _balance(config: Config, source: SourceConfig, run_state: RunState) -> Balance:
    """Return the balance: lines, duplicates and late rows from the records, others from tables.

    Args:
        config: the configuration, with this source alone.
        run_state: the recorded runs.
    """
    layout = config.layout
    recorded = run_state.totals_of(source.rows_table)
    silver, *_ = queries(config, ["silver"])
    changes = count_changes(config, source) if source.cdc else ChangeCounts()
    return Balance(
        landed_lines=run_state.totals_of(f"bronze.{source.name}").rows_in,
        bronze_rows=_row_count(layout.table(f"bronze.{source.name}")),
        silver_rows=_row_count(layout.table(f"silver.{source.name}")),
        quarantined_rows=_row_count(layout.table(f"quarantine.{source.name}")),
        duplicate_rows=recorded.duplicate_rows + changes.duplicate_rows,
        late_rows=recorded.late_rows,
        waiting_rows=(pending_work.unread_rows(config, silver) or 0) + changes.waiting_rows,
        superseded_rows=changes.superseded_rows,
        deleted_rows=changes.deleted_rows,
        erased_rows=erasures.erased_rows(layout, source.name, f"bronze.{source.name}"),
    )


@dataclass(frozen=True)
class ChangeCounts:
    """The change records of a source that are not rows of its table.

    Attributes:
        superseded_rows: those that a later change or delete replaced; in a history none.
        deleted_rows: those that delete their key.
        duplicate_rows: those with the key and the sequence of a later one.
        waiting_rows: those that are not merged yet.
    """

    superseded_rows: int = 0
    deleted_rows: int = 0
    duplicate_rows: int = 0
    waiting_rows: int = 0


def count_changes(config: Config, source: SourceConfig) -> ChangeCounts:
    """Count the changes that the query of the table has read, and those that wait for it."""
    assert source.cdc, f"{source.name} has no change records"
    name, log = f"silver.{source.name}", config.layout.table(source.rows_table)
    if not delta_tables.table_exists(log):
        return ChangeCounts()
    read = pending_work.read_up_to(config, name, log)
    waiting = pending_work.unread_rows_in(read, log)
    # If all is read, the newest version: an older one may have files that are compacted and gone.
    version = read.version - read.is_between_versions if waiting else None
    if version == -1:
        return ChangeCounts(waiting_rows=waiting)
    key = ", ".join(f'"{name}"' for name in source.keys)
    same = f"partition by {key}, {SEQUENCE}"
    columns = delta_tables.column_names(log)  # a log of an older version lacks some
    arrival = [column for column in ARRIVAL if column in columns]
    last_first = ", ".join(f"{column} desc" for column in (*arrival, IS_DELETE))
    changes, truncates = _changes_by_key_sql(source, arrival, columns)
    numbered = (
        f"select *, row_number() over ({same} order by {last_first}) as copy, "
        f"count(case when not is_implied then 1 end) over ({same}) as copies from ({changes})"
    )
    deleted_at = (
        f"max(case when {IS_DELETE} then {INGESTED_AT} end) over (partition by {key} "
        f"order by {SEQUENCE} desc nulls last rows between unbounded preceding and current row)"
    )
    ordered = f"select *, {deleted_at} as deleted_at from ({numbered}) where copy = 1"
    forgotten_at = f"deleted_at + interval '{source.cdc.tombstone_retention.seconds} seconds'"
    by_key = (
        "select sum(copies - case when is_implied then 0 else 1 end) as duplicates, "
        f"count(case when not {IS_DELETE} then 1 end) as updates, "
        f"count(case when {IS_DELETE} and not is_implied then 1 end) as deletes, "
        f"count(case when not {IS_DELETE} "
        f"and coalesce({INGESTED_AT} > {forgotten_at}, true) then 1 end) as kept "
        f"from ({ordered}) group by {key}"
    )
    what = (
        f"sum(duplicates), coalesce(sum(deletes), 0) + ({truncates}), sum(updates), "
        "count(nullif(kept, 0))"
    )
    ((duplicates, deletes, updates, current),) = delta_tables.select_rows(
        log, what, source=f"({by_key})", version=version
    )
    if source.cdc.snapshot or source.cdc.track:  # only a deep audit compares their values
        current = _row_count(config.layout.table(name))
    elif source.cdc.stored_as_scd_type == 2:
        current = updates or 0
    superseded = (updates or 0) - current
    return ChangeCounts(superseded, deletes or 0, duplicates or 0, waiting)


def _changes_by_key_sql(
    source: SourceConfig, arrival: Sequence[str], columns: Collection[str]
) -> tuple[str, str]:
    """Return SQL of the changes of one key each, and of the number of changes that truncate.

    It is a second implementation of `layers.silver.changes.by_key`, for the audit.

    Args:
        arrival: the columns of its log that say when and where a change came from.
        columns: all columns of the log.

    Returns:
        The first has keys, sequence, ingestion, origin, `_is_delete`, and `is_implied` for a delete
        that a change of another key implies.
    """
    keys = [f'"{name}"' for name in source.keys]
    rest = ", ".join((SEQUENCE, *arrival))
    rows, truncates = "rows", "0"
    if IS_TRUNCATE in columns:
        rows += f" where {IS_TRUNCATE} is null"
        truncates = f"select count({IS_TRUNCATE}) from rows"
    changes = f"select {', '.join(keys)}, {rest}, {IS_DELETE}, false as is_implied from {rows}"
    if OLD_KEY in columns:
        old = ", ".join(f"{OLD_KEY}['{name}'] as \"{name}\"" for name in source.keys)
        changes += (
            f" union all select {old}, {rest}, true, true from rows where {OLD_KEY} is not null"
        )
    if IS_TRUNCATE in columns:
        changes += (
            f" union all select {', '.join(keys)}, {rest}, true, true from "
            f"(select {rest} from rows where {IS_TRUNCATE} is not null) cross join "
            f"(select distinct {', '.join(keys)} from ({changes}))"
        )
    return changes, truncates


def _row_count(table: StoragePath) -> int:
    """Return the row count of a table; raise MedallionError if a data file is missing."""
    if not delta_tables.table_exists(table):
        return 0
    delta = delta_tables.open_table(table)
    delta_tables.require_data_files(table, delta)
    return delta_tables.opened_row_count(table, delta)


def _unrecorded_queries(config: Config, source: str, runs: RunRecords) -> list[str]:
    layout = config.layout
    return [
        query.name
        for query in queries(config, BALANCED_LAYERS)
        if query.source == source
        and recovery.has_unrecorded(
            layout.checkpoint(query.name),
            map(layout.table, query.targets),
            runs.last_batch(query.name),
        )
    ]


def shown_figures(
    label: str, balances: Mapping[str, Balance] | Mapping[str, ChildBalance]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return the columns and rows of a table of balances, whose first column is `label`.

    It has the first three figures, and those that are not zero everywhere.
    """
    names = list(dict.fromkeys(f.name for each in balances.values() for f in fields(each)))
    used = [n for n in names[3:] if any(getattr(each, n) for each in balances.values())]
    shown = names[:3] + used
    rows = [(name, *(getattr(each, n) for n in shown)) for name, each in balances.items()]
    return [label, *shown], rows
