"""Records of queries in `ops.runs`; a failure to record one query affects no other."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.spark.errors import as_medallion_error
from medallion.state.runs import DONE, FAILED, QueryTotals, RunRecords, run_row
from medallion.storage import clock, delta_tables, locks, objects
from medallion.storage.text import Reporter

RECORD_SECONDS = 30.0  # between two records of a stream
RECORD_BATCHES = 50  # unrecorded batches of one query, at which a stream records earlier

# For each target of a flow: its columns in `ops.runs`.
_COLUMNS = (("rows_out", "table_version"), ("quarantined_rows", "quarantine_version"))


def record_flows(runs: RunRecords, flows: Sequence[Flow]) -> dict[str, MedallionError]:
    """Record all batches of flows that are not recorded yet, also those of an interrupted run.

    Args:
        runs: the records to add to.
        flows: started flows; others are left out.

    Returns:
        The errors by flow. The next run records what could not be recorded now.
    """
    rows, failures = [], dict[str, MedallionError]()
    flows = [flow for flow in flows if flow.run and not flow.run.is_recorded]
    locks.check_locks()
    for flow in flows:
        try:
            row = _row_if_active(runs, flow)
        except Exception as error:  # the other flows are recorded
            failures[flow.name] = as_medallion_error(error, f"{flow.name} cannot be recorded")
            row = flow_row(runs, flow, {}, str(failures[flow.name]))
        if row:
            rows.append(row)
    try:
        runs.write(rows)
    except Exception as error:
        failure = as_medallion_error(error, "batches cannot be recorded in ops.runs")
        return dict.fromkeys((flow.name for flow in flows), failure) | failures
    for flow in flows:
        if flow.name not in failures:
            flow.started_run.mark_recorded()
        try:
            # Only after recording: unrecorded rows may have to be counted again.
            flow.release(runs.last_batch(flow.name))
        except Exception as error:
            what = f"{flow.name}: its recorded input cannot be released"
            failures[flow.name] = as_medallion_error(error, what)
    return failures


def _row_if_active(runs: RunRecords, flow: Flow) -> dict[str, Any] | None:
    """Return the row of `ops.runs` for a flow, or None if it did nothing."""
    run = flow.started_run
    run.collect()
    since = runs.last_batch(flow.name)
    metrics = flow.finish_batches(since)
    is_active = run.batches or run.error() or metrics["last_batch"] > since
    # A row without a batch clears the failure of a query that now succeeded with nothing to do.
    is_recovered = runs.has_failed(flow.name) and not run.is_processing
    return flow_row(runs, flow, metrics) if is_active or is_recovered else None


def flow_row(
    runs: RunRecords,
    flow: Flow,
    metrics: Mapping[str, Any],
    failure: str | None = None,
    is_new: bool = False,
) -> dict[str, Any]:
    """Return the row of `ops.runs` for a flow, with the rows written according to the table logs.

    Args:
        runs: the recorded runs.
        flow: a started flow.
        metrics: the result of `Flow.finish_batches`.
        failure: why there are no metrics. The row then has no versions, so that the next run
            counts from the last recorded ones.
        is_new: whether its tables replace the recorded ones.
    """
    run = flow.started_run
    error = failure or run.error()
    row = run_row("query", flow.name, FAILED if error else DONE, run.started_at, run.seconds)
    row |= {"error": error, "batches": len(run.batches), "watermark": run.watermark(), **metrics}
    return row if failure else {**row, **_written_rows(runs, flow, is_new)}


@objects.remembering()
def _written_rows(runs: RunRecords, flow: Flow, is_new: bool) -> dict[str, int]:
    """Return the rows written to the flow's tables since its last record, and their versions."""
    recorded = (QueryTotals() if is_new else runs.run_state.totals_of(flow.name)).versions
    columns = {}
    for table, (rows, version), since in zip(flow.target_paths, _COLUMNS, recorded, strict=False):
        now = delta_tables.table_version(table)
        is_replaced = since > now
        # Only up to `now`: a running stream records later versions next time.
        columns[version] = now
        columns[rows] = delta_tables.rows_written(table, -1 if is_replaced else since, now)
    return columns


def record_failed_start(runs: RunRecords, name: str, error: MedallionError) -> list[MedallionError]:
    """Record that a query could not start.

    Args:
        runs: the records to add to.
        error: why it could not start.

    Returns:
        The error if it cannot be recorded.
    """
    try:
        runs.write([run_row("query", name, FAILED, clock.now_micros()) | {"error": str(error)}])
    except Exception as fault:
        return [as_medallion_error(fault, f"{name}: its failed start cannot be recorded")]
    return []


class Notices:
    """Messages of a long-running process, each reported until its topic has another one."""

    def __init__(self, report: Reporter) -> None:
        self._report = report
        self._reported: dict[str, str] = {}

    def report(self, topic: str, message: str) -> bool:
        """Report a message unless it was the topic's last one; return whether it is new."""
        is_new = self._reported.get(topic) != message
        if message and is_new:
            self._report(message)
        self._reported[topic] = message
        return is_new

    def clear(self, topic: str) -> None:
        """Forget the topic's last message, so that the same one is reported again."""
        self._reported.pop(topic, None)


class StreamRecorder:
    """Records the queries of a stream; failures are reported and retried.

    Attributes:
        unrecorded: the error by query, for queries whose last batches are not recorded.
    """

    def __init__(self, runs: RunRecords, notices: Notices) -> None:
        self._runs, self._notices = runs, notices
        self._recorded_at = -RECORD_SECONDS
        self.unrecorded: dict[str, str] = {}

    def record_if_due(self, flows: Sequence[Flow]) -> None:
        """Record every half minute, or sooner after many batches."""
        is_urgent = any(flow.run and len(flow.run.batches) >= RECORD_BATCHES for flow in flows)
        is_overdue = time.monotonic() - self._recorded_at > RECORD_SECONDS
        if is_overdue or (is_urgent and not self.unrecorded):
            self.record(flows)
            self._recorded_at = time.monotonic()

    def record(self, flows: Sequence[Flow]) -> bool:
        """Record what queries did; return whether that succeeded."""
        names = [flow.name for flow in flows if flow.run and not flow.run.is_recorded]
        errors = record_flows(self._runs, flows)
        for name in names:
            self._set_error(name, errors.get(name))
        return not errors

    def record_failed_start(self, name: str, error: MedallionError) -> None:
        """Record that a query could not start."""
        for fault in record_failed_start(self._runs, name, error):
            self._set_error(name, fault)
            self._notices.clear(name)  # so that the next failure is reported and recorded

    def _set_error(self, name: str, error: MedallionError | None) -> None:
        self.unrecorded.pop(name, None)
        if error:
            self.unrecorded[name] = str(error)
        # One message, even if no query can be recorded.
        self._notices.report("record", "; ".join(dict.fromkeys(self.unrecorded.values())))
