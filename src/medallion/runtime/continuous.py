"""Queries that stay on: watched, settled as they go, and ended cleanly on a signal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from medallion.config.values import Duration
from medallion.layers.flow import Flow
from medallion.runtime import maintenance
from medallion.runtime.notices import Notices
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.settler import Settler
from medallion.runtime.supervised import SupervisedQuery
from medallion.spark import signals
from medallion.spark.errors import StreamError, describe_error
from medallion.spark.watch import PATIENCE, Watch, stop_after_batches

LOOK_SECONDS = 0.5  # each look asks Spark for every query's last record


def serve(pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
    """Run the layers at an interval until SIGTERM or Ctrl-C; a batch cut off runs again later.

    A source that has no schema yet is taken up as soon as files have told it.

    Raises:
        MedallionError: a gate holds rows back from gold.
        StreamError: queries were not on when it ended, which was also said when it happened.
    """
    maintenance.align(pipeline.config, layers)
    with signals.defer_signals() as end:
        stream = Stream(pipeline, layers, trigger)
        try:
            stream.start()
            pipeline.say(f"on: {', '.join(layers)} every {trigger}; Ctrl-C or SIGTERM ends it")
            while stream.is_on:
                time.sleep(LOOK_SECONDS)
                if end.is_asked_for:
                    break
                stream.look()
        except (Exception, KeyboardInterrupt):  # who was rebuilding a table has let go of it
            if pipeline.is_alive and not end.is_asked_for:
                raise
        finally:
            stream.stop()
    if stream.failures:
        raise StreamError("; ".join(stream.failures.values()))
    pipeline.say("ended: the next run goes on from here")


class Stream:
    """The queries of some layers, each started, looked after and settled for itself.

    One that stops is started again (`SupervisedQuery`), while the others go on.
    """

    def __init__(self, pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
        self._pipeline, self._layers, self._trigger = pipeline, layers, trigger
        # In the order of the layers: a table of silver is there before gold reads it.
        self._queries: list[SupervisedQuery] = []
        self._maintained = time.monotonic()
        self._watch = Watch(pipeline.say, PATIENCE + Duration.of(trigger).seconds)
        self._notices = Notices(pipeline.say)
        self._settler = Settler(pipeline, self._notices)

    @property
    def failures(self) -> dict[str, str]:
        """Why queries are not on, by their names, or what they did is not on record."""
        found = {each.name: each.failure for each in self._queries}
        return self._settler.missing | {name: why for name, why in found.items() if why}

    @property
    def _flows(self) -> list[Flow]:
        return [each.flow for each in self._queries]

    def start(self) -> None:
        """Start all that need not wait for a schema; one that cannot start is told.

        Raises:
            MedallionError: no query can start, or a gate holds rows back from gold.
        """
        flows = [flow for layer in self._layers for flow in self._pipeline.flows(layer)]
        self._pipeline.refuse_held(flows)
        how = (self._pipeline, self._layers, self._trigger, self._notices, self._settler)
        self._queries = [SupervisedQuery(flow, *how) for flow in flows]
        errors = [
            e for q in self._queries if not signals.is_shutdown_requested() and (e := q.start())
        ]
        if errors and not any(flow.run for flow in self._flows):
            raise errors[0]

    @property
    def is_on(self) -> bool:
        """Whether there is a Spark, and something that is on or tried again."""
        alive = self._pipeline.is_alive
        return alive and any(q.is_active or not q.starts.is_final for q in self._queries)

    def look(self) -> None:
        """Look once at every query: start, settle and tell what there is."""
        for each in self._queries:
            each.look()
        # One that it gives up is taken up by the next look.
        self._watch.check_progress(
            each.flow.started_run for each in self._queries if each.is_active
        )
        self.poll()
        self._settler.settle_if_due(self._flows)
        self._maintain_if_due()

    def poll(self) -> None:
        """Look for new input of each query, and start those that are off, where it is time to."""
        for each in self._queries:
            each.poll_if_due()
            each.start_if_due()

    def stop(self) -> None:
        """Stop all, and put what they did on record."""
        if not self._pipeline.is_alive:
            self._settler.missing["java"] = "Java has ended (memory, or a signal): start this again"
            return
        # From the end to the start of the chain, so that nothing waits for a reader.
        stop_after_batches(flow.run for flow in reversed(self._flows) if flow.run)
        self._settler.settle(self._flows)
        for each in self._queries:
            each.take_up_stop()

    def _maintain_if_due(self) -> None:
        """In the thread that admits late rows: of two that replace the same files, one fails."""
        config, runs = self._pipeline.config, self._pipeline.runs
        if time.monotonic() - self._maintained <= config.maintain.every.seconds:
            return
        try:
            found = maintenance.maintain(config, runs, self._layers, is_streaming=True)
        except Exception as error:
            self._notices.say("maintain", f"the tables are not maintained: {describe_error(error)}")
        else:
            self._notices.forget("maintain")
            for note in found.notes:
                self._pipeline.say(f"  {note}")
        self._maintained = time.monotonic()
