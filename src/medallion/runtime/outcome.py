"""Results of a nightly run, and which files it reported or the user has acknowledged."""

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.inspect import ledger_files
from medallion.inspect.balance import BalanceSnapshot
from medallion.inspect.ledger_files import Attention
from medallion.inspect.problems import Problem, ProblemCode
from medallion.inspect.verdict import Observations, observe
from medallion.quality.suites import Failure, Verdict
from medallion.state import journal, ledger, runs
from medallion.state.ledger import Entry
from medallion.state.runs import NIGHTLY, RescuedSummary, RunRecords, RunState
from medallion.storage import clock
from medallion.storage.text import Reporter, error_reason

# The others of a verdict are among the errors of the run that has them, or are of an earlier run.
_FAILURES = (
    ProblemCode.BLOCKED, ProblemCode.DELETES, ProblemCode.SNAPSHOT, ProblemCode.EDITED,
    ProblemCode.REJECTED, ProblemCode.WAITING, ProblemCode.CHANGED, ProblemCode.FOLDER,
    ProblemCode.STALE, ProblemCode.NO_SCHEMA,
)  # fmt: skip


@dataclass(frozen=True)
class GateResult:
    """A gate's verdict, and whether it blocks this run."""

    verdict: Verdict
    version: int
    accepted: tuple[str, ...]
    seconds: float

    @property
    def blocking_failures(self) -> tuple[Failure, ...]:
        """Return the failures that block the later layers."""
        stops = (each for each in self.verdict.failures if each.on_failure == "stop")
        return tuple(each for each in stops if each.expectation not in self.accepted)


@dataclass
class Outcome:
    """The result of a nightly run.

    Attributes:
        seconds: duration by step.
        gates: results of the gates.
        errors: messages, each once.
        snapshot: the balances after the run.
        is_balanced: False if the balance of a source is unknown, or does not add up.
        rescued: rescued values by source.
        lost: values that conversions of silver lost, by source or child table.
        seen: the lakehouse after the run, with its verdict.
        run_id: the `run_id` of its rows in `ops.runs`.
        is_idle: whether nothing was new, so that Spark was not started.
        exit_status: that of the worst error.
        crash: the first unexpected error.
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gates: list[GateResult] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    snapshot: BalanceSnapshot = field(default_factory=BalanceSnapshot)
    is_balanced: bool = True
    rescued: dict[str, RescuedSummary] = field(default_factory=dict)
    lost: dict[str, RescuedSummary] = field(default_factory=dict)
    seen: Observations = field(default_factory=lambda: Observations(RunState()))
    run_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    is_idle: bool = False
    exit_status: int = 0
    crash: Exception | None = None

    def add_error(self, message: str, exit_status: int = 1) -> None:
        """Add an error unless it is known: several steps may fail at the same table."""
        self.exit_status = max(self.exit_status, exit_status)
        if message not in self.errors:
            self.errors.append(message)

    @property
    def blocked(self) -> list[str]:
        """Return the tables that a gate of this run blocks."""
        return [gate.verdict.table for gate in self.gates if gate.blocking_failures]

    @property
    def failures(self) -> list[Problem]:
        """Return the problems of the verdict that are new, and that are not among the errors."""
        return [
            problem
            for problem in self.seen.verdict.problems
            if problem.code in _FAILURES and not problem.is_reported
            if problem.code is not ProblemCode.BLOCKED or problem.subject in self.blocked
        ]

    @property
    def exceptions(self) -> list[Problem]:
        """Return what needs the user's attention although the run is good."""
        return [problem for problem in self.seen.verdict.problems if problem.is_reported]

    @property
    def is_good(self) -> bool:
        """Return whether nothing failed in this run, or is new among the problems."""
        return not (self.errors or self.blocked or self.failures)


def complete_outcome(config: Config, outcome: Outcome, unread: Sequence[str]) -> None:
    """Add the verdict on the lakehouse, and errors for what cannot be read, to a run's outcome.

    Args:
        outcome: the outcome.
        unread: messages about files that no source reads.
    """
    faults = outcome.snapshot.problems
    seen = observe(config, faults=faults, unread=unread, errors=outcome.errors)
    for problem in seen.verdict.problems:
        if problem.code is ProblemCode.UNREADABLE:
            outcome.add_error(problem.sentence)
    outcome.seen = seen


def record_nightly(
    config: Config, outcome: Outcome, started_at: int, earlier: Sequence[Mapping[str, Any]] = ()
) -> None:
    """Record a complete nightly run in `ops.runs`, also one without work; add an error if it fails.

    Args:
        outcome: the result of the run, with the seconds of `all`.
        started_at: when it started, in microseconds since 1970.
        earlier: the rows of earlier runs that are not recorded yet.
    """
    error = outcome.errors[0] if outcome.errors else None
    state = runs.FAILED if error else runs.IDLE if outcome.is_idle else runs.DONE
    seconds = outcome.seconds["all"]
    row = runs.run_row("run", NIGHTLY, state, started_at, seconds) | {"error": error}
    try:
        RunRecords(config.layout, run_id=outcome.run_id, command=NIGHTLY).write([*earlier, row])
    except Exception as error:
        outcome.add_error(f"the run cannot be recorded in ops.runs: {error_reason(error)}")


def record_reported(config: Config, files: Attention, command: str) -> None:
    """Record that a run ended with status 1 because of these files, so that later runs only warn.

    If another process has locked bronze by now, the next run reports them again.

    Args:
        files: the files that the run reported.
        command: the command, for the lock file.
    """
    if files.unreported:
        now = clock.now_micros()
        with suppress(UsageError), journal.lock_layers(config, ["bronze"], command):
            reported = (replace(entry, reported_at=now) for entry in files.unreported)
            ledger.write_entries(config.layout, reported)


def dismiss_files(
    config: Config, pattern: str, source: str | None, report: Reporter = lambda _: None
) -> list[Entry]:
    """Acknowledge the reported files that match a pattern.

    Args:
        pattern: a glob, as in `medallion files`.
        source: the source of the files; None for all.
        report: reports an upgrade of the lakehouse.

    Returns:
        The new ledger entries of the files.

    Raises:
        UsageError: no file matches, the source is unknown, or another process writes bronze.
    """
    if source is not None:
        config.source(source)
    with journal.lock_layers(config, ["bronze"], "files --dismiss", report):
        attention = ledger_files.find_attention(config)
        reported = (*attention.files, *attention.malformed, *attention.folders)
        listed = [entry for entry in reported if source in (None, entry.source)]
        now = clock.now_micros()
        dismissed = [
            replace(entry, reported_at=entry.reported_at or now, dismissed_at=now)
            for entry in ledger_files.matching_files(config, listed, pattern)
        ]
        if not dismissed:
            raise UsageError(
                f"--dismiss {pattern}: no reported file matches; medallion status lists the "
                "reported files."
            )
        ledger.write_entries(config.layout, dismissed)
    return dismissed
