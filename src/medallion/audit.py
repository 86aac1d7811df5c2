"""The balance of rows, from the ledger, the record of runs and the tables; no JVM."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from medallion import accounting, analyst, deep
from medallion.accounting import Balance
from medallion.config import Config
from medallion.ingest import ledger


@dataclass(frozen=True)
class Audit:
    """The balance of each source, and what to look at where something does not add up.

    `notes` say what could not be looked at; they are no faults.
    """

    balances: dict[str, Balance]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def is_balanced(self) -> bool:
        """Whether every source's balance adds up, and nothing else was found."""
        return not self.findings and not accounting.uneven(self.balances.items())

    def as_json(self) -> dict[str, Any]:
        """The contract's document."""
        sources = {name: asdict(balance) for name, balance in self.balances.items()}
        document: dict[str, Any] = {"balanced": self.is_balanced, "sources": sources}
        lists = {"findings": list(self.findings), "notes": list(self.notes)}
        return {**document, **{name: lines for name, lines in lists.items() if lines}}

    def as_text(self) -> str:
        """An aligned table, and the findings under it."""
        columns = ("source", *Balance.__dataclass_fields__)
        rows = [(name, *asdict(balance).values()) for name, balance in self.balances.items()]
        verdict = "balanced" if self.is_balanced else "NOT BALANCED"
        table = analyst.as_table(analyst.Result(columns, rows))
        return "\n".join([table, *self.findings, *self.notes, verdict])


def audit(config: Config, everything: bool = False) -> Audit:
    """Balance every source; where one does not add up, name the files that differ.

    With `everything`, every file and table is counted again, whatever the balance says.
    """
    found = accounting.balances(config)
    findings = [
        f"{name}: a run was cut off before it was put on record; the next run settles it."
        for name in accounting.unsettled(config)
    ]
    notes = [
        f"{table}: the configuration has no source of that name; its rows are not balanced here."
        for table in _of_no_source(config)
    ]
    for name, balance in found.items():
        findings += _equations(name, balance)
        if everything or not balance.is_even:
            deeper = deep.recount(config, config.sources[name])
            findings += deeper.findings
            notes += deeper.notes
        else:
            findings += _unlike_the_ledger(config, name, balance)
    if everything:
        deeper = deep.recount_gold(config)
        findings += deeper.findings
        notes += deeper.notes
    return Audit(found, tuple(findings), tuple(notes))


def _of_no_source(config: Config) -> list[str]:
    logs = sorted((config.layout.root / "bronze").glob("*/_delta_log"))
    names = [log.parent.name for log in logs]
    return [f"bronze.{name}" for name in names if name not in config.sources]


def _equations(name: str, balance: Balance) -> list[str]:
    findings = []
    if balance.landed_lines != balance.bronze_rows:
        lines = f"{balance.landed_lines:,} lines were read, bronze has {balance.bronze_rows:,}"
        findings.append(f"{name}: {lines}.")
    carried = balance.silver_rows + balance.quarantined_rows + balance.duplicate_rows
    if carried + balance.waiting_rows != balance.bronze_rows:
        findings.append(
            f"{name}: bronze has {balance.bronze_rows:,} rows, but silver, quarantine, duplicates "
            f"and rows that wait make {carried + balance.waiting_rows:,}."
        )
    return findings


def _unlike_the_ledger(config: Config, name: str, balance: Balance) -> list[str]:
    """The ledger's rows, counted file by file, against the table's."""
    taken = [e for e in ledger.read(config.layout, name) if e.state in ledger.TAKEN]
    rows = sum(entry.rows or 0 for entry in taken)
    if rows == balance.bronze_rows:
        return []
    return [f"{name}: the ledger has {rows:,} rows of files, bronze has {balance.bronze_rows:,}."]
