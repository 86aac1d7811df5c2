"""Every row accounted for: the rows of a source balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.config.queries import queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.inspect import ledger_files
from medallion.layers import recovery
from medallion.state import pending_work
from medallion.state.runs import Runs, RunState
from medallion.storage import delta_tables

SETTLED = ("bronze", "silver")
"""The layers whose rows are balanced: of each of their batches the figures have to be on record."""


@dataclass(frozen=True)
class Balance:
    """The rows of one source: what came in, and where it went.

    The rows of `rejected_files` are in none of the other figures.
    """

    landed_lines: int
    bronze_rows: int
    silver_rows: int
    quarantined_rows: int
    duplicate_rows: int
    late_rows: int
    waiting_rows: int
    rejected_files: int = 0

    @property
    def faults(self) -> list[str]:
        """Which of the README's two equations do not hold, less what silver has not read yet."""
        found = []
        if self.landed_lines != self.bronze_rows:
            found.append(f"{self.landed_lines:,} lines were read, bronze has {self.bronze_rows:,}.")
        carried = self.silver_rows + self.quarantined_rows + self.duplicate_rows + self.waiting_rows
        if carried != self.bronze_rows:
            found.append(
                f"bronze has {self.bronze_rows:,} rows, but silver, quarantine, duplicates and "
                f"rows that wait make {carried:,}."
            )
        return found

    @property
    def is_balanced(self) -> bool:
        """Whether it adds up."""
        return not self.faults


@dataclass(frozen=True)
class BalanceSnapshot:
    """The balances of the sources that can be read.

    Attributes:
        balances: by source.
        unsettled: the queries with batches that are not on record: they run now, or were cut off.
        unreadable: why the other sources cannot be read.
    """

    balances: dict[str, Balance] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def of(self, name: str) -> BalanceSnapshot:
        """What was seen of one source that can be read."""
        unsettled = [query for query in self.unsettled if query.partition(".")[2] == name]
        return BalanceSnapshot({name: self.balances[name]}, unsettled)


def take_snapshot(config: Config, runs: Runs) -> BalanceSnapshot:
    """Each source looked at by itself: what cannot be read of one hides nothing of the others."""
    found = BalanceSnapshot()
    try:
        rejected = ledger_files.rejected_files(config)
    except ITEM_ERRORS as fault:
        found.unreadable.append(error_message(fault))
        rejected = Counter[str]()
    for name, source in config.sources.items():
        alone = replace(config, sources={name: source}, gold={})
        try:
            unsettled = _unsettled(alone, runs)
            balance = _balance(alone, source, runs.run_state)
            found.balances[name] = replace(balance, rejected_files=rejected[name])
        except ITEM_ERRORS as fault:
            if error_message(fault) not in found.unreadable:  # the record is of all sources
                found.unreadable.append(error_message(fault))
        else:
            found.unsettled.extend(unsettled)
    return found


def _balance(config: Config, source: SourceConfig, run_state: RunState) -> Balance:
    """Lines, duplicates and late rows from the engine's records, other rows from the tables.

    Args:
        config: of the source alone.
    """
    layout = config.layout
    on_record = run_state.totals_of(f"silver.{source.name}")
    (silver,) = queries(config, ["silver"])
    return Balance(
        landed_lines=run_state.totals_of(f"bronze.{source.name}").rows_in,
        bronze_rows=_rows(layout.table(f"bronze.{source.name}")),
        silver_rows=_rows(layout.table(f"silver.{source.name}")),
        quarantined_rows=_rows(layout.table(f"quarantine.{source.name}")),
        duplicate_rows=on_record.duplicate_rows,
        late_rows=on_record.late_rows,
        waiting_rows=pending_work.unread_rows(config, silver) or 0,
    )


def _rows(table: Path) -> int:
    """The rows of a table, whose files have to be there: its log alone has the counts."""
    if not delta_tables.table_exists(table):
        return 0
    delta = delta_tables.open_table(table)
    delta_tables.require_data_files(table, delta)
    return delta_tables.opened_row_count(table, delta)


def _unsettled(config: Config, runs: Runs) -> list[str]:
    layout = config.layout
    return [
        query.name
        for query in queries(config, SETTLED)
        if recovery.has_unrecorded(
            layout.checkpoint(query.name),
            map(layout.table, query.targets),
            runs.last_batch(query.name),
        )
    ]


def unbalanced(balances: Mapping[str, Balance]) -> list[str]:
    """The sources whose balance does not add up."""
    return [name for name, balance in balances.items() if not balance.is_balanced]
