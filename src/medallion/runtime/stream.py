"""Continuous queries: supervised, restarted after failures, recorded, and stopped on a signal."""

import time
from collections.abc import Sequence
from math import inf

from medallion.config.values import Duration
from medallion.errors import ITEM_ERRORS, MedallionError, UnreachableError
from medallion.layers.flow import Flow
from medallion.runtime import maintenance, refresh
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.recorder import Notices, StreamRecorder
from medallion.spark import errors, jvm, query, signals
from medallion.spark.query import RunningQuery
from medallion.spark.watch import stop_after_batches
from medallion.storage import delta_tables
from medallion.storage.layout import layer_of

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 60.0  # seconds between retries
STEP_SECONDS = 0.5  # each step reads every query's last progress
_STABLE_AFTER = 60.0  # seconds after which a query without a batch counts as recovered


def run_stream(pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
    """Run the layers at an interval until SIGTERM or Ctrl-C.

    A query whose source has no schema yet starts once there is one.

    Args:
        pipeline: with the locks of the layers.
        layers: the layers to run.
        trigger: the interval, such as `4 seconds`.

    Raises:
        MedallionError: a gate blocks gold.
        StreamError: queries had failed when the stream stopped; each failure was printed before.
    """
    maintenance.apply_properties(pipeline.config, layers)
    with signals.defer_signals():
        stream = Stream(pipeline, layers, trigger)
        try:
            stream.start()
            pipeline.report(f"on: {', '.join(layers)} every {trigger}; Ctrl-C or SIGTERM ends it")
            while pipeline.is_alive:
                time.sleep(STEP_SECONDS)
                if signals.is_shutdown_requested():
                    break
                stream.step()
        except (Exception, KeyboardInterrupt):  # a signal interrupts a rebuild, too
            if pipeline.is_alive and not signals.is_shutdown_requested():
                raise
        finally:
            stream.stop()
    if stream.failures:
        raise errors.StreamError("; ".join(stream.failures.values()))
    pipeline.report("stopped: the next run resumes from here")


class Stream:
    """The running queries of some layers; each is supervised and recorded by itself.

    Attributes:
        pipeline: with the locks of the layers.
        layers: the layers to run.
        trigger: the interval of the queries.
        notices: reports each message once.
        recorder: records what the queries do.
    """

    def __init__(self, pipeline: Pipeline, layers: Sequence[str], trigger: str) -> None:
        self.pipeline, self.layers, self.trigger = pipeline, layers, trigger
        # In the order of the layers: silver creates its tables before gold reads them.
        self._queries: list[SupervisedQuery] = []
        self._maintained = time.monotonic()
        self.notices = Notices(pipeline.report)
        self.recorder = StreamRecorder(pipeline.runs, self.notices)

    @property
    def failures(self) -> dict[str, str]:
        """The reason by query, for those that are not running or not recorded."""
        reasons = {each.name: each.failure for each in self._queries}
        stopped = {name: reason for name, reason in reasons.items() if reason}
        return self.recorder.unrecorded | stopped

    @property
    def _flows(self) -> list[Flow]:
        return [each.flow for each in self._queries]

    def start(self) -> None:
        """Start all queries that need not wait for a schema; report those that cannot start.

        Raises:
            MedallionError: no query can start, or a gate blocks gold.
        """
        flows = [flow for layer in self.layers for flow in self.pipeline.flows(layer)]
        flows = self.pipeline.unblocked_flows(flows)
        self._queries = [SupervisedQuery(flow, self) for flow in flows]
        failures = list[MedallionError]()
        for each in self._queries:
            if not signals.is_shutdown_requested() and (failure := each.start()):
                failures.append(failure)
        if failures and not any(flow.run for flow in self._flows):
            raise failures[0]

    def step(self) -> None:
        """Check every query once: restart, record and report what is due."""
        for each in self._queries:
            each.check_run()
        self.poll()
        self.recorder.record_if_due(self._flows)
        self._maintain_if_due()

    def poll(self) -> None:
        """Poll the sources, and start stopped queries, if they are due."""
        for each in self._queries:
            each.poll_if_due()
            each.start_if_due()

    def stop(self) -> None:
        """Stop all queries after their batches, and record them."""
        if not self.pipeline.is_alive:
            self.recorder.unrecorded["java"] = jvm.HAS_ENDED
            return
        # The last layer first, so that no query waits for a reader.
        stop_after_batches(flow.run for flow in reversed(self._flows) if flow.run)
        self.recorder.record(self._flows)
        for each in self._queries:
            each.check_stop()

    def _maintain_if_due(self) -> None:
        # In this thread, which also inserts late rows: two writers that replace files conflict.
        config, runs = self.pipeline.config, self.pipeline.runs
        if time.monotonic() - self._maintained <= config.maintain.every.seconds:
            return
        try:
            done = maintenance.maintain(config, runs, self.layers, is_streaming=True)
        except Exception as error:
            reason = errors.describe_error(error)
            self.notices.report("maintain", f"the tables are not maintained: {reason}")
        else:
            self.notices.clear("maintain")
            for note in done.notes:
                self.pipeline.report(f"  {note}")
        self._maintained = time.monotonic()


class SupervisedQuery:
    """A query of a stream, restarted whenever it stops; each start uses a new `flow`.

    It waits until its source has a schema and its input tables exist.

    Attributes:
        failure: the reason why it is not running; None if all is well.
    """

    def __init__(self, flow: Flow, stream: Stream) -> None:
        """Supervise a query of a stream, which is not started yet."""
        self.name, self.flow = flow.name, flow
        self._pipeline, self._layers = stream.pipeline, stream.layers
        self._trigger, self._interval = stream.trigger, Duration.parse(stream.trigger).seconds
        self._notices, self._recorder = stream.notices, stream.recorder
        self.failure: str | None = None
        self._pause = 0.0  # seconds from the last failure to the next start; 0 if there is none
        self._next_start = self._next_poll = -inf
        self._started_at = time.monotonic()
        self._is_end_handled = False  # it stopped by itself, which is recorded and reported
        self._last_code: errors.FailureCode | None = None  # of its last stop

    @property
    def is_active(self) -> bool:
        """Return whether it is running."""
        return self.flow.run is not None and self.flow.run.is_active

    def start(self) -> MedallionError | None:
        """Start the query unless it has to wait; return the error if it cannot start.

        An error is reported, and the start is retried.
        """
        try:
            has_inputs = self._has_inputs()
            if has_inputs and "gold" in self._layers:  # a rebuild needs gold's lock
                refresh.rebuild_if_pending(self._pipeline, self.flow)
            trigger = query.trigger_options(self._trigger)
            is_started = has_inputs and self._pipeline.start_flow(self.flow, trigger)
        except UnreachableError as error:  # not a failure of this query
            self._delay_start()
            self._notices.report(self.name, f"{error} It is retried.")
            return None
        except Exception as error:
            failure = errors.as_medallion_error(error, f"{self.name} cannot be started")
            reason = str(failure).removeprefix(f"{self.name}: ")
            if self._report_failure(f"cannot start: {reason}"):
                self._recorder.record_failed_start(self.name, failure)
            return failure
        if is_started:
            self._started_at = time.monotonic()
        else:
            self._clear_failure()
        return None

    def _has_inputs(self) -> bool:
        """Return True unless an input table is missing that this stream creates."""
        creates_inputs = any(layer_of(name) in self._layers for name in self.flow.upstream)
        return not creates_inputs or all(map(delta_tables.table_exists, self.flow.upstream_paths))

    def start_if_due(self) -> None:
        """Start the query if it is stopped and need not wait."""
        is_off = self.flow.run is None or self._is_end_handled
        if not is_off or time.monotonic() < self._next_start:
            return
        # While it waits for a schema or a table, it is checked less often than at every step.
        wait = time.monotonic() + min(self._interval, FIRST_PAUSE)
        try:
            is_waiting = self.flow.unknown_schema_reason() is not None
        except ITEM_ERRORS:  # the start reports it
            is_waiting = False
        if not is_waiting:
            self._restart()
        self._next_start = max(self._next_start, wait)

    def _restart(self) -> None:
        self.flow, self._is_end_handled = self._pipeline.flow(self.name), False
        self.start()

    def check_run(self) -> None:
        """Handle what happened to the query since the last step."""
        run = self.flow.run
        if run is None or self._is_end_handled:
            return
        run.collect()
        if run.is_active:
            self._check_recovery(run)
        else:
            self._handle_end(run)

    def _handle_end(self, run: RunningQuery) -> None:
        """Record a query that stopped by itself, and restart it."""
        failure = run.failure()
        code = failure.code if failure else errors.FailureCode.RULES_CHANGED
        self._is_end_handled = True
        run.end()
        # The same code twice without a batch in between is a failure.
        is_repeated = code == self._last_code and not run.has_done_batch
        run.needs_restart, self._last_code = code in errors.RESTART_NOTES and not is_repeated, code
        is_recorded = self._recorder.record([self.flow])
        if run.needs_restart and is_recorded:
            self._clear_failure()
            self._pipeline.report(f"  {self.name} {errors.RESTART_NOTES[code]}")
        else:
            reason = failure or self._recorder.unrecorded.get(self.name, "it has ended")
            self._report_failure(f"stopped: {reason}")
        if time.monotonic() >= self._next_start:
            self._restart()

    def _check_recovery(self, run: RunningQuery) -> None:
        """Report that the query runs again, after a batch, or a minute without one."""
        has_lasted = time.monotonic() - self._started_at > _STABLE_AFTER
        is_well = run.has_done_batch or (has_lasted and not run.is_processing)
        if is_well and self.name not in self._recorder.unrecorded:
            if self.failure:
                self._pipeline.report(f"  {self.name} is running again")
            self._clear_failure()

    def check_stop(self) -> None:
        """Keep a failure of the query that occurred while the stream stopped."""
        run = self.flow.run
        failure = run.failure() if run else None
        if run and not failure:
            self._check_recovery(run)
        elif failure and failure.code not in errors.RESTART_NOTES:
            self.failure = self.failure or f"{self.name}: {failure}"

    def _clear_failure(self) -> None:
        self.failure, self._pause, self._next_start = None, 0.0, -inf
        self._notices.clear(self.name)

    def _report_failure(self, what: str) -> bool:
        """Keep and report a failure; return whether it differs from the last one."""
        self._delay_start()
        self.failure = f"{self.name} {what}"
        return self._notices.report(self.name, f"{self.failure}; it is retried")

    def _delay_start(self) -> None:
        """Retry at once after a first failure, then after pauses that double."""
        self._next_start = time.monotonic() + self._pause
        self._pause = min(max(2 * self._pause, FIRST_PAUSE), LONGEST_PAUSE)

    def poll_if_due(self) -> None:
        """Poll for new input; if a batch is running, the next step tries again."""
        if time.monotonic() < self._next_poll:
            return
        topic, has_polled = f"poll of {self.name}", True
        try:
            has_polled = self.flow.poll()
        except Exception as error:  # the other queries are polled
            reason = errors.describe_error(error).removeprefix(f"{self.name}: ")
            self._notices.report(topic, f"{self.name}: {reason}; polling is retried")
        else:
            self._notices.clear(topic)
        if has_polled:
            self._next_poll = time.monotonic() + self._interval
