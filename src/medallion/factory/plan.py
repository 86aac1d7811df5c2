"""What a batch and a file of it will hold, before a line of it is written.

A plan is small, and everything that the factory writes follows from it: the same plan gives the
same bytes, in any process and at any time. That is what makes a crash harmless, lets files be
made side by side, and lets a later batch repeat rows of an earlier one without keeping them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from random import Random

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
