"""A file that kills the engine is rejected; a kill -9, or Spark that stops, costs no file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from medallion.errors import MedallionError
from medallion.ingest.files import reader, trial
from medallion.ingest.files.batch import BatchContext
from medallion.ingest.files.source import FileSource
from medallion.ingest.files.trial import Groups, TrialResult
from medallion.ingest.schema.evolution import Schema
from medallion.inspect.audit import run_audit
from medallion.spark import checkpoints
from medallion.spark.errors import StreamError
from medallion.state.ledger import PENDING, REJECTED
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse, book, indexes, only
from tests.support.lines import row


class Engine:
    """An engine that dies where it reads some files; runs are processes, one after the other."""

    def __init__(self, home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        self._home, self._spark, self._is_dead = home, spark, False
        self.deadly: set[str] = set()
        self.is_killed = False  # from outside, whatever it reads
        whole = reader.read_rows

        def rows(spark: Any, config: Any, source: Any, paths: Any, schema: Any) -> DataFrame:
            if self.is_killed or self._is_deadly(paths):
                self._is_dead = True
                raise Py4JError("Answer from Java side is empty")
            return whole(spark, config, source, paths, schema)

        def raise_if_engine_fails(_: BatchContext, error: Exception) -> None:
            if self._is_dead:
                raise error

        monkeypatch.setattr(reader, "read_rows", rows)
        monkeypatch.setattr(BatchContext, "raise_if_engine_fails", raise_if_engine_fails)
        monkeypatch.setattr(trial, "spark_responds", lambda _: not self._is_dead)
        monkeypatch.setattr(BatchContext, "trial_process", lambda _: self._child)

    def _is_deadly(self, paths: Sequence[str]) -> bool:
        return bool(self.deadly & {Path(path).name for path in paths})

    def _child(self, groups: Groups) -> TrialResult:
        """A child process dies of the same files."""
        read = list(takewhile(lambda paths: not self._is_deadly(paths), groups))
        return TrialResult(len(read), len(read) < len(groups))

    def run(self) -> list[str] | None:
        """The files that one process reads; None where it dies."""
        self._is_dead = False
        read: list[str] = []
        config, source = self._home.config, self._home.source
        schema = Schema(config, source)
        files = FileSource(self._spark, config, source, schema, self._home.said.append)
        files.poll()

        def work(rows: DataFrame) -> None:
            read[:] = [Path(row[0]).name for row in rows.select("_source_file").collect()]

        try:
            files.sample_batch().read(work, "a test")
        except Py4JError:
            return None
        return sorted(read)


@pytest.fixture
def engine(home: Home, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(home, spark, monkeypatch)


def is_marked(home: Home) -> bool:
    checkpoint = home.layout.checkpoint("bronze.activity")
    return checkpoints.read_document(checkpoint, "reading") is not None


def test_file_that_kills_the_engine_is_rejected(home: Home, engine: Engine) -> None:
    names = sorted(f"{number}.json" for number in range(17))
    for name in (*names, "deadly.json"):
        home.land(name)
    engine.deadly = {"deadly.json"}
    assert [engine.run() for _ in range(2)] == [None, names]
    assert {name for (name, _), state in home.states().items() if state == PENDING} == {*names}
    entry = home.ledger()["deadly.json", 1]
    assert (entry.state, entry.moved_to) == (REJECTED, "rejected/activity/deadly.json")
    assert entry.why == trial.CRASH_REASON
    assert any("a child reads them first" in said for said in home.said)
    assert not is_marked(home)
    assert engine.run() == names


def test_two_files_that_kill_the_engine(home: Home, engine: Engine) -> None:
    for name in ("a.json", "b.json", "c.json"):
        home.land(name)
    engine.deadly = {"a.json", "c.json"}
    assert [engine.run() for _ in range(2)] == [None, ["b.json"]]
    assert set(home.states().values()) == {PENDING, REJECTED}


@pytest.mark.parametrize("names", [["a.json"], ["a.json", "b.json"]])
def test_no_number_of_kills_costs_a_file(home: Home, engine: Engine, names: list[str]) -> None:
    for name in names:
        home.land(name)
    engine.is_killed = True
    assert [engine.run() for _ in range(5)] == [None] * 5
    engine.is_killed = False
    assert engine.run() == names
    assert set(home.states().values()) == {PENDING}
    assert not is_marked(home)


def test_file_that_was_changed_since_is_no_suspect(home: Home, engine: Engine) -> None:
    home.land("a.json", age=9)
    engine.is_killed = True
    assert engine.run() is None
    home.land("a.json", "{}\n{}\n")
    engine.is_killed = False
    assert engine.run() == ["a.json", "a.json"]
    assert home.said == []


def test_work_that_fails_of_itself_leaves_no_mark(
    home: Home, spark: SparkSession, engine: Engine
) -> None:
    home.land("a.json")
    source = home.source
    files = FileSource(spark, home.config, source, Schema(home.config, source), print)
    files.poll()

    def fails(_: DataFrame) -> None:
        assert is_marked(home)
        raise MedallionError("new fields")

    with pytest.raises(MedallionError, match="new fields"):
        files.sample_batch().read(fails, "a test")
    assert not is_marked(home)


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


# The first job reads the files; when it fails, one asks whether Spark works at all, and one whether
# it does without any file. With the fourth begins the search, and what fails alone is tried again.
@pytest.mark.parametrize(
    ("works", "error"),
    [
        (lambda job: job in (2, 3), Py4JError),
        (lambda job: job not in (1, 4, 5), MedallionError),
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
        files = FileSource(spark, home.config, home.source, schema, home.said.append)
        files.poll()
        files.sample_batch().read(work, "a test")

    stops = pytest.raises(error, match="no active SparkContext")
    with failing(monkeypatch, works), stops:
        read()
    assert home.states() == {(name, 1): PENDING for name in THREE}
    assert found == []
    assert not home.layout.rejected("activity").local.exists()
    read()
    assert found == [3]


def test_a_batch_whose_spark_stops_is_taken_in_by_the_next_run(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = only(lakehouse)
    for name in THREE:
        home.land("activity", name, row(int(name[0])))
    stops = pytest.raises(StreamError, match="no active SparkContext")
    with failing(monkeypatch, lambda _: False), stops:
        home.fill("bronze")
    states = {key: entry.state for key, entry in book(home).items()}
    assert states == {(name, 1): PENDING for name in THREE}
    assert not home.config.layout.rejected("activity").local.exists()
    monkeypatch.setattr(
        BatchContext, "trial_process", lambda _: lambda groups: TrialResult(len(groups), False)
    )
    home.fill("bronze")
    assert indexes(home) == [1, 2, 3]
    assert run_audit(home.config, everything=True).findings == ()
