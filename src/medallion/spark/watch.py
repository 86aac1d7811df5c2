"""Waiting for queries to end, and messages about running queries and lost workers of a cluster."""

import time
from collections.abc import Iterable
from contextlib import suppress
from math import inf
from typing import Any

from pyspark.sql import SparkSession

from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, StreamError, one_line
from medallion.spark.plans import items
from medallion.spark.query import RunningQuery, stop_all
from medallion.storage import clock
from medallion.storage.text import Reporter, counted

REPORT_SECONDS = 10.0  # between two reports on running queries
_POLL_SECONDS = 0.5
_FINISH = 30  # seconds in which all queries of a stream may complete their batches


def await_all(runs: Iterable[RunningQuery], report: Reporter, at_once: float = inf) -> None:
    """Wait until queries have ended; one that fails does not stop the others.

    Args:
        runs: the queries. An iterator may start each query when it yields it.
        report: reports the queries that still run, every ten seconds.
        at_once: how many may run at the same time.

    Raises:
        StreamError: at least one failed; the message names each with its cause.
        KeyboardInterrupt: a signal has come, and the queries have been stopped.
    """
    upcoming, started, active = iter(runs), list[RunningQuery](), list[RunningQuery]()
    reported_at = time.monotonic()
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
        if time.monotonic() - reported_at >= REPORT_SECONDS:
            reported_at = time.monotonic()
            _report_running(active, report)
        active[0].await_termination(_POLL_SECONDS)
    failures = [f"{run.name}: {error}" for run in started if (error := run.error())]
    if failures:
        raise StreamError("; ".join(failures))


def _report_running(runs: Iterable[RunningQuery], report: Reporter) -> None:
    """Report the queries that have run that long, with the rows of their batches so far."""
    now = clock.now_micros()
    for run in runs:
        seconds = (now - run.started_at) / 1_000_000
        if seconds >= REPORT_SECONDS:
            rows = sum(batch.rows for batch in run.batches.values())
            done = f", {counted(rows, 'row')} so far" if rows else ""
            report(f"  {run.name} still runs: {seconds:.0f} s{done}")


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


def report_lost_workers(spark: SparkSession, reported: set[str], report: Reporter) -> None:
    """Report each executor that Spark has lost: which, when, why, and how many tasks it repeated.

    With dynamic allocation Spark ends idle executors, too: there only those whose tasks it repeated
    are reported. Spark keeps the last 100 lost executors and 1,000 stages.

    Args:
        spark: the session; nothing is reported if its Java is gone.
        reported: ids of executors that were reported before; new ones are added.
        report: gets one line for each.
    """
    with suppress(*SPARK_ERRORS, OSError):
        context: Any = spark.sparkContext
        store = context._jsc.sc().statusStore()
        executors = [each for each in items(store.executorList(False)) if not each.isActive()]
        lost = [each for each in executors if each.id() not in reported]
        if not lost:
            return
        quantiles = context._gateway.new_array(context._gateway.jvm.double, 0)
        # A stage counts the tasks that ran when the executor was lost, which that itself does not.
        counts = [
            store.executorSummary(each.stageId(), each.attemptId())
            for each in items(store.stageList(None, False, False, quantiles, None))
            if each.numFailedTasks()
        ]
        ends_idle = context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true"
        for each in lost:
            name, at = each.id(), clock.format_time(each.removeTime().get().getTime() * 1000)
            tasks = sum(count.apply(name).failedTasks() for count in counts if count.contains(name))
            reported.add(name)
            if tasks or not ends_idle:
                which = f"executor {name} on {each.hostPort()} at {at}"
                why = one_line(each.removeReason().get())
                report(f"worker lost: {which} ({why}); {counted(tasks, 'task')} repeated")
