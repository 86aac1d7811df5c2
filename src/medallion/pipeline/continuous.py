"""Queries that stay on: watched, settled as they go, and ended cleanly on a signal."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from medallion.config.values import Duration
from medallion.errors import MedallionError, NoAnswerError
from medallion.layers.flow import Flow
from medallion.pipeline import maintenance, refresh
from medallion.pipeline.pipeline import Pipeline
from medallion.spark import query
from medallion.spark.errors import SPARK_ERRORS, StreamError, in_words
from medallion.spark.query import Run
from medallion.spark.watch import PATIENCE, Watch

LOOK_SECONDS = 0.5  # each look asks Spark for every query's last record
SETTLE_SECONDS = 30.0
SETTLE_BATCHES = 50
# What ends a query that only has to be started again, and what it is told to have done then.
_RENEWED = {
    "DELTA_SCHEMA_CHANGED": "goes on with new columns",
    "DELTA_METADATA_CHANGED": "is started anew: somebody has changed the settings of its table",
    "no Kafka broker answers": "has stopped, for no Kafka broker answers; it is tried again",
}


def serve(pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
    """Run the layers at an interval until SIGTERM or Ctrl-C; a batch cut off runs again later.

    A source that has no schema yet is taken up as soon as files have told it.

    Raises:
        MedallionError: a gate holds rows back from gold.
        StreamError: queries had failed, which is also said when it happens; the others went on.
    """
    maintenance.align(pipeline.config, layers)
    if "gold" in layers:
        for error in (each for layer in layers for each in refresh.finish(pipeline, layer)):
            pipeline.say(f"{error}; the others go on")
    with _signals() as stop:
        stream = Stream(pipeline, layers, trigger)
        try:
            stream.start()
            pipeline.say(f"on: {', '.join(layers)} every {trigger}; Ctrl-C or SIGTERM ends it")
            while not stop.wait(LOOK_SECONDS) and stream.is_on:
                stream.look()
        finally:
            stream.stop()
    if stream.failures:
        raise StreamError("; ".join(stream.failures.values()))
    pipeline.say("ended: the next run goes on from here")


class Stream:
    """The queries of some layers, each started, watched and settled for itself."""

    def __init__(self, pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
        self._pipeline, self._trigger = pipeline, trigger
        self._layers = layers
        # In the order of the layers: a table of silver is there before gold reads it.
        self._flows: list[Flow] = []
        self._settled, self._polled = -SETTLE_SECONDS, time.monotonic()
        self._maintained = time.monotonic()
        self._watch = Watch(pipeline.say, PATIENCE + Duration.of(trigger).seconds)
        self._lost: dict[str, int] = {}  # queries that died or hung, after which batch
        self._unsettled: list[str] = []  # why what was done last is not on record
        self._said: set[str] = set()
        self.failures: dict[str, str] = {}  # by the query's name

    def start(self) -> None:
        """Start all that need not wait for a schema; one that cannot start is told.

        Raises:
            MedallionError: no query can start, or a gate holds rows back from gold.
        """
        self._flows = [flow for layer in self._layers for flow in self._pipeline.flows(layer)]
        if any(flow.is_gated for flow in self._flows):
            self._pipeline.refuse_held()
        errors = [error for flow in self._flows if (error := self._begin(flow))]
        if errors and not any(flow.run for flow in self._flows):
            raise errors[0]

    def _begin(self, flow: Flow) -> MedallionError | None:
        """Start a query unless it waits; why it cannot start, which is told once."""
        try:
            self._pipeline.begin(flow, query.trigger(self._trigger))
        except NoAnswerError as error:  # the next poll tries again
            self._say_once(f"{error} It is tried again.")
            return error
        except MedallionError as error:
            self._tell(flow, f"cannot start: {error}")
            return error
        return None

    @property
    def is_on(self) -> bool:
        """Whether a query is active, or all wait for a schema, which another process may bring."""
        runs = [flow.run for flow in self._flows if flow.run]
        return not runs or any(run.is_active for run in runs)

    def look(self) -> None:
        """Look once at every query: start, settle and tell what there is."""
        for at, flow in enumerate(self._flows):
            run = flow.run
            if run is None:
                continue
            run.collect()
            if run.is_active:
                continue
            if told := _renewed(run):
                self._flows[at] = self._again(flow, told)
            elif (run.is_lost or run.is_given_up) and self._lost.get(flow.name) != run.last_batch:
                self._lost[flow.name] = run.last_batch  # a second time there is no going on
                self._flows[at] = self._again(flow, f"is started anew: {run.error()}")
            elif flow.name not in self.failures:
                run.end()
                self._tell(flow, f"stopped: {run.error()}")
        # One that it gives up is started anew at the next look.
        self._watch.look(flow.run for flow in self._flows if flow.run and flow.run.is_active)
        if time.monotonic() - self._polled > Duration.of(self._trigger).seconds:
            self._polled = time.monotonic()
            self.poll()
        self._settle_if_due()
        self._maintain_if_due()

    def stop(self) -> None:
        """Stop all, and put what they did on record."""
        runs = [flow.run for flow in self._flows if flow.run]
        # From the end to the start of the chain, so that nothing waits for a reader.
        query.stop_all(reversed(runs))
        for flow in self._flows:
            # One that only has to be started again is so by the next run.
            if flow.run and (error := flow.run.error()) and not _renewed(flow.run):
                self.failures.setdefault(flow.name, f"{flow.name}: {error}")
        self._settle(self._flows)
        self.failures |= {error: error for error in self._unsettled}

    def poll(self) -> None:
        """Look for new files, and start what waited for a schema; one that fails is told once."""
        for flow in self._flows:
            try:
                flow.poll()
                if not (flow.run or flow.name in self.failures or flow.is_waiting()):
                    self._begin(flow)
            except Exception as error:  # whatever it is, the others are looked after
                told = f"{flow.name}: {in_words(error)}"
                self._say_once(f"{told}; it is looked for again")
                if not isinstance(error, (MedallionError, OSError, *SPARK_ERRORS)):
                    self.failures.setdefault(flow.name, told)  # a fault of ours: it is no good end

    def _settle_if_due(self) -> None:
        batches = [flow.run.batches for flow in self._flows if flow.run]
        # Late rows wait for nobody, and the offsets that settling reads are not kept for ever.
        is_due = any(batch.late for some in batches for batch in some.values())
        is_due = is_due or any(len(some) >= SETTLE_BATCHES for some in batches)
        if is_due or time.monotonic() - self._settled > SETTLE_SECONDS:
            self._settle(self._flows)
            self._settled = time.monotonic()

    def _maintain_if_due(self) -> None:
        """In the thread that admits late rows: of two that replace the same files, one fails."""
        config, runs = self._pipeline.config, self._pipeline.runs
        if time.monotonic() - self._maintained > config.maintain.every.seconds:
            found = maintenance.maintain(config, runs, self._layers, is_streaming=True)
            for note in found.notes:
                self._pipeline.say(f"  {note}")
            self._maintained = time.monotonic()

    def _settle(self, flows: Sequence[Flow]) -> None:
        self._unsettled = [str(error) for error in self._pipeline.settle(flows)]
        for error in self._unsettled:
            self._say_once(error)

    def _again(self, flow: Flow, told: str) -> Flow:
        """Settle a query that has stopped for no failure of its own, and start it once more."""
        flow.ran.end()
        flow.ran.is_renewed = True
        self._settle([flow])
        self._pipeline.say(f"  {flow.name} {told}")
        renewed = self._pipeline.flow(flow.name)
        self._begin(renewed)
        return renewed

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._pipeline.say(text)

    def _tell(self, flow: Flow, what: str) -> None:
        self.failures[flow.name] = f"{flow.name} {what}"
        self._pipeline.say(f"{flow.name} {what}; the others go on")


def _renewed(run: Run) -> str | None:
    """What is told of a query that has ended and only has to be started again; else None."""
    error = run.error() or ""
    return next((told for name, told in _RENEWED.items() if name in error), None)


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
