"""Plans of batches and files, what was landed, and the state between two calls.

A plan is small, and everything that the factory writes follows from it: the same plan gives the
same bytes, in any process and at any time. That is what makes a crash harmless, lets files be
made side by side, and lets a later batch repeat rows of an earlier one without keeping them.

A batch is noted as begun before its first file is written, as written before the first is shown,
and as done after the last. An interrupted one is finished as it was begun: no name ever gets other
bytes, and no file lands a second time.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

from medallion.errors import UsageError
from medallion.storage import files as small_files

HOUR = 3600

FIRST_START = int(datetime(2024, 1, 1, 6, tzinfo=UTC).timestamp())
"""Where every factory's calendar begins. Far enough back for 8,000 batches to stay in the past."""

SHORTEST_SPAN = 55 * 60
"""Seconds that a small batch covers; a large one covers more, by its source's `RATES`."""

LONGEST_JITTER = 5 * 60
"""No row lies further than this from its place in time, far below a watermark of an hour."""

QUIET = 2 * HOUR
"""At least this long nothing is recorded between two batches."""

HEAD = 100
"""At most so many rows at a file's beginning are kept free of defects, so they can be repeated."""

RATES = {"activity": 2000, "event": 200}
"""The most rows a second that each source records."""

SOURCE_NAMES = tuple(RATES)


