"""Plans of batches and files, the figures of what landed, and the state between two calls.

A plan determines every byte that the factory writes, in any process and at any time. So an
interrupted batch is completed as it was planned, and a later batch can repeat rows of an earlier
one without storing them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from functools import lru_cache
from random import Random
from typing import Any

from medallion.errors import UsageError
from medallion.storage.paths import StoragePath

HOUR = 3600
# Event time of every factory's first batch; 8,000 batches fit before today.
FIRST_START = int(datetime(2024, 1, 1, 6, tzinfo=UTC).timestamp())
SHORTEST_SPAN = 55 * 60  # seconds of a small batch; a large one covers more, by its source's rate
LONGEST_JITTER = 5 * 60  # of a row's event time, far below a watermark of an hour
QUIET = 2 * HOUR  # between two batches, at least
HEAD = 100  # rows at the start of a file without defects, so that they can be repeated
RATES = {"activity": 2000, "event": 200}  # maximum rows per second
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

    def following(self, *, seed: int, dirty: bool, rows: int, files: int) -> BatchPlan:
        """Return the batch after this one: later, from a full hour on, with unused indexes."""
        start = -(-(self.start + self.span + LONGEST_JITTER + QUIET) // HOUR) * HOUR
        first_index = self.first_index + self.rows
        return BatchPlan(self.source, self.number + 1, seed, dirty, rows, files, start, first_index)


@dataclass(frozen=True)
class FilePlan:
    """One file of a batch; `number` starts at 1. `previous` is the batch before, if any."""

    batch: BatchPlan
    previous: BatchPlan | None
    number: int

    @property
    def name(self) -> str:
        """The file's name; names sort in the order of landing."""
        return f"{self.batch.source}-{self.batch.number:06d}-{self.number:05d}.json"

    @property
    def rows(self) -> int:
        """Number of lines, not counting blank ones."""
        each, left = divmod(self.batch.rows, self.batch.files)
        return each + (self.number <= left)

    @property
    def first_index(self) -> int:
        """The first `Index` of the file; no other file of the factory uses its range."""
        each, left = divmod(self.batch.rows, self.batch.files)
        return self.batch.first_index + each * (self.number - 1) + min(left, self.number - 1)

    @property
    def head(self) -> int:
        """Number of rows at the start of the file without defects."""
        return min(HEAD, max(1, self.rows // 4))

    @property
    def time_range(self) -> tuple[int, int]:
        """Start (epoch milliseconds) and length (milliseconds) of the file's part of the batch."""
        span = self.batch.span * 1000
        start = self.batch.start * 1000 + span * (self.number - 1) // self.batch.files
        return start, span // self.batch.files

    def random(self, purpose: str) -> Random:
        """Return a generator for this file and purpose, independent of all others."""
        batch = self.batch
        return Random(f"{batch.seed}/{batch.source}/{batch.number}/{self.number}/{purpose}")


def batch_files(batch: BatchPlan, previous: BatchPlan | None) -> list[FilePlan]:
    """Return the files of a batch in their order."""
    return [FilePlan(batch, previous, number) for number in range(1, batch.files + 1)]


@lru_cache(maxsize=2**16)
def clock_text(second: int) -> str:
    """Return epoch seconds as `2024-01-01T06:00:00`."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


@dataclass(frozen=True)
class Landed:
    """The lines landed for one source.

    `lines` (without blank ones) = `expected_silver` + `malformed` + `invalid` + `duplicates`.
    Rows of `late` and `unknown_fields` are valid, and part of `expected_silver`.
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
    expected_quarantine: dict[str, int] = field(default_factory=dict)
    """Rows that break each rule: invalid ones, and malformed lines, which break many."""

    @property
    def expected_silver(self) -> int:
        """Rows of silver once every landed line is processed."""
        return self.lines - self.malformed - self.invalid - self.duplicates

    @property
    def expected_quarantined(self) -> int:
        """Rows of quarantine."""
        return self.malformed + self.invalid

    def __add__(self, other: Landed) -> Landed:
        """Return the sum of both."""
        one, two = Counter(self.expected_quarantine), Counter(other.expected_quarantine)
        names = [each.name for each in fields(self) if each.type == "int"]
        sums = {name: getattr(self, name) + getattr(other, name) for name in names}
        return Landed(**sums, expected_quarantine=dict(one + two))

    def figures(self) -> dict[str, Any]:
        """Return all figures for `land --json`."""
        expected = ("expected_silver", "expected_quarantined")
        return {**asdict(self), **{name: getattr(self, name) for name in expected}}


GENERATOR = 3  # increase it if a change gives a plan other bytes


@dataclass(frozen=True)
class Progress:
    """The last complete batch of a source, and the started one if it was interrupted.

    `files` of the started batch have landed.
    """

    done: BatchPlan | None = None
    started: BatchPlan | None = None
    files: int = 0


class StateFile:
    """The factory's state below a root: a small JSON file."""

    def __init__(self, root: StoragePath) -> None:
        self.directory = root / "_factory"
        self.path = self.directory / "state.json"

    def load(self, source: str) -> Progress:
        """Return a source's progress.

        Raises:
            UsageError: the file is not the factory's state, or was written by another generator.
        """
        try:
            known = dict(self._read().get(source, {}))
            known.pop("given", None)  # of an older version
            for key in ("done", "started"):
                known[key] = BatchPlan(**known[key]) if known.get(key) else None
            return Progress(**known)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"{self.path} is not the state of this version ({error}).") from error

    def save(self, source: str, progress: Progress) -> None:
        """Save a source's progress."""
        sources = {**self._read(), source: asdict(progress)}
        document = {"generator": GENERATOR, "sources": sources}
        self.path.write_atomic(json.dumps(document, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        if not self.path.is_stored():
            return {}
        document = json.loads(self.path.read())
        if document["generator"] != GENERATOR:
            raise ValueError(f"generator {document['generator']}, not {GENERATOR}")
        return dict(document["sources"])
