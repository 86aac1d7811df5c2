"""Queries that stay on: supervised, restarted after failures, recorded, and stopped on a signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import inf

from medallion.config.values import Duration
from medallion.errors import MedallionError, UnreachableError
from medallion.layers.flow import Flow
from medallion.runtime import maintenance, refresh
from medallion.runtime.graph import Pipeline
from medallion.runtime.recorder import Notices, StreamRecorder
from medallion.spark import errors, query, signals
from medallion.spark.errors import SPARK_ERRORS, StreamError, as_medallion_error, describe_error
from medallion.spark.query import Run
from medallion.spark.watch import PATIENCE, Watch, stop_after_batches
from medallion.storage import delta_tables
from medallion.storage.paths import layer_of

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0  # seconds
LONGEST_WAIT = 60.0  # seconds, where it is somebody else who has to come back


class Backoff:
    """Says when one thing is to be tried: at once after its first failure, then after pauses that
    double.

    What was wrong may pass (a full disk, a reference that is just being replaced, a broker that is
    away), and nobody may be there to start it by hand.

    Attributes:
        has_failed: it did when it was tried last, and has not gone well since.
        failure: what it failed of; None where it has not, or only waits for somebody else.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock  # in seconds
        self._pause = 0.0  # after the last failure
        self._next = -inf
        self.has_failed = False
        self.failure: str | None = None

    @property
    def is_due(self) -> bool:
        """Whether it may be tried now."""
        return self._clock() >= self._next

    @property
    def is_final(self) -> bool:
        """Whether it is never tried again."""
        return self._next == inf

    def note_failure(self, failure: str | None, is_final: bool = False) -> None:
        """It has failed.

        Args:
            failure: of what; None where it waits for somebody else, which is no failure to tell.
            is_final: it is never to be tried again.
        """
        if self.has_failed:
            longest = LONGEST_PAUSE if failure else LONGEST_WAIT
            self._pause = min(max(2 * self._pause, FIRST_PAUSE), longest)
        self.has_failed, self.failure = True, failure
        self._next = inf if is_final else self._clock() + self._pause

    def note_success(self) -> bool:
        """It has done what it is for, or all that there is to do; whether it had failed before."""
        had_failed = self.has_failed
        self._pause, self.has_failed, self.failure = 0.0, False, None
        self._next = self._clock()
        return had_failed

    def delay(self, seconds: float) -> None:
        """It is not tried before so many seconds have passed, nor sooner than it was to be."""
        self._next = max(self._next, self._clock() + seconds)


_WELL_AFTER = 60.0  # seconds that a query has been on without a batch to do


