"""Trial reads, in a child process, of files that may have crashed the engine.

While files are read, a marker beside the checkpoint names them. A run that finds a marker does not
know why the process died: it was killed, the machine was preempted, or a file needs more memory
than there is. So it reads those files in a child process with its own Java. A file is rejected only
if the engine crashes twice in a row on this file alone, in a child that had parsed a line before. A
child killed by a signal proves nothing: the signal may come from outside.

Protocol: the parent writes the pickled request to standard input, and keeps it open; the child ends
when it is closed. The child writes a byte to standard output when it is ready, and one more for
each group of files that it has read.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.ingest.files import reader
from medallion.ingest.parsing.parse import parse_lines
from medallion.spark import checkpoints, signals
from medallion.spark.session import spark_session
from medallion.state.ledger import Entry
from medallion.storage.paths import Layout, StoragePath

CRASH_REASON = (
    "reading this file alone kills the engine (seen twice, in a process of its own): split or "
    "repair it, or raise spark.driver.memory, and put it back to have it tried again"
)
_COMMAND = (sys.executable, "-m", "medallion.ingest.files.trial")
_TIMEOUT_SECONDS = 600.0  # seconds without progress: a child that hangs proves nothing
_POLL_SECONDS = 0.2
_JAVA_SECONDS = 30  # for Java to exit after Python has received its last error
# Prefixes of the session's settings that decide how much memory a file needs and may use.
_COPIED_SETTINGS = ("spark.driver.memory", "spark.jars", "spark.memory.", "spark.sql.")
_GATEWAY_VARIABLES = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
# Signals from outside; Java handles some of them, and exits with 128 + the signal's number.
_SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
_NO_CRASH = {0, *(-number for number in _SIGNALS), *(128 + number for number in _SIGNALS)}
# The child's exit status if Java crashed; another one but 0 is an error that the batch reports.
_JAVA_CRASHED = 3


class TrialResult(NamedTuple):
    """The number of groups that a child read, and whether the engine crashed on the next one."""

    groups_read: int
    is_crash: bool


Groups = Sequence[Sequence[str]]
Trial = Callable[[Groups], TrialResult]


def find_crashing_files(trial: Trial, paths: Sequence[str]) -> list[str]:
    """Return the files that kill the engine, each alone and twice in a row.

    Args:
        trial: reads groups of files in a child process, one group after the other.
        paths: the suspected files.
    """
    if not trial([paths]).is_crash:
        return []
    crashing: list[str] = []
    waiting, has_crashed = list(paths), len(paths) == 1  # whether the first file alone has
    while waiting:
        result = trial([[path] for path in waiting])
        if not result.is_crash:
            break
        if has_crashed and result.groups_read == 0:
            crashing.append(waiting.pop(0))
            has_crashed = False
        else:
            waiting, has_crashed = waiting[result.groups_read :], True
    return crashing


class TrialProcess:
    """Reads groups of files of one source in a child process; see `find_crashing_files`.

    Args:
        spark: the run's session; the child gets its memory, and its master if that is local.
        columns: the known columns, to parse the files' lines.
        folder: a directory for the child's output, which is removed.

    Attributes:
        settings: the settings of the run's session that the child copies.
    """

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        columns: Mapping[str, str],
        folder: StoragePath,
    ) -> None:
        context = spark.sparkContext
        master = str(context.master)
        master = master if master.startswith("local[") else "local[2]"
        self._read = (replace(config, master=master), source, dict(columns), str(folder))
        self._folder = folder
        self.settings = {
            k: v for k, v in context.getConf().getAll() if k.startswith(_COPIED_SETTINGS)
        }

    def __call__(self, groups: Groups) -> TrialResult:
        """Read groups of files; only a crash of the engine proves something."""
        environment = {k: v for k, v in os.environ.items() if k not in _GATEWAY_VARIABLES}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        child = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # so that its Java is killed too, and Ctrl-C does not reach it
        )
        try:
            steps = _count_steps(child, pickle.dumps((*self._read, self.settings, groups)))
        finally:
            _kill_process(child)
            with suppress(OSError):  # its Java may still write there
                self._folder.delete_prefix()
        return TrialResult(max(0, steps - 1), steps > 0 and child.returncode == _JAVA_CRASHED)


def _count_steps(child: subprocess.Popen[bytes], request: bytes) -> int:
    """Count the steps of a child until its end or the timeout."""
    assert child.stdin
    assert child.stdout
    with suppress(BrokenPipeError):
        child.stdin.write(request)
        child.stdin.flush()
    steps, last = 0, time.monotonic()
    while not signals.is_shutdown_requested() and time.monotonic() - last < _TIMEOUT_SECONDS:
        if select.select([child.stdout], [], [], _POLL_SECONDS)[0]:
            if not os.read(child.stdout.fileno(), 1):
                child.wait()
                break
            steps, last = steps + 1, time.monotonic()
    return steps


def _kill_process(child: subprocess.Popen[bytes]) -> None:
    """End a child and its Java, if they have not ended."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout):
        assert pipe
        with suppress(BrokenPipeError):
            pipe.close()


