"""Which files were being read when the process died, so that the one to blame is found.

Where the engine dies of a file (of its memory, say), nothing is left to tell which one it was, and
every run after that would die as well. So a mark stands beside the checkpoint while files are read.
A run that finds one tries these files in parts, and those of a part in which it dies one by one. A
file that was read alone when the process died, several times, is not tried any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path

from pyspark.sql import SparkSession

from medallion.errors import MedallionError
from medallion.ops.ledger import Entry
from medallion.spark import checkpoints, signals

WHY = (
    "the process died each time that it read this file alone: split or repair it, and put it back "
    "to have it tried again"
)
_MARK = "reading"
_PARTS = 16
_MOST_DEATHS = 3  # one or two may be those of a kill -9


class Attempts:
    """The mark of one source's query, and what an earlier process has left there."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        left = checkpoints.noted(checkpoint, _MARK) or {"files": [], "deaths": {}}
        self._suspects: set[str] = set(left["files"])
        self._deaths: dict[str, int] = left["deaths"]
        if len(self._suspects) == 1:
            (alone,) = self._suspects
            self._deaths[alone] = self._deaths.get(alone, 0) + 1

    def suspects(self, entries: Sequence[Entry]) -> list[Entry]:
        """Those that an earlier process was reading when it died; each is told once."""
        found = [entry for entry in entries if _key(entry) in self._suspects]
        self._suspects -= set(map(_key, found))
        return found

    def is_to_blame(self, entry: Entry) -> bool:
        """Whether a file has been tried alone often enough."""
        return self._deaths.get(_key(entry), 0) >= _MOST_DEATHS

    @contextmanager
    def of(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Some files are being read. The mark goes with the end of it, unless Spark has died."""
        mark = {"files": [_key(entry) for entry in entries], "deaths": self._deaths}
        checkpoints.note(self._checkpoint, _MARK, mark)
        try:
            yield
        except BaseException as error:
            if isinstance(error, MedallionError) or signals.have_come() or works(self._spark):
                checkpoints.forget(self._checkpoint, _MARK)
            raise
        checkpoints.forget(self._checkpoint, _MARK)


def parts(suspects: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Some files in a few parts, so that to try them takes a few jobs."""
    size = max(1, ceil(len(suspects) / _PARTS))
    return [suspects[at : at + size] for at in range(0, len(suspects), size)]


def works(spark: SparkSession) -> bool:
    """Whether Spark can do anything at all."""
    try:
        spark.range(1).write.format("noop").mode("overwrite").save()
    except Exception:
        return False
    return True


def _key(entry: Entry) -> str:
    """One version of a file."""
    return f"{entry.path} {entry.size} {entry.modified_at}"
