"""Waiting for queries to end, and messages about running queries."""

import time
from collections.abc import Iterable
from contextlib import suppress
from math import inf

from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, StreamError
from medallion.spark.query import RunningQuery, stop_all
from medallion.storage import clock
from medallion.storage.text import Reporter

_REPORT_SECONDS = 10.0  # between two reports on running queries
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
        if time.monotonic() - reported_at >= _REPORT_SECONDS:
            reported_at = time.monotonic()
            _report_running(active, report)
        active[0].await_termination(_POLL_SECONDS)
    failures = [f"{run.name}: {error}" for run in started if (error := run.error())]
    if failures:
        raise StreamError("; ".join(failures))


def _report_running(runs: Iterable[RunningQuery], report: Reporter) -> None:
    """Report the queries that have run that long; each batch was reported with its own rows."""
    now = clock.now_micros()
    for run in runs:
        seconds = (now - run.started_at) / 1_000_000
        if seconds >= _REPORT_SECONDS:
            done = f", after batch {max(run.batches)}" if run.batches else ""
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
