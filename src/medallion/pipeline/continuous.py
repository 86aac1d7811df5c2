"""Queries that stay on: watched, settled as they go, and ended cleanly on a signal."""

from __future__ import annotations

import time
from collections.abc import Sequence

from medallion.config.values import Duration
from medallion.errors import MedallionError, NoAnswerError
from medallion.lakehouse import tables
from medallion.lakehouse.layout import layer_of
from medallion.layers.flow import Flow
from medallion.pipeline import maintenance, refresh
from medallion.pipeline.notices import Notices
from medallion.pipeline.pipeline import Pipeline
from medallion.pipeline.settler import Settler
from medallion.pipeline.tries import FIRST_PAUSE, Kept
from medallion.spark import query, remedies, signals
from medallion.spark.errors import SPARK_ERRORS, StreamError, in_words, ours
from medallion.spark.query import Run
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
    with signals.ending() as end:
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
    """The queries of some layers, each started, watched and settled for itself.

    One that stops is begun again, as `Tries` has it: the others go on meanwhile.
    """

    def __init__(self, pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
        self._pipeline, self._layers, self._trigger = pipeline, layers, trigger
        # In the order of the layers: a table of silver is there before gold reads it.
        self._kept: list[Kept] = []
        self._maintained = time.monotonic()
        self._every = Duration.of(trigger).seconds
        self._watch = Watch(pipeline.say, PATIENCE + self._every)
        self._notices = Notices(pipeline.say)
        self._settler = Settler(pipeline, self._notices)

    @property
    def failures(self) -> dict[str, str]:
        """Why queries are not on, by their names, or what they did is not on record."""
        found = {kept.flow.name: kept.tries.failure or kept.polls.failure for kept in self._kept}
        return self._settler.missing | {name: why for name, why in found.items() if why}

    @property
    def _flows(self) -> list[Flow]:
        return [kept.flow for kept in self._kept]

    def start(self) -> None:
        """Start all that need not wait for a schema; one that cannot start is told.

        Raises:
            MedallionError: no query can start, or a gate holds rows back from gold.
        """
        flows = [flow for layer in self._layers for flow in self._pipeline.flows(layer)]
        if any(flow.is_gated for flow in flows):
            self._pipeline.refuse_held()
        self._kept = [Kept(flow) for flow in flows]
        errors = [e for k in self._kept if not signals.have_come() and (e := self._begin(k))]
        if errors and not any(kept.flow.run for kept in self._kept):
            raise errors[0]

    def _begin(self, kept: Kept) -> MedallionError | None:
        """Start a query unless it waits; why it cannot start, which is told."""
        flow, how = kept.flow, query.trigger(self._trigger)
        try:
            is_early = self._is_too_early(flow)
            if not is_early and "gold" in self._layers:  # whose lock that needs
                refresh.rebuild_if_left(self._pipeline, flow)
            is_begun = not is_early and self._pipeline.begin(flow, how)
        except NoAnswerError as error:
            kept.tries.failed(None)
            self._notices.say(flow.name, f"{error} It is tried again.")
            return error
        except Exception as error:
            failure = ours(error, f"{flow.name} cannot be started")
            self._cannot_start(kept, failure)
            return failure
        if is_begun:
            kept.tries.begun()
        else:
            self._goes_well(kept)  # it waits
        return None

    def _is_too_early(self, flow: Flow) -> bool:
        """Whether it reads a table that another one of these queries is still to make."""
        is_ours = any(layer_of(name) in self._layers for name in flow.upstream)
        return is_ours and not all(map(tables.exists, flow.read_from))

    @property
    def is_on(self) -> bool:
        """Whether there is a Spark, and something that is on or tried again."""
        alive = self._pipeline.is_alive
        return alive and any(kept.is_active or not kept.tries.is_final for kept in self._kept)

    def look(self) -> None:
        """Look once at every query: start, settle and tell what there is."""
        for kept in self._kept:
            if (run := kept.flow.run) is None or kept.has_stopped:
                continue
            run.collect()
            if run.is_active:
                self._take_up_recovery(kept)
            else:
                self._take_up_end(kept, run)
        # One that it gives up is taken up by the next look.
        self._watch.look(kept.flow.ran for kept in self._kept if kept.is_active)
        self.poll()
        self._settler.settle_if_due(self._flows)
        self._maintain_if_due()

    def _take_up_end(self, kept: Kept, run: Run) -> None:
        """Put on record what a query did that has stopped by itself, and start it once more."""
        error = run.error()
        # Said where it only has to be started again; None where it has failed.
        restart = remedies.restart_note(error) if error else "goes on by the rules that hold now"
        kept.has_stopped = True
        run.end()
        # Twice for the same reason, and nothing done between them: that is a failure after all.
        is_in_vain = restart == kept.restart_note and not run.has_done_batch
        run.is_to_restart, kept.restart_note = restart is not None and not is_in_vain, restart
        is_settled = self._settler.settle([kept.flow])
        if run.is_to_restart and is_settled:
            self._goes_well(kept)
            self._pipeline.say(f"  {kept.flow.name} {restart}")
        else:
            why = error or self._settler.missing.get(kept.flow.name, "it has ended")
            self._fail(kept, f"stopped: {why}", is_final=run.hangs_on)
        if kept.tries.is_due:
            self._begin_anew(kept)

    def _take_up_recovery(self, kept: Kept) -> None:
        if kept.has_recovered and kept.flow.name not in self._settler.missing:
            self._goes_well(kept)
            self._pipeline.say(f"  {kept.flow.name} is on again")

    def _goes_well(self, kept: Kept) -> None:
        kept.tries.went_well()
        self._notices.forget(kept.flow.name)

    def _begin_anew(self, kept: Kept) -> None:
        kept.flow, kept.has_stopped = self._pipeline.flow(kept.flow.name), False
        self._begin(kept)

    def _cannot_start(self, kept: Kept, error: MedallionError) -> None:
        if self._fail(kept, f"cannot start: {error}"):
            self._settler.refused(kept.flow.name, error)

    def _fail(self, kept: Kept, what: str, is_final: bool = False) -> bool:
        """Note and tell it; whether it is another failure than the last one."""
        name = kept.flow.name
        kept.tries.failed(f"{name} {what}", is_final)
        then = "only another process can go on with it" if is_final else "it is tried again"
        return self._notices.say(name, f"{name} {what}; {then}")

    def stop(self) -> None:
        """Stop all, and put what they did on record."""
        if not self._pipeline.is_alive:
            self._settler.missing["java"] = "Java has ended (memory, or a signal): start this again"
            return
        # From the end to the start of the chain, so that nothing waits for a reader.
        stop_after_batches(kept.flow.run for kept in reversed(self._kept) if kept.flow.run)
        self._settler.settle(self._flows)
        for kept in self._kept:
            error = kept.flow.run.error() if kept.flow.run else None
            if not error:
                self._take_up_recovery(kept)
            elif not kept.tries.failure and not remedies.restart_note(error):  # else it goes on
                kept.tries.failed(f"{kept.flow.name}: {error}")

    def poll(self) -> None:
        """Look for new files, and start what is not on; where it was not the time, soon again."""
        now = time.monotonic()
        for kept in self._kept:
            is_due = now - kept.polled_at >= self._every and kept.polls.is_due
            if is_due and self._poll(kept):
                kept.polled_at = now
            is_asked = now - kept.asked_at < min(self._every, FIRST_PAUSE)
            if kept.is_off and kept.tries.is_due and not is_asked:
                kept.asked_at = now
                self._start_if_it_can(kept)

    def _poll(self, kept: Kept) -> bool:
        name = kept.flow.name
        try:
            has_looked = kept.flow.poll()
        except Exception as error:  # whatever it is, the others are looked after
            told = f"{name}: {in_words(error)}"
            is_known = isinstance(error, (MedallionError, OSError, *SPARK_ERRORS))
            kept.polls.failed(None if is_known else told)  # a fault of ours: it is no good end
            self._notices.say(f"poll of {name}", f"{told}; it is looked for again")
            return True
        if has_looked and kept.polls.went_well():
            self._notices.forget(f"poll of {name}")
        return has_looked

    def _start_if_it_can(self, kept: Kept) -> None:
        try:
            if not kept.flow.is_waiting():
                self._begin_anew(kept)
        except Exception as error:
            self._cannot_start(kept, ours(error, f"{kept.flow.name} cannot be started"))

    def _maintain_if_due(self) -> None:
        """In the thread that admits late rows: of two that replace the same files, one fails."""
        config, runs = self._pipeline.config, self._pipeline.runs
        if time.monotonic() - self._maintained <= config.maintain.every.seconds:
            return
        try:
            found = maintenance.maintain(config, runs, self._layers, is_streaming=True)
        except Exception as error:
            self._notices.say("maintain", f"the tables are not maintained: {in_words(error)}")
        else:
            self._notices.forget("maintain")
            for note in found.notes:
                self._pipeline.say(f"  {note}")
        self._maintained = time.monotonic()