def main() -> int:
    """Read the files of the request on standard input; see the module's protocol."""
    progress = os.dup(1)
    os.dup2(2, 1)  # Java prints to standard output too
    config, source, columns, folder, settings, groups = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_input, daemon=True).start()
    spark = spark_session(config, "medallion trial", more=settings)
    java: Any = spark.sparkContext._gateway
    try:
        for paths in ((), *groups):
            rows = (
                reader.read_rows(spark, config, source, paths, columns)
                if paths
                else spark.sql("SELECT '{}' AS value")
            )
            # Written as bronze is: writing long lines takes more memory than parsing them.
            parse_lines(rows, columns).write.mode("overwrite").parquet(folder)
            os.write(progress, b".")
    except Exception:
        try:
            status = java.proc.wait(_JAVA_SECONDS)
        except subprocess.TimeoutExpired:
            return 1
        return 1 if status in _NO_CRASH else _JAVA_CRASHED
    return 0


def _end_with_input() -> None:
    """End this process and its Java once the one that started it is gone."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    # Java has nothing to clean up, and may hang at its exit.
    os._exit(main())


_MARKER = "reading"


class ReadAttempts:
    """The marker of one source's query, which names the files that are being read."""

    def __init__(self, spark: SparkSession, layout: Layout, query: str) -> None:
        self._spark, self._layout, self._query = spark, layout, query
        marker = checkpoints.read_document(layout.checkpoint(query), _MARKER)
        self._suspects = set(marker["files"] if marker else ())

    def pop_suspects(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that an earlier process was reading when it died, each only once."""
        suspects = [entry for entry in entries if _version_key(entry) in self._suspects]
        self._suspects -= set(map(_version_key, suspects))
        return suspects

    @contextmanager
    def marked(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Mark files as being read; the marker stays if Spark dies meanwhile."""
        checkpoint = self._layout.checkpoint(self._query)
        files = [_version_key(entry) for entry in entries]
        checkpoints.write_document(checkpoint, _MARKER, {"files": files})
        try:
            yield
        except BaseException as error:
            if (
                isinstance(error, MedallionError)
                or signals.is_shutdown_requested()
                or spark_responds(self._spark)
            ):
                checkpoints.write_document(checkpoint, _MARKER, None)
            raise
        checkpoints.write_document(checkpoint, _MARKER, None)


def spark_responds(spark: SparkSession) -> bool:
    """Return whether Spark still runs jobs."""
    try:
        spark.range(1).write.format("noop").mode("overwrite").save()
    except Exception:
        return False
    return True


def _version_key(entry: Entry) -> str:
    """Return the identity of one version of a file."""
    return f"{entry.path} {entry.size} {entry.modified_at}"