class SupervisedQuery:
    """A query that is to stay on, whatever it fails of.

    It is off until its source has a schema and the tables that it reads are there; and after it has
    failed, until it is tried again. Each start is that of a new `flow`.
    """

    def __init__(
        self,
        flow: Flow,
        pipeline: Pipeline,
        layers: Sequence[str],
        trigger: str,
        notices: Notices,
        recorder: StreamRecorder,
    ) -> None:
        self.name, self.flow = flow.name, flow
        self._pipeline, self._layers = pipeline, layers
        self._trigger, self._every = trigger, Duration.parse(trigger).seconds
        self._notices, self._recorder = notices, recorder
        self.starts = Backoff()  # when it is started again, and why it is not on
        self._polls = Backoff()  # when its source is asked for new input
        self._started_at = time.monotonic()
        self._has_stopped = False  # by itself, which has been told and put on record
        self._restart_note: str | None = None  # of its last end

    @property
    def failure(self) -> str | None:
        """Why it is not on, or cannot look for what is new; None while nothing is wrong."""
        return self.starts.failure or self._polls.failure

    @property
    def is_active(self) -> bool:
        """Whether it is on."""
        return self.flow.run is not None and self.flow.run.is_active

    def start(self) -> MedallionError | None:
        """Start it unless it has to wait, as for somebody who does not answer; why it cannot start,
        which is told and tried again."""
        try:
            is_early = self._is_too_early()
            if not is_early and "gold" in self._layers:  # whose lock that needs
                refresh.rebuild_if_left(self._pipeline, self.flow)
            how = query.trigger_options(self._trigger)
            is_begun = not is_early and self._pipeline.start_flow(self.flow, how)
        except Exception as error:
            return self._handle_failed_start(error)
        if is_begun:
            self._started_at = time.monotonic()
        else:
            self._clear_failure()
        return None

    def _is_too_early(self) -> bool:
        """Whether it reads a table that another query of the stream is still to make."""
        is_ours = any(layer_of(name) in self._layers for name in self.flow.upstream)
        return is_ours and not all(map(delta_tables.table_exists, self.flow.upstream_paths))

    def start_if_due(self) -> None:
        """Start it once more, where it is off and need not wait."""
        is_off = self.flow.run is None or self._has_stopped
        if not (is_off and self.starts.is_due):
            return
        try:
            if not self.flow.has_unknown_schema():
                self._restart()
        except Exception as error:
            self._handle_failed_start(error)
        self.starts.delay(min(self._every, FIRST_PAUSE))  # else each look would ask it

    def _restart(self) -> None:
        self.flow, self._has_stopped = self._pipeline.flow(self.name), False
        self.start()

    def check_run(self) -> None:
        """Take up what has become of it since the last look."""
        run = self.flow.run
        if run is None or self._has_stopped:
            return
        run.collect()
        if run.is_active:
            self._note_recovery(run)
        else:
            self._handle_end(run)

    def _handle_end(self, run: Run) -> None:
        """Put on record what it did before it stopped by itself, and start it once more."""
        error = run.error()
        # Said where it only has to be started again; None where it has failed.
        restart = errors.restart_note(error) if error else "goes on by the rules that hold now"
        self._has_stopped = True
        run.end()
        # Twice for the same reason, and nothing done between them: that is a failure after all.
        is_in_vain = restart == self._restart_note and not run.has_done_batch
        run.needs_restart, self._restart_note = restart is not None and not is_in_vain, restart
        is_recorded = self._recorder.record([self.flow])
        if run.needs_restart and is_recorded:
            self._clear_failure()
            self._pipeline.say(f"  {self.name} {restart}")
        else:
            why = error or self._recorder.unrecorded.get(self.name, "it has ended")
            self._report_failure(f"stopped: {why}", is_final=run.cannot_stop)
        if self.starts.is_due:
            self._restart()

    def _note_recovery(self, run: Run) -> None:
        """Tell that it is on again, once it has done a batch, or been on for a minute with none."""
        has_lasted = time.monotonic() - self._started_at > _WELL_AFTER
        is_well = run.has_done_batch or (has_lasted and not run.is_processing)
        if self.starts.has_failed and is_well and self.name not in self._recorder.unrecorded:
            self._clear_failure()
            self._pipeline.say(f"  {self.name} is on again")

    def note_stop(self) -> None:
        """Note whether anything was wrong with it when the stream was stopped."""
        run = self.flow.run
        error = run.error() if run else None
        if run and not error:
            self._note_recovery(run)
        elif error and not self.starts.failure and not errors.restart_note(error):
            self.starts.note_failure(f"{self.name}: {error}")

    def _clear_failure(self) -> None:
        self.starts.note_success()
        self._notices.clear(self.name)

    def _handle_failed_start(self, error: Exception) -> MedallionError | None:
        if isinstance(error, UnreachableError):  # it waits for somebody else, and has not failed
            self.starts.note_failure(None)
            self._notices.report(self.name, f"{error} It is tried again.")
            return None
        failure = as_medallion_error(error, f"{self.name} cannot be started")
        if self._report_failure(f"cannot start: {self._without_name(failure)}"):
            self._recorder.record_failed_start(self.name, failure)
        return failure

    def _report_failure(self, what: str, is_final: bool = False) -> bool:
        """Note and tell it; whether it is another failure than the last one."""
        self.starts.note_failure(f"{self.name} {what}", is_final)
        then = "only another process can go on with it" if is_final else "it is tried again"
        return self._notices.report(self.name, f"{self.name} {what}; {then}")

    def _without_name(self, error: Exception) -> str:
        return describe_error(error).removeprefix(f"{self.name}: ")

    def poll_if_due(self) -> None:
        """Look for new input; where it was not the time to, as in a batch, soon again."""
        if not self._polls.is_due:
            return
        about, has_looked = f"poll of {self.name}", True
        try:
            has_looked = self.flow.poll()
        except Exception as error:  # whatever it is, the others are looked after
            told = f"{self.name}: {self._without_name(error)}"
            is_known = isinstance(error, (MedallionError, OSError, *SPARK_ERRORS))
            self._polls.note_failure(
                None if is_known else told
            )  # a fault of ours: it is no good end
            self._notices.report(about, f"{told}; it is looked for again")
        else:
            if has_looked and self._polls.note_success():
                self._notices.clear(about)
        if has_looked:
            self._polls.delay(self._every)


