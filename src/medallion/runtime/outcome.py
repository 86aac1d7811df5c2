"""What a nightly run did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from medallion.inspect.balance import Balance, unbalanced
from medallion.inspect.ledger_files import Attention
from medallion.quality.suites import Failure, Verdict
from medallion.state.runs import RescuedSummary


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
