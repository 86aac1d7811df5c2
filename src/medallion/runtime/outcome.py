"""Results of a nightly run, and which files it reported or the user has acknowledged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.inspect import ledger_files
from medallion.inspect.balance import Balance, unbalanced
from medallion.inspect.ledger_files import Attention
from medallion.quality.suites import Failure, Verdict
from medallion.state.ledger import Entry, Ledger
from medallion.state.runs import RescuedSummary
from medallion.storage import clock, locks
from medallion.storage.paths import Layout


@dataclass(frozen=True)
class GateResult:
    """A verdict, and what it means for this run."""

    verdict: Verdict
    version: int
    accepted: tuple[str, ...]
    seconds: float

    @property
    def stops(self) -> tuple[Failure, ...]:
        """The failures that hold back what comes after."""
        return tuple(
            failure
            for failure in self.verdict.failures
            if failure.on_failure == "stop" and failure.expectation not in self.accepted
        )


@dataclass
class Outcome:
    """What a nightly run did; seconds by step. Not `is_counted`: of some source the balance is not
    known. `files` are those that the user has to see to."""

    seconds: dict[str, float] = field(default_factory=dict)
    gates: list[GateResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    balances: dict[str, Balance] = field(default_factory=dict)
    rescued: Mapping[str, RescuedSummary] = field(default_factory=dict)  # by source
    is_counted: bool = True
    files: Attention = field(default_factory=Attention)
    docs: str | None = None
    exit_status: int = 0  # of the worst error
    crash: Exception | None = None  # the first error that nobody foresaw

    def add_error(self, told: str, exit_status: int = 1) -> None:
        """Tell what went wrong, once: of a damaged table, several steps say the same."""
        self.exit_status = max(self.exit_status, exit_status)
        if not any(told in known for known in self.errors):
            self.errors.append(told)

    @property
    def is_good(self) -> bool:
        """Whether the run did all that it should have."""
        held = any(gate.stops for gate in self.gates)
        is_wrong = held or bool(self.errors) or self.files.has_failures
        return not is_wrong and not unbalanced(self.balances)


def record_reported(config: Config, files: Attention, command: str) -> None:
    """Record that a run has ended with status 1 for these files: later ones only warn.

    If another process holds bronze by now, the next run reports them once more.
    """
    if files.unreported:
        now = clock.now_micros()
        with suppress(UsageError), locks.lock_layers(config.layout, ["bronze"], command):
            _write_entries(config.layout, (replace(e, reported_at=now) for e in files.unreported))


def dismiss(config: Config, pattern: str, source: str | None) -> list[Entry]:
    """Acknowledge the files that are reported and match a pattern, as `medallion files` takes it.

    Raises:
        UsageError: none matches, there is no such source, or another process writes bronze.
    """
    if source is not None:
        config.source(source)
    with locks.lock_layers(config.layout, ["bronze"], "files --dismiss"):
        found = ledger_files.find_attention(config)
        listed = [e for e in (*found.files, *found.folders) if source in (None, e.source)]
        now = clock.now_micros()
        dismissed = [
            replace(entry, reported_at=entry.reported_at or now, dismissed_at=now)
            for entry in ledger_files.matching_files(config, listed, pattern)
        ]
        if not dismissed:
            raise UsageError(
                f"--dismiss {pattern}: no file that is reported matches it; medallion status "
                "names those that are."
            )
        _write_entries(config.layout, dismissed)
    return dismissed


def _write_entries(layout: Layout, entries: Iterable[Entry]) -> None:
    by_source: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries:
        by_source[entry.source].append(entry)
    for source, rows in by_source.items():
        Ledger(layout, source).write(rows)
