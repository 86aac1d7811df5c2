"""The balance of rows, from the ledger, the record of runs and the tables; no JVM."""

from __future__ import annotations

import time
from dataclasses import dataclass

from medallion.config.model import Config
from medallion.inspection import balance as accounting
from medallion.inspection import recount
from medallion.inspection.balance import Balance
from medallion.lakehouse import lock
from medallion.lakehouse.text import Say
from medallion.ops.runs import Runs
from medallion.sources.files.unread import unread
from medallion.sources.formats import KINDS

PATIENCE = 35.0  # seconds; a stream settles every 30


@dataclass(frozen=True)
class Audit:
    """The balance of each source, and what to look at where something does not add up.

    `notes` say what could not be looked at; they are no faults. The sources of `unjudged` are being
    written, and their last batches are not on record yet.
    """

    balances: dict[str, Balance]
    findings: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unjudged: tuple[str, ...] = ()

    @property
    def is_balanced(self) -> bool:
        """Whether the balance of every source that was judged adds up, and nothing was found."""
        wrong = set(accounting.unbalanced(self.balances.items())) - set(self.unjudged)
        return not self.findings and not wrong


def audit(config: Config, everything: bool = False, say: Say = lambda _: None) -> Audit:
    """Balance every source; where one does not add up, name the files that differ.

    With `everything`, every file and table is counted again, whatever the balance says. Beside a
    stream that is on, waits up to half a minute for the moment at which all is on record.
    """
    found, unsettled, holder = _at_rest(config, say)
    unjudged = {query.partition(".")[2] for query in unsettled} if holder else set()
    findings = _not_on_record(Runs(config.layout), unsettled, holder)
    notes = [
        f"{name}: {holder} is writing it, and its last batches are not on record yet: not judged."
        for name in sorted(unjudged)
    ]
    notes += [
        f"{table}: the configuration has no source of that name; its rows are not balanced here."
        for table in _of_no_source(config)
    ]
    notes += [f"{line}: not balanced here." for line in unread(config)]
    for name in (name for name in found if name not in unjudged):
        balance = found[name]
        findings += _equations(name, balance)
        if everything or not balance.is_balanced:
            deeper = recount.recount(config, config.sources[name])
            findings += deeper.findings
            notes += deeper.notes
        else:
            findings += _unlike_the_ledger(config, name, balance)
    if everything and not unjudged:
        from medallion.inspection import recount_gold  # PySpark, and a JVM: only for this

        deeper = recount_gold.recount(config, say)
        findings += deeper.findings
        notes += deeper.notes
    return Audit(found, tuple(findings), tuple(notes), tuple(sorted(unjudged)))


def _at_rest(config: Config, say: Say) -> tuple[dict[str, Balance], list[str], str | None]:
    """The balances, the queries with batches that are not on record, and who writes now, if any."""
    until: float | None = None
    while True:
        runs = Runs(config.layout)
        unsettled = accounting.unsettled(config, runs)
        found = accounting.balances(config, runs)
        holders = (lock.holder(config.layout, layer) for layer in accounting.SETTLED)
        holder = next(filter(None, holders), None)
        if not holder or not (unsettled or accounting.unbalanced(found.items())):
            return found, unsettled, holder
        if until is None:
            say(f"waiting until {holder}, has put its last batches on record")
            until = time.monotonic() + PATIENCE
        elif time.monotonic() > until:
            return found, unsettled, holder
        time.sleep(0.2)


def _not_on_record(runs: Runs, unsettled: list[str], holder: str | None) -> list[str]:
    """Findings about queries whose last batches are not on record; `holder` writes now, if any."""
    if not holder:
        cut_off = "a run was cut off before it was put on record; the next run settles it."
        return [f"{name}: {cut_off}" for name in unsettled]
    return [
        f"{name}: it has failed, and what it did last is not on record ({runs.error(name)}); "
        f"{holder} tries it again."
        for name in unsettled
        if runs.has_failed(name)
    ]


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
    """The ledger's rows, counted file by file or topic by topic, against the table's."""
    source = config.sources[name]
    rows = KINDS[source.format].on_record(config, source)
    if rows is None or rows == balance.bronze_rows:
        return []
    return [f"{name}: the ledger has {rows:,} rows, bronze has {balance.bronze_rows:,}."]
