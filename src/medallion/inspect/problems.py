"""What is wrong with a lakehouse or its project, with the remedy; as lines and as JSON."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from textwrap import shorten
from typing import Any, TypeVar

from medallion.errors import ITEM_ERRORS, error_message
from medallion.storage.text import counted, printable

_Value = TypeVar("_Value")
_HEADLINE = 120  # characters
RETRY = "correct what the message names, then run medallion nightly"


class ProblemCode(StrEnum):
    """What is wrong, in the order of severity: the most severe is first."""

    CONFIGURATION = "configuration"
    UNREADABLE = "unreadable"
    FAILED = "failed"
    BLOCKED = "blocked"
    UNBALANCED = "unbalanced"
    EDITED = "waits_for_apply"
    KILLED = "killed"
    UNFINISHED_ERASE = "unfinished_erase"
    UNFINISHED_REFRESH = "unfinished_refresh"
    UNFINISHED_REPLAY = "unfinished_replay"
    DELETES = "deletes_not_applied"
    SNAPSHOT = "snapshot_not_applied"
    REJECTED = "rejected"
    WAITING = "waiting"
    CHANGED = "changed"
    FOLDER = "unreadable_folder"
    STALE = "stale"
    NO_SCHEMA = "no_schema"
    DISK = "disk"
    # Warnings.
    MALFORMED = "malformed_files"
    EXPECTATION = "expectation"
    QUARANTINED = "quarantined_rows"
    RESCUED = "rescued_values"
    LOST = "lost_in_conversion"
    TIMES = "unlikely_times"
    UNREAD = "unread_files"
    DOUBTFUL = "doubtful_setting"
    UNCHECKED = "not_checked"
    NOTE = "note"

    @property
    def label(self) -> str:
        """The code for people."""
        return self.value.replace("_", " ")


_ORDER = list(ProblemCode)


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong.

    Attributes:
        code: what is wrong.
        subject: the table, query, source or path.
        sentence: what happened; it may quote values of rows.
        remedy: what to do; it quotes no values.
        detail: the sentence in short, without values of rows, for alerts and headlines; for a file
            its reason code and its path.
        is_reported: whether an earlier run ended with status 1 because of it.
    """

    code: ProblemCode
    subject: str
    sentence: str
    remedy: str = ""
    detail: str = ""
    is_reported: bool = False

    @property
    def is_warning(self) -> bool:
        """Return whether a lakehouse with this problem is still healthy."""
        return _ORDER.index(self.code) >= _ORDER.index(ProblemCode.MALFORMED)

    @property
    def headline(self) -> str:
        """The detail, or the start of the sentence."""
        return self.detail or shorten(self.sentence.removeprefix(f"{self.subject}: "), _HEADLINE)

    @property
    def line(self) -> str:
        """What is wrong, and what to do."""
        return f"{self}; {self.remedy}" if self.remedy else str(self)

    def __str__(self) -> str:
        title, subject = f"{self.code.label} of {self.subject}", f"{self.subject}: "
        sentence = self.sentence.removeprefix(title).removeprefix(": ").removeprefix(subject)
        return ": ".join(filter(None, (self.code.label, self.subject, sentence)))


@dataclass(frozen=True)
class LakehouseVerdict:
    """All problems of a lakehouse, the most severe first.

    As a string it is one line without values of rows.
    """

    problems: tuple[Problem, ...] = ()

    @property
    def errors(self) -> tuple[Problem, ...]:
        """The problems that are no warnings."""
        return tuple(problem for problem in self.problems if not problem.is_warning)

    @property
    def is_healthy(self) -> bool:
        """Return whether there are no problems but warnings."""
        return not self.errors

    def __str__(self) -> str:
        parts = summary(self.problems)
        if not self.is_healthy:
            return f"NOT HEALTHY. {parts}"
        warnings = counted(len(self.problems), "warning")
        return f"healthy, with {warnings}. {parts}" if parts else "healthy"


def summary(problems: Iterable[Problem]) -> str:
    """Return the subjects by code, such as `failed: silver.a, silver.b; stale: c`."""
    subjects: dict[ProblemCode, dict[str, None]] = {}
    for problem in problems:
        subjects.setdefault(problem.code, {})[problem.subject] = None
    return "; ".join(f"{code.label}: {', '.join(names)}" for code, names in subjects.items())


def problem_lines(problems: Iterable[Problem]) -> list[str]:
    """Return a line for each problem, and for each remedy of neighbours once."""
    lines = []
    for remedy, neighbours in groupby(problems, attrgetter("remedy")):
        lines += [f"  {problem}" for problem in neighbours]
        lines += [f"    {remedy}"] if remedy else []
    return [*map(printable, lines)]


def problems_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return the fields of each problem, and whether it is a warning."""
    return [{**asdict(problem), "is_warning": problem.is_warning} for problem in problems]


@dataclass
class PartReader:
    """Reads the parts of a lakehouse, and collects problems.

    A part that cannot be read is a problem, too; each message is one once.
    """

    problems: list[Problem] = field(default_factory=list)

    def read_or(self, default: _Value, subject: str, read: Callable[[], _Value]) -> _Value:
        """Return the value that `read` returns, or the default if it raises an item's error.

        Of one part, one error is enough.
        """
        try:
            return read()
        except ITEM_ERRORS as error:
            known = (each for each in self.problems if each.code is ProblemCode.UNREADABLE)
            if subject not in (problem.subject for problem in known):
                self.add(subject, error_message(error))
            return default

    def collect(self, subject: str, problems: Iterable[Problem]) -> None:
        """Collect the problems of a generator, until it meets a part that cannot be read."""
        self.read_or(None, subject, lambda: self.problems.extend(problems))

    def by_severity(self) -> tuple[Problem, ...]:
        """Return the problems in the order of `ProblemCode`."""
        return tuple(sorted(self.problems, key=lambda problem: _ORDER.index(problem.code)))

    def note(self, subject: str, sentence: str) -> None:
        """Collect a fact that may be intended."""
        self.problems.append(Problem(ProblemCode.NOTE, subject, sentence))

    def add(self, subject: str, message: str) -> None:
        """Add a problem, unless one with this message is known."""
        if message not in (problem.sentence for problem in self.problems):
            self.problems.append(Problem(ProblemCode.UNREADABLE, subject, message, RETRY))
