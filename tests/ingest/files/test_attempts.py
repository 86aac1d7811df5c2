"""Spark that stops while files are read costs no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from medallion.errors import MedallionError
from medallion.ingest.files.source import FileSource
from medallion.ingest.schema.evolution import Schema
from medallion.inspect.audit import run_audit
from medallion.spark import jvm
from medallion.spark.errors import StreamError
from medallion.state.ledger import State
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, indexes, ledger_entries, only_activity
from tests.support.lines import row


def test_end_of_java_names_the_files(
    home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.json", "a.json", "c.json"):
        home.land(name)
    files = FileSource(
        spark, home.config, home.source, Schema(home.config, home.source), home.messages.append
    )
    files.poll()
    monkeypatch.setattr(jvm, "is_alive", lambda _: False)

    def dies(_: DataFrame) -> None:
        raise Py4JError("Answer from Java side is empty")

    with pytest.raises(Py4JError):
        files.sample_batch().read(dies, "a test")
    (said,) = home.messages
    assert "Java ended while it read landing/activity/a.json and 2 more" in said
    assert set(home.states().values()) == {State.PENDING}


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, works: Callable[[int], bool]) -> Iterator[None]:
    """Spark does those of its jobs that work, by their numbers, and says of the others that it is
    stopped."""
    jobs, save = count(1), DataFrameWriter.save

    def stopping(self: DataFrameWriter, *arguments: Any, **options: Any) -> None:
        if not works(next(jobs)):
            raise Py4JError("no active SparkContext")
        save(self, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "save", stopping)
        yield


THREE = ("1.json", "2.json", "3.json")


# The first job reads the files; when it fails, one asks whether Spark works without any file. With
# the third begins the search, and what fails alone is tried again.
@pytest.mark.parametrize(
    ("works", "error"),
    [
        (lambda job: job == 2, Py4JError),
        (lambda job: job not in (1, 3, 4), MedallionError),
    ],
    ids=["stopped during the search", "cancelled, and again during the search"],
)
def test_no_file_is_to_blame_for_a_spark_that_stops(
    home: Home,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    works: Callable[[int], bool],
    error: type[Exception],
) -> None:
    for name in THREE:
        home.land(name, row(int(name[0])))
    found: list[int] = []

    def work(rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()
        found.append(rows.count())

    def read() -> None:
        schema = Schema(home.config, home.source)
        files = FileSource(spark, home.config, home.source, schema, home.messages.append)
        files.poll()
        files.sample_batch().read(work, "a test")

    stops = pytest.raises(error, match="no active SparkContext")
    with failing(monkeypatch, works), stops:
        read()
    assert home.states() == {(name, 1): State.PENDING for name in THREE}
    assert found == []
    assert not home.layout.rejected("activity").local.exists()
    read()
    assert found == [3]


def test_a_batch_whose_spark_stops_is_taken_in_by_the_next_run(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = only_activity(lakehouse)
    for name in THREE:
        home.land("activity", name, row(int(name[0])))
    stops = pytest.raises(StreamError, match="no active SparkContext")
    with failing(monkeypatch, lambda _: False), stops:
        home.fill("bronze")
    states = {key: entry.state for key, entry in ledger_entries(home).items()}
    assert states == {(name, 1): State.PENDING for name in THREE}
    assert not home.config.layout.rejected("activity").local.exists()
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3]
    assert run_audit(home.config, everything=True).findings == ()
