"""Queries that stay on: watched, settled as they go, and ended cleanly on a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.pipeline.pipeline import Pipeline
from medallion.spark.query import Run, StreamError, stop_all

SETTLE_SECONDS = 30.0
SETTLE_BATCHES = 50
_SCHEMA_CHANGED = "DELTA_SCHEMA_CHANGED"


def serve(pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
    """Run the layers at an interval until SIGTERM or Ctrl-C; a batch cut off runs again later.

    A source that has no schema yet is taken up as soon as files have told it.

    Raises:
        MedallionError: a gate holds rows back from gold.
        StreamError: queries had failed, which is also said when it happens; the others went on.
    """
    if "gold" in layers:
        pipeline.refuse_held()
    with _signals() as stop:
        running: dict[str, list[Run]] = {}
        try:
            for layer in layers:
                running[layer] = pipeline.start(layer, trigger)
            pipeline.say(f"on: {', '.join(layers)} every {trigger}; Ctrl-C or SIGTERM ends it")
            _watch(pipeline, running, stop, trigger)
        finally:
            everyone = [run for runs in running.values() for run in runs]
            # From the end to the start of the chain, so that nothing waits for a reader.
            stop_all(reversed(everyone))
            for layer, runs in running.items():
                pipeline.settle(layer, runs)
    failures = [f"{run.name}: {error}" for run in everyone if (error := run.error())]
    if failures:
        raise StreamError("; ".join(failures))
    pipeline.say("ended: the next run goes on from here")


def _watch(
    pipeline: Pipeline, running: dict[str, list[Run]], stop: threading.Event, trigger: str
) -> None:
    everyone = [run for runs in running.values() for run in runs]
    told: set[str] = set()
    settled, polled = -SETTLE_SECONDS, time.monotonic()
    # None at all: each of them waits for a schema, which another process may bring.
    while not stop.wait(0.2) and (not everyone or any(run.query.isActive for run in everyone)):
        for layer, runs in running.items():
            for at, run in enumerate(runs):
                if not run.query.isActive and _SCHEMA_CHANGED in (run.error() or ""):
                    runs[at] = _again(pipeline, layer, run, trigger)
        if time.monotonic() - polled > Duration.of(trigger).seconds:
            polled = time.monotonic()
            for runs in running.values():
                _poll(runs)
            _take_up(pipeline, running, told, trigger)
        everyone = [run for runs in running.values() for run in runs]
        for run in everyone:
            run.collect()
            if not run.query.isActive and run.name not in told:
                told.add(run.name)
                pipeline.say(f"{run.name} stopped: {run.error()}; the others go on")
        # Late rows wait for nobody, and the offsets that settling reads are not kept for ever.
        is_due = any(batch.late for run in everyone for batch in run.batches.values())
        is_due = is_due or any(len(run.batches) >= SETTLE_BATCHES for run in everyone)
        if is_due or time.monotonic() - settled > SETTLE_SECONDS:
            for layer, runs in running.items():
                pipeline.settle(layer, runs)
            settled = time.monotonic()


def _poll(runs: Sequence[Run]) -> None:
    """Look for new files; layers but bronze have none."""
    for run in runs:
        if run.intake and run.query.isActive:
            run.intake.poll()


def _take_up(
    pipeline: Pipeline, running: dict[str, list[Run]], told: set[str], trigger: str
) -> None:
    """Start the queries that waited for a schema, when there is one; one that fails is told once.

    In the order of the layers: a table of silver is there before gold reads it.
    """
    for layer, runs in running.items():
        names = {run.name.partition(".")[2] for run in runs}
        for name in pipeline.names(layer):
            is_known = name in names or f"{layer}.{name}" in told
            if is_known or not pipeline.has_rows(layer, name):
                continue
            try:
                runs += pipeline.start(layer, trigger, only=[name])
            except MedallionError as error:
                told.add(f"{layer}.{name}")
                pipeline.say(f"{layer}.{name} cannot start: {error}; the others go on")


def _again(pipeline: Pipeline, layer: str, run: Run, trigger: str) -> Run:
    """A query that Delta stopped because the table it reads has new columns goes on with them."""
    run.ended = time.time()
    run.is_renewed = True
    pipeline.settle(layer, [run])
    pipeline.say(f"  {run.name} goes on with new columns")
    return pipeline.start(layer, trigger, only=[run.name.split(".")[1]])[0]


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, instead of what they did before."""
    stop = threading.Event()
    before = {s: signal.signal(s, lambda *_: stop.set()) for s in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