STEP_SECONDS = 0.5  # each look asks Spark for every query's last record


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
                time.sleep(STEP_SECONDS)
                if end.is_asked_for:
                    break
                stream.step()
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
        self._watch = Watch(pipeline.say, PATIENCE + Duration.parse(trigger).seconds)
        self._notices = Notices(pipeline.say)
        self._recorder = StreamRecorder(pipeline.config, pipeline.runs, self._notices)

    @property
    def failures(self) -> dict[str, str]:
        """Why queries are not on, by their names, or what they did is not on record."""
        found = {each.name: each.failure for each in self._queries}
        return self._recorder.unrecorded | {name: why for name, why in found.items() if why}

    @property
    def _flows(self) -> list[Flow]:
        return [each.flow for each in self._queries]

    def start(self) -> None:
        """Start all that need not wait for a schema; one that cannot start is told.

        Raises:
            MedallionError: no query can start, or a gate holds rows back from gold.
        """
        flows = [flow for layer in self._layers for flow in self._pipeline.flows(layer)]
        self._pipeline.refuse_if_blocked(flows)
        how = (self._pipeline, self._layers, self._trigger, self._notices, self._recorder)
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

    def step(self) -> None:
        """Look once at every query: start, settle and tell what there is."""
        for each in self._queries:
            each.check_run()
        # One that it gives up is taken up by the next look.
        self._watch.check_progress(
            each.flow.started_run for each in self._queries if each.is_active
        )
        self.poll()
        self._recorder.record_if_due(self._flows)
        self._maintain_if_due()

    def poll(self) -> None:
        """Look for new input of each query, and start those that are off, where it is time to."""
        for each in self._queries:
            each.poll_if_due()
            each.start_if_due()

    def stop(self) -> None:
        """Stop all, and put what they did on record."""
        if not self._pipeline.is_alive:
            self._recorder.unrecorded["java"] = (
                "Java has ended (memory, or a signal): start this again"
            )
            return
        # From the end to the start of the chain, so that nothing waits for a reader.
        stop_after_batches(flow.run for flow in reversed(self._flows) if flow.run)
        self._recorder.record(self._flows)
        for each in self._queries:
            each.note_stop()

    def _maintain_if_due(self) -> None:
        """In the thread that admits late rows: of two that replace the same files, one fails."""
        config, runs = self._pipeline.config, self._pipeline.runs
        if time.monotonic() - self._maintained <= config.maintain.every.seconds:
            return
        try:
            found = maintenance.maintain(config, runs, self._layers, is_streaming=True)
        except Exception as error:
            self._notices.report(
                "maintain", f"the tables are not maintained: {describe_error(error)}"
            )
        else:
            self._notices.clear("maintain")
            for note in found.notes:
                self._pipeline.say(f"  {note}")
        self._maintained = time.monotonic()
