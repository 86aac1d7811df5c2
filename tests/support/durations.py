"""How long tests take, by kind: recorded by each run, and the order of the next ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support import PROJECT

FILE = PROJECT / "tests/durations.json"
"""Seconds of each test file in the last run that `make test-durations` recorded."""
PROCESS, QUERY, DATAFRAME, PURE = "process", "Spark query", "DataFrame", "pure"


def read_seconds() -> dict[str, float]:
    """Return the seconds of each test file; files that are not in it are new."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def file_of(test: str) -> str:
    """Return the file of a test's id."""
    return test.partition("::")[0]


def kind_of(started: Counter[str], uses_spark: bool) -> str:
    """Return the kind of a test by what it has started.

    Args:
        started: the number of processes and queries.
        uses_spark: whether it has a session of Spark.
    """
    if started[PROCESS]:
        return PROCESS
    if started[QUERY]:
        return QUERY
    return DATAFRAME if uses_spark else PURE


def count_processes(started: Counter[str], event: str, arguments: tuple[Any, ...]) -> None:
    """Count a Python process or a server of a test, as an audit hook does."""
    if event == "subprocess.Popen":
        command = " ".join(map(str, arguments[1]))
        started[PROCESS] += "pyspark-shell" not in command  # the shared session


@contextmanager
def counting_queries(started: Counter[str]) -> Iterator[None]:
    """Count the streaming queries that start."""
    start = DataStreamWriter.start

    def counted(writer: DataStreamWriter, *arguments: Any, **options: Any) -> Any:
        started[QUERY] += 1
        return start(writer, *arguments, **options)

    with patch.object(DataStreamWriter, "start", counted):
        yield
