"""One query of a stream that stays on: started, looked after, and started again when it stops."""

from __future__ import annotations

import time
from collections.abc import Sequence

from medallion.config.values import Duration
from medallion.errors import MedallionError, UnreachableError
from medallion.layers.flow import Flow
from medallion.runtime import refresh
from medallion.runtime.backoff import FIRST_PAUSE, Backoff
from medallion.runtime.notices import Notices
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.settler import Settler
from medallion.spark import errors, query
from medallion.spark.errors import SPARK_ERRORS, as_medallion_error, describe_error
from medallion.spark.query import Run
from medallion.storage import delta_tables
from medallion.storage.paths import layer_of

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
        settler: Settler,
    ) -> None:
        self.name, self.flow = flow.name, flow
        self._pipeline, self._layers = pipeline, layers
        self._trigger, self._every = trigger, Duration.of(trigger).seconds
        self._notices, self._settler = notices, settler
        self.starts = Backoff()  # when it is started again, and why it is not on
        self._polls = Backoff()  # when its source is asked for new input
        self._begun_at = time.monotonic()
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
            is_begun = not is_early and self._pipeline.begin(self.flow, how)
        except Exception as error:
            return self._cannot_start(error)
        if is_begun:
            self._begun_at = time.monotonic()
        else:
            self._goes_well()
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
                self._start_anew()
        except Exception as error:
            self._cannot_start(error)
        self.starts.wait(min(self._every, FIRST_PAUSE))  # else each look would ask it

    def _start_anew(self) -> None:
        self.flow, self._has_stopped = self._pipeline.flow(self.name), False
        self.start()

    def look(self) -> None:
        """Take up what has become of it since the last look."""
        run = self.flow.run
        if run is None or self._has_stopped:
            return
        run.collect()
        if run.is_active:
            self._take_up_recovery(run)
        else:
            self._take_up_end(run)

    def _take_up_end(self, run: Run) -> None:
        """Put on record what it did before it stopped by itself, and start it once more."""
        error = run.error()
        # Said where it only has to be started again; None where it has failed.
        restart = errors.restart_note(error) if error else "goes on by the rules that hold now"
        self._has_stopped = True
        run.end()
        # Twice for the same reason, and nothing done between them: that is a failure after all.
        is_in_vain = restart == self._restart_note and not run.has_done_batch
        run.needs_restart, self._restart_note = restart is not None and not is_in_vain, restart
        is_recorded = self._settler.settle([self.flow])
        if run.needs_restart and is_recorded:
            self._goes_well()
            self._pipeline.say(f"  {self.name} {restart}")
        else:
            why = error or self._settler.missing.get(self.name, "it has ended")
            self._fail(f"stopped: {why}", is_final=run.cannot_stop)
        if self.starts.is_due:
            self._start_anew()

    def _take_up_recovery(self, run: Run) -> None:
        """Tell that it is on again, once it has done a batch, or been on for a minute with none."""
        has_lasted = time.monotonic() - self._begun_at > _WELL_AFTER
        is_well = run.has_done_batch or (has_lasted and not run.is_processing)
        if self.starts.has_failed and is_well and self.name not in self._settler.missing:
            self._goes_well()
            self._pipeline.say(f"  {self.name} is on again")

    def take_up_stop(self) -> None:
        """Note whether anything was wrong with it when the stream was stopped."""
        run = self.flow.run
        error = run.error() if run else None
        if run and not error:
            self._take_up_recovery(run)
        elif error and not self.starts.failure and not errors.restart_note(error):
            self.starts.failed(f"{self.name}: {error}")

    def _goes_well(self) -> None:
        self.starts.went_well()
        self._notices.forget(self.name)

    def _cannot_start(self, error: Exception) -> MedallionError | None:
        if isinstance(error, UnreachableError):  # it waits for somebody else, and has not failed
            self.starts.failed(None)
            self._notices.say(self.name, f"{error} It is tried again.")
            return None
        failure = as_medallion_error(error, f"{self.name} cannot be started")
        if self._fail(f"cannot start: {self._without_name(failure)}"):
            self._settler.refused(self.name, failure)
        return failure

    def _fail(self, what: str, is_final: bool = False) -> bool:
        """Note and tell it; whether it is another failure than the last one."""
        self.starts.failed(f"{self.name} {what}", is_final)
        then = "only another process can go on with it" if is_final else "it is tried again"
        return self._notices.say(self.name, f"{self.name} {what}; {then}")

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
            self._polls.failed(None if is_known else told)  # a fault of ours: it is no good end
            self._notices.say(about, f"{told}; it is looked for again")
        else:
            if has_looked and self._polls.went_well():
                self._notices.forget(about)
        if has_looked:
            self._polls.wait(self._every)
