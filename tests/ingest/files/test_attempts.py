"""A Spark failure during a read rejects no file."""

from __future__ import annotations

import os
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
from medallion.spark import delta, jvm
from medallion.spark.errors import StreamError
from medallion.state.ledger import State
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, indexes, ledger_entries, only_rows
from tests.support.lines import row


def test_java_that_ends_names_the_files(
    home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("b.json", "a.json", "c.json")
    for age, name in enumerate(names):
        home.land(name)
        os.utime(home.layout.landing("activity").local / name, (age, age))
    files = FileSource(
        spark, home.config, home.source, Schema(home.config, home.source), home.messages.append
    )
    files.poll()
    monkeypatch.setattr(jvm, "is_alive", lambda _: False)

    def end_java(_: DataFrame) -> None:
        raise Py4JError("Answer from Java side is empty")

    assert files.sample_batch().paths == [f"landing/activity/{name}" for name in names]
    with pytest.raises(Py4JError):
        files.sample_batch().read(end_java, "a test")
    files.release(-1)  # as the end of a flow does
    (message,) = home.messages
    assert "Java ended while it read landing/activity/a.json and 2 more" in message
    assert set(home.states().values()) == {State.PENDING}


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, works: Callable[[int], bool]) -> Iterator[None]:
    """Let only the Spark jobs succeed whose number `works` accepts; the others raise Py4JError."""
    jobs = count(1)

    def limited(write: Callable[..., Any]) -> Callable[..., Any]:
        def write_or_stop(*arguments: Any, **options: Any) -> Any:
            if not works(next(jobs)):
                raise Py4JError("no active SparkContext")
            return write(*arguments, **options)

        return write_or_stop

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "save", limited(DataFrameWriter.save))
        patch.setattr(delta, "write_once", limited(delta.write_once))
        yield


NAMES = ("1.json", "2.json", "3.json")


# Job 1 reads the files. If it fails, job 2 checks that Spark works without files; job 3 starts the
# search for the failing file, and a file that fails alone is read again.
@pytest.mark.parametrize(
    ("works", "error"),
    [
        (lambda job: job == 2, Py4JError),
        (lambda job: job not in (1, 3, 4), MedallionError),
    ],
    ids=["stopped during the search", "cancelled, and again during the search"],
)
def test_stopped_spark_rejects_no_file(
    home: Home,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    works: Callable[[int], bool],
    error: type[Exception],
) -> None:
    for name in NAMES:
        home.land(name, row(int(name[0])))
    counts: list[int] = []

    def count_rows(rows: DataFrame) -> None:
        rows.write.format("noop").mode("overwrite").save()
        counts.append(rows.count())

    def read() -> None:
        schema = Schema(home.config, home.source)
        files = FileSource(spark, home.config, home.source, schema, home.messages.append)
        files.poll()
        try:
            files.sample_batch().read(count_rows, "a test")
        finally:
            files.release(-1)  # as the end of a flow does

    stops = pytest.raises(error, match="no active SparkContext")
    with failing(monkeypatch, works), stops:
        read()
    assert home.states() == {(name, 1): State.PENDING for name in NAMES}
    assert counts == []
    assert not home.layout.rejected("activity").local.exists()
    read()
    assert counts == [3]


def test_stopped_batch_is_ingested_by_the_next_run(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = only_rows(lakehouse)
    for name in NAMES:
        home.land("activity", name, row(int(name[0])))
    stops = pytest.raises(StreamError, match="no active SparkContext")
    with failing(monkeypatch, lambda _: False), stops:
        home.fill("bronze")
    states = {key: entry.state for key, entry in ledger_entries(home).items()}
    assert states == {(name, 1): State.PENDING for name in NAMES}
    assert not home.config.layout.rejected("activity").local.exists()
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3]
    assert run_audit(home.config, everything=True).findings == ()
