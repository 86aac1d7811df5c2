"""How long tests take, by kind: recorded by each run, and the order of the next ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from pyspark.sql.streaming.readwriter import DataStreamWriter

from tests.support import PROJECT

PROCESS, QUERY, DATAFRAME, PURE = "process", "Spark query", "DataFrame", "pure"


def record_of(report: str) -> Path:
    """Return the file with the seconds of each test file in a run, by the name of its report.

    `make test` leaves `tests.xml`, and `make test-slow` `tests-slow.xml`.
    """
    return PROJECT / f"tests/{report.replace('tests', 'durations')}.json"


def read_seconds(is_slow: bool) -> dict[str, float]:
    """Return the recorded seconds of each test file; files that are not in it are new."""
    file = record_of("tests-slow" if is_slow else "tests")
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


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
