"""Queries that stay on: watched, settled as they go, and ended cleanly on a signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from medallion.config.values import Duration
from medallion.errors import MedallionError, NoAnswerError
from medallion.lakehouse import tables
from medallion.layers.flow import Flow
from medallion.pipeline import maintenance, refresh, signals
from medallion.pipeline.pipeline import Pipeline
from medallion.pipeline.tries import Kept
from medallion.spark import query, remedies
from medallion.spark.errors import SPARK_ERRORS, StreamError, in_words, ours
from medallion.spark.query import Run
from medallion.spark.watch import PATIENCE, Watch

LOOK_SECONDS = 0.5  # each look asks Spark for every query's last record
SETTLE_SECONDS = 30.0
SETTLE_BATCHES = 50


def serve(pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
    """Run the layers at an interval until SIGTERM or Ctrl-C; a batch cut off runs again later.

    A source that has no schema yet is taken up as soon as files have told it.

    Raises:
        MedallionError: a gate holds rows back from gold.
        StreamError: queries were not on when it ended, which was also said when it happened.
    """
    maintenance.align(pipeline.config, layers)
    if "gold" in layers:
        for error in (each for layer in layers for each in refresh.finish(pipeline, layer)):
            pipeline.say(f"{error}; the others go on")
    with signals.ending() as stop:
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
    """The queries of some layers, each started, watched and settled for itself.

    One that stops is begun again, as `Tries` has it: the others go on meanwhile.
    """

    def __init__(self, pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
        self._pipeline, self._trigger = pipeline, trigger
        self._layers = layers
        # In the order of the layers: a table of silver is there before gold reads it.
        self._kept: list[Kept] = []
        self._settled, self._polled = -SETTLE_SECONDS, time.monotonic()
        self._maintained = time.monotonic()
        self._watch = Watch(pipeline.say, PATIENCE + Duration.of(trigger).seconds)
        self._unsettled: list[str] = []  # why what was done last is not on record
        self._said: dict[str, str] = {}  # what was told last, by what it is about

    @property
    def failures(self) -> dict[str, str]:
        """Why queries are not on, by their names, and what could not be put on record."""
        found = {kept.flow.name: kept.tries.failure or kept.polls.failure for kept in self._kept}
        return {name: why for name, why in found.items() if why} | {e: e for e in self._unsettled}

    def start(self) -> None:
        """Start all that need not wait for a schema; one that cannot start is told.

        Raises:
            MedallionError: no query can start, or a gate holds rows back from gold.
        """
        flows = [flow for layer in self._layers for flow in self._pipeline.flows(layer)]
        if any(flow.is_gated for flow in flows):
            self._pipeline.refuse_held()
        self._kept = [Kept(flow) for flow in flows]
        errors = [error for kept in self._kept if (error := self._begin(kept))]
        if errors and not any(kept.flow.run for kept in self._kept):
            raise errors[0]

    def _begin(self, kept: Kept) -> MedallionError | None:
        """Start a query unless it waits; why it cannot start, which is told."""
        flow = kept.flow
        try:
            if self._is_too_early(flow):
                return None
            self._pipeline.begin(flow, query.trigger(self._trigger))
        except NoAnswerError as error:
            kept.tries.failed(None)
            self._say_once(flow.name, f"{error} It is tried again.")
            return error
        except MedallionError as error:
            self._cannot_start(kept, error)
            return error
        kept.tries.begun()
        return None

    def _is_too_early(self, flow: Flow) -> bool:
        """Whether it reads a table that another one of these queries is still to make."""
        ours = any(name.partition(".")[0] in self._layers for name in flow.upstream)
        return ours and not all(map(tables.exists, flow.read_from))

    @property
    def is_on(self) -> bool:
        """Whether a query is active, or one waits for a schema, a table or a broker."""
        return any(kept.is_active or not kept.tries.failure for kept in self._kept)

    def look(self) -> None:
        """Look once at every query: start, settle and tell what there is."""
        for kept in self._kept:
            run = kept.flow.run
            if run is None:
                continue
            run.collect()
            if run.is_active:
                if kept.tries.has_recovered(has_done=bool(run.batches)):
                    self._said.pop(kept.flow.name, None)
                    self._pipeline.say(f"  {kept.flow.name} is on again")
            elif not kept.has_stopped:
                kept.has_stopped = True
                self._take_up_end(kept, run)
        # One that it gives up has stopped by the next look.
        self._watch.look(kept.flow.ran for kept in self._kept if kept.is_active)
        if time.monotonic() - self._polled > Duration.of(self._trigger).seconds:
            self._polled = time.monotonic()
            self.poll()
        self._settle_if_due()
        self._maintain_if_due()

    def _take_up_end(self, kept: Kept, run: Run) -> None:
        """Put on record what a query did that has stopped by itself, and start it once more."""
        error = run.error()
        renewed = remedies.renewed(error) if error else "goes on by the rules that hold now"
        run.end()
        run.is_renewed = renewed is not None
        self._settle([kept.flow])
        if renewed:
            self._pipeline.say(f"  {kept.flow.name} {renewed}")
        else:
            self._fail(kept, f"stopped: {error}")
        if kept.tries.is_due:
            self._begin_anew(kept)

    def _begin_anew(self, kept: Kept) -> None:
        kept.flow, kept.has_stopped = self._pipeline.flow(kept.flow.name), False
        self._begin(kept)

    def _cannot_start(self, kept: Kept, error: MedallionError) -> None:
        if self._fail(kept, f"cannot start: {error}"):
            self._record(lambda: self._pipeline.record_refused(kept.flow.name, error))

    def _fail(self, kept: Kept, what: str) -> bool:
        """Note and tell it; whether it is another failure than the last one."""
        name = kept.flow.name
        kept.tries.failed(f"{name} {what}")
        return self._say_once(name, f"{name} {what}; the others go on, and it is tried again")

    def stop(self) -> None:
        """Stop all, and put what they did on record."""
        # From the end to the start of the chain, so that nothing waits for a reader.
        query.stop_all(kept.flow.run for kept in reversed(self._kept) if kept.flow.run)
        for kept in self._kept:
            run = kept.flow.run
            # One that only has to be started again is so by the next run.
            error = run.error() if run else None
            if error and not kept.tries.failure and not remedies.renewed(error):
                kept.tries.failed(f"{kept.flow.name}: {error}")
        self._settle([kept.flow for kept in self._kept])

    def poll(self) -> None:
        """Look for new files, and start what is not on."""
        for kept in self._kept:
            if kept.polls.is_due:
                self._poll(kept)
            if not kept.is_active and kept.tries.is_due:
                self._start_if_it_can(kept)

    def _poll(self, kept: Kept) -> None:
        name = kept.flow.name
        try:
            kept.flow.poll()
        except Exception as error:  # whatever it is, the others are looked after
            told = f"{name}: {in_words(error)}"
            is_known = isinstance(error, (MedallionError, OSError, *SPARK_ERRORS))
            kept.polls.failed(None if is_known else told)  # a fault of ours: it is no good end
            self._say_once(f"poll of {name}", f"{told}; it is looked for again")
        else:
            if kept.polls.has_recovered(has_done=True):
                self._said.pop(f"poll of {name}", None)

    def _start_if_it_can(self, kept: Kept) -> None:
        try:
            if not kept.flow.is_waiting():
                self._begin_anew(kept)
        except Exception as error:
            self._cannot_start(kept, ours(error, "it is not known whether it may"))

    def _settle_if_due(self) -> None:
        batches = [kept.flow.run.batches for kept in self._kept if kept.flow.run]
        # Late rows wait for nobody, and the offsets that settling reads are not kept for ever.
        is_due = any(batch.late for some in batches for batch in some.values())
        is_due = is_due or any(len(some) >= SETTLE_BATCHES for some in batches)
        if is_due or time.monotonic() - self._settled > SETTLE_SECONDS:
            self._settle([kept.flow for kept in self._kept])
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
        self._record(lambda: self._pipeline.settle(flows))

    def _record(self, write: Callable[[], Iterable[MedallionError] | None]) -> None:
        """Put something on record; where that fails, the next time may do better."""
        try:
            errors = list(write() or ())
        except Exception as error:
            errors = [ours(error, "what was done cannot be put on record")]
        self._unsettled = list(map(str, errors))
        self._say_once("record", "; ".join(self._unsettled))

    def _say_once(self, about: str, text: str) -> bool:
        """Say it, unless it is what was said last about that."""
        is_new = self._said.get(about) != text
        if text and is_new:
            self._pipeline.say(text)
        self._said[about] = text
        return is_new
