"""Which files were being read when the process died: the suspects of the next run.

A mark stands beside the checkpoint while files are read. It proves nothing, for a process may be
killed from outside at any time: a run that finds it has the files read by a child (`trial`) first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from medallion.errors import MedallionError
from medallion.spark import checkpoints, signals
from medallion.state.ledger import Entry

_MARK = "reading"


class Attempts:
    """The mark of one source's query, and what an earlier process has left there."""

    def __init__(self, spark: SparkSession, checkpoint: Path) -> None:
        self._spark, self._checkpoint = spark, checkpoint
        self._suspects = set((checkpoints.noted(checkpoint, _MARK) or {"files": []})["files"])

    def suspects(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return those that an earlier process was reading when it died, each only once."""
        found = [entry for entry in entries if _key(entry) in self._suspects]
        self._suspects -= set(map(_key, found))
        return found

    @contextmanager
    def of(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Some files are being read. The mark goes with the end of it, unless Spark has died."""
        checkpoints.note(self._checkpoint, _MARK, {"files": [_key(entry) for entry in entries]})
        try:
            yield
        except BaseException as error:
            if (
                isinstance(error, MedallionError)
                or signals.is_shutdown_requested()
                or works(self._spark)
            ):
                checkpoints.forget(self._checkpoint, _MARK)
            raise
        checkpoints.forget(self._checkpoint, _MARK)


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
