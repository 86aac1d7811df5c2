"""Waiting for queries to end, and messages about running queries."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf
from threading import Event, Thread
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, StreamError
from medallion.spark.query import RunningQuery, stop_all
from medallion.storage.text import Reporter, counted

_SILENT_SECONDS = 10.0  # without a report, until the running queries are reported
_POLL_SECONDS = 0.5
_FINISH = 30  # seconds in which all queries of a stream may complete their batches


@contextmanager
def never_silent(report: Reporter, sessions: Sequence[SparkSession]) -> Iterator[Reporter]:
    """Yield a reporter that is never silent for long: after ten seconds it reports what runs.

    Args:
        report: reports a line, also in another thread.
        sessions: the session, once there is one.
    """
    started = reported_at = time.monotonic()
    is_done = Event()

    def report_now(text: str) -> None:
        nonlocal reported_at
        reported_at = time.monotonic()
        report(text)

    def watch() -> None:
        while not is_done.wait(_POLL_SECONDS):
            if (now := time.monotonic()) - reported_at >= _SILENT_SECONDS:
                report_now(f"  {now - started:.0f} s: {_describe_active(sessions)}")

    thread = Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield report_now
    finally:
        is_done.set()
        thread.join()


def _describe_active(sessions: Sequence[SparkSession]) -> str:
    """Return the active queries, each with the rows that its batch has read so far."""
    with suppress(Exception):  # this is no part of the work
        queries = [_describe(spark, query) for spark in sessions for query in spark.streams.active]
        return ", ".join(queries) or ("between queries" if sessions else "Spark starts")
    return "Spark is busy"


def _describe(spark: SparkSession, query: StreamingQuery) -> str:
    context: Any = spark.sparkContext
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(query.runId)))
    stages = [id_ for job in jobs if job and job.status == "RUNNING" for id_ in job.stageIds]
    rows = max((store.lastStageAttempt(id_).inputRecords() for id_ in stages), default=0)
    so_far = f" ({counted(rows, 'row')} so far)" if rows else ""
    return f"{query.name} runs{so_far}"


def await_all(runs: Iterable[RunningQuery], at_once: float = inf) -> None:
    """Wait until queries have ended; one that fails does not stop the others.

    Args:
        runs: the queries. An iterator may start each query when it yields it.
        at_once: how many may run at the same time.

    Raises:
        StreamError: at least one failed; the message names each with its cause.
        KeyboardInterrupt: a signal has come, and the queries have been stopped.
    """
    upcoming, started, active = iter(runs), list[RunningQuery](), list[RunningQuery]()
    while True:
        while len(active) < at_once and (run := next(upcoming, None)):
            active.append(run)
            started.append(run)
        if not active:
            break
        ended = [run for run in active if not run.is_active]
        for run in active:
            run.collect()
        for run in ended:
            run.end()
            active.remove(run)
        if ended:
            continue
        if signals.is_shutdown_requested():
            stop_all(active)
        signals.raise_if_requested()
        active[0].await_termination(_POLL_SECONDS)
    failures = [f"{run.name}: {error}" for run in started if (error := run.error())]
    if failures:
        raise StreamError("; ".join(failures))


def stop_after_batches(runs: Iterable[RunningQuery]) -> None:
    """Stop queries one after the other, each after its current batch.

    The rows of an interrupted batch are not recorded until the next start, and until then the
    balance does not add up.
    """
    deadline = time.monotonic() + _FINISH
    for run in runs:
        with suppress(*SPARK_ERRORS):  # stop the others in any case
            run.collect()
            last = run.last_batch
            while run.is_active and run.is_processing and run.last_batch == last:
                if time.monotonic() > deadline:
                    break
                time.sleep(0.05)
                run.collect()
        stop_all([run])
