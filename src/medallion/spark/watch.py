"""Queries that are on and get nowhere: that is told, and those that hang for ever are stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from pyspark import SparkContext

from medallion.spark import signals
from medallion.spark.errors import SPARK_ERRORS, Failure, FailureCode, StreamError
from medallion.spark.query import Run, stop_all
from medallion.storage.text import Reporter

PATIENCE = 300.0  # seconds
_LOOK_SECONDS = 1
_PAUSE = 10.0  # between two looks: an idle query gives a sign as often
_FINISH = 30  # seconds for all queries of a stream, of which a batch takes a few


class Watch:
    """Notes when something was last seen to happen for each query."""

    def __init__(
        self,
        say: Reporter,
        patience: float = PATIENCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            say: tells it.
            patience: the seconds in which nothing may happen.
            clock: seconds that pass.
        """
        self._say, self._patience, self._clock = say, patience, clock
        self._looked = -_PAUSE
        self._seen: dict[int, tuple[Any, float]] = {}

    def check_progress(self, runs: Iterable[Run]) -> None:
        """Tell of queries for which nothing has happened for too long, and again after as long.

        Those are given up for which nothing will: their thread waits, and no task runs that it
        could wait for. (A task of an hour gives no sign either, and is left to its work.) And those
        that wait for a time that the clock, which was put back, is to say once more.
        """
        now = self._clock()
        if now - self._looked < _PAUSE:
            return
        self._looked = now
        tasks, minutes = _tasks_done(), f"{self._patience / 60:.0f} minutes"
        seen, self._seen = self._seen, {}
        for run in runs:
            sign = (run.activity(), tasks)
            before, since = seen.get(id(run), (None, now))
            if run.waits_for_past_time:
                run.stop(Failure(FailureCode.CLOCK_SET_BACK, "the clock was set back"))
            elif sign != before:
                since = now
            elif now - since >= self._patience:
                if not tasks and run.is_waiting:
                    text = f"no progress for {minutes} and no running task: the query was stopped"
                    run.stop(Failure(FailureCode.OTHER, text))
                else:
                    self._say(
                        f"{run.name}: no progress for {minutes}, and rows may be waiting; if "
                        "this continues, stop this run and start it again"
                    )
                since = now
            self._seen[id(run)] = (sign, since)

    def await_all(self, runs: Iterable[Run]) -> None:
        """Wait until queries have ended, and look at those that are on; one that fails does not
        stop the others.

        Raises:
            StreamError: at least one failed; the message names each with its cause.
            KeyboardInterrupt: a signal asks for an end, and they have been stopped.
        """
        waiting = list(runs)
        everyone = list(waiting)
        while waiting:
            for run in list(waiting):
                active = run.is_active
                run.collect()
                if not active:
                    run.end()
                    waiting.remove(run)
            if waiting:
                if signals.is_shutdown_requested():
                    stop_all(waiting)
                signals.raise_if_requested()
                self.check_progress(waiting)  # one that it gives up has ended
                waiting[0].await_termination(_LOOK_SECONDS)
        failures = [f"{run.name}: {error}" for run in everyone if (error := run.error())]
        if failures:
            raise StreamError("; ".join(failures))


def stop_after_batches(runs: Iterable[Run]) -> None:
    """Stop queries one after the other, each once the batch that it is in has ended.

    A batch that is cut off runs again at the next start; until then what it has written is on no
    record, and the balance does not add up.
    """
    until = time.monotonic() + _FINISH
    for run in runs:
        with suppress(*SPARK_ERRORS):  # one that cannot be asked or stopped keeps no other on
            run.collect()
            last = run.last_batch
            while run.is_active and run.is_processing and run.last_batch == last:
                if time.monotonic() > until:
                    break
                time.sleep(0.05)
                run.collect()
        stop_all([run])


def _tasks_done() -> tuple[tuple[int, int], ...]:
    """The stages that run now, and how many of their tasks are done."""
    context = SparkContext._active_spark_context
    if context is None:
        return ()
    tracker = context.statusTracker()
    infos = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return tuple((info.stageId, info.numCompletedTasks) for info in infos if info)