@dataclass(frozen=True)
class BatchPlan:
    """One batch of one source. `start` is epoch seconds, `first_index` the first unused `Index`."""

    source: str
    number: int
    seed: int
    dirty: bool
    rows: int
    files: int
    start: int = FIRST_START
    first_index: int = 0

    @property
    def span(self) -> int:
        """Seconds over which the batch's rows are spread; at least two for each file."""
        return max(SHORTEST_SPAN, -(-self.rows // RATES[self.source]), 2 * self.files)

    @property
    def end(self) -> int:
        """A moment (epoch seconds) after the batch's last row."""
        return self.start + self.span + LONGEST_JITTER

    def following(self, *, seed: int, dirty: bool, rows: int, files: int) -> BatchPlan:
        """The batch after this one: later in time, on a full hour, with indexes not used yet."""
        start = -(-(self.end + QUIET) // HOUR) * HOUR
        first_index = self.first_index + self.rows
        return BatchPlan(self.source, self.number + 1, seed, dirty, rows, files, start, first_index)


@dataclass(frozen=True)
class FilePlan:
    """One file of a batch; `file` counts from 1. `previous` is the batch before, if there was."""

    batch: BatchPlan
    previous: BatchPlan | None
    file: int

    @property
    def name(self) -> str:
        """The file's name; names sort in the order of landing."""
        return f"{self.batch.source}-{self.batch.number:06d}-{self.file:05d}.json"

    @property
    def rows(self) -> int:
        """How many lines, blank ones aside, the file holds."""
        each, left = divmod(self.batch.rows, self.batch.files)
        return each + (self.file <= left)

    @property
    def first_index(self) -> int:
        """The first `Index` of the file; no other file of the factory uses its range."""
        each, left = divmod(self.batch.rows, self.batch.files)
        return self.batch.first_index + each * (self.file - 1) + min(left, self.file - 1)

    @property
    def head(self) -> int:
        """How many of the file's first rows stay as they were recorded."""
        return min(HEAD, max(1, self.rows // 4))

    @property
    def start_ms(self) -> int:
        """Epoch milliseconds at which the file's share of the batch's time begins."""
        return (
            self.batch.start * 1000 + self.batch.span * 1000 * (self.file - 1) // self.batch.files
        )

    @property
    def width_ms(self) -> int:
        """Milliseconds of the batch's time that are the file's own."""
        return self.batch.span * 1000 // self.batch.files

    def random(self, purpose: str) -> Random:
        """A generator of its own for each file and purpose, so files can be made in any order."""
        batch = self.batch
        return Random(f"{batch.seed}/{batch.source}/{batch.number}/{self.file}/{purpose}")


@lru_cache(maxsize=4096)
def _hour_text(hour: int) -> str:
    return datetime.fromtimestamp(hour * HOUR, UTC).strftime("%Y-%m-%dT%H:")


@lru_cache(maxsize=1)
def _minute_texts() -> tuple[str, ...]:
    return tuple(f"{second // 60:02d}:{second % 60:02d}" for second in range(HOUR))


def clock_text(second: int) -> str:
    """Epoch seconds as `2024-01-01T06:00:00`; many times cheaper than strftime."""
    return _hour_text(second // HOUR) + _minute_texts()[second % HOUR]


@dataclass(frozen=True)
class Landed:
    """The lines landed for one source, each counted once.

    `lines` (all but blank ones) = `expected_silver` + `malformed` + `invalid` + `duplicates`.
    `late` and `unknown_fields` rows are valid, and part of `expected_silver`. Late rows are late
    for the pipeline only if an earlier run of it took in the batch before them.
    """

    files: int = 0
    lines: int = 0
    malformed: int = 0
    invalid: int = 0
    duplicates: int = 0
    late: int = 0
    unknown_fields: int = 0
    blank_lines: int = 0
    batches: int = 0
    invalid_by_rule: dict[str, int] = field(default_factory=dict)
    """The invalid rows by the one rule that each of them breaks. Malformed lines are not here."""
    expected_quarantine: dict[str, int] = field(default_factory=dict)
    """For each rule, the rows that name it: invalid ones, and malformed lines, which break many."""
    duplicates_by_origin: dict[str, int] = field(default_factory=dict)
    """Where the repeated row had been: `same_file`, `same_batch` or `earlier_batch`."""

    @property
    def expected_silver(self) -> int:
        """The rows that belong in silver once every landed line is processed."""
        return self.lines - self.malformed - self.invalid - self.duplicates

    @property
    def expected_quarantined(self) -> int:
        """The rows that belong in quarantine."""
        return self.malformed + self.invalid

    def __add__(self, other: Landed) -> Landed:
        """Both together."""
        total: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                total[each.name] = dict(sorted((Counter(mine) + Counter(theirs)).items()))
            else:
                total[each.name] = mine + theirs
        return Landed(**total)

    def figures(self) -> dict[str, Any]:
        """Those that programs rely on first, then the factory's own."""
        return {
            **asdict(self),
            "expected_silver": self.expected_silver,
            "expected_quarantined": self.expected_quarantined,
        }


GENERATOR = 1
"""To be raised with every change that gives a plan other bytes."""


@dataclass(frozen=True)
class Progress:
    """How far a source has come: the last batch done, and the one after it, begun or written; and
    the names of the given files that have landed."""

    done: BatchPlan | None = None
    begun: BatchPlan | None = None
    written: BatchPlan | None = None
    given: tuple[str, ...] = ()

    @property
    def last(self) -> int:
        """The number of the newest batch that has files; 0 if there is none."""
        plans = (plan for plan in (self.done, self.begun, self.written) if plan)
        return max((plan.number for plan in plans), default=0)


class StateFile:
    """The factory's memory, a small JSON file that is replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def locked(self) -> AbstractContextManager[None]:
        """Wait for other processes that land into the same root, and keep them waiting."""
        return small_files.lock_file(self.path)

    def load(self, source: str) -> Progress:
        """A source's progress; none when it never landed."""
        try:
            known = dict(self._read().get(source, {}))
            given = tuple(known.pop("given", ()))
            plans = {when: BatchPlan(**plan) for when, plan in known.items() if plan}
            return Progress(**plans, given=given)
        except (TypeError, ValueError) as error:
            raise self._unreadable(error) from error

    def save(self, source: str, progress: Progress) -> None:
        """Remember a source's progress; the others' stays."""
        sources = {**self._read(), source: asdict(progress)}
        document = {"generator": GENERATOR, "sources": sources}
        small_files.write_atomic(self.path, json.dumps(document, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            document = json.loads(self.path.read_text(encoding="utf-8"))
            generator, sources = document["generator"], dict(document["sources"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable(error) from error
        if generator != GENERATOR:
            raise UsageError(
                f"{self.path} was written by generator {generator} of the data factory, "
                f"this is generator {GENERATOR}: land on a new root."
            )
        return sources

    def _unreadable(self, error: Exception) -> UsageError:
        return UsageError(
            f"{self.path} is not the data factory's state ({error}): "
            "put it back, or land on a new root."
        )
