"""What queries did, recorded in `ops.runs`; a query that fails to be recorded affects no other."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.layers.flow import Flow
from medallion.spark.errors import as_medallion_error
from medallion.state.runs import FAILED, QueryTotals, Runs
from medallion.storage import clock, delta_tables
from medallion.storage.text import Reporter


def record_flows(config: Config, runs: Runs, flows: Sequence[Flow]) -> dict[str, MedallionError]:
    """Account for every batch that is not on record yet, those of a run that was cut off included.

    Returns:
        Why some flows could not be settled, by their names: what they did is settled by the next
        run.
    """
    rows, failures = [], dict[str, MedallionError]()
    flows = [flow for flow in flows if flow.run and not flow.run.is_recorded]
    for flow in flows:
        try:
            row = _row_of_run(config, runs, flow)
        except Exception as error:  # whatever it is, the others are settled
            failures[flow.name] = as_medallion_error(error, f"{flow.name} cannot be put on record")
            row = flow_row(config, runs, flow, {}, str(failures[flow.name]))
        if row:
            rows.append(row)
    try:
        runs.write(rows)
    except Exception as error:
        failure = as_medallion_error(error, "what was done cannot be put on record")
        return dict.fromkeys((flow.name for flow in flows), failure) | failures
    for flow in flows:
        if flow.name not in failures:
            flow.started_run.mark_recorded()
        try:
            # Not before its rows are on record, for they might have to be counted again.
            flow.release(runs.last_batch(flow.name))
        except Exception as error:
            failures[flow.name] = as_medallion_error(
                error, f"{flow.name}: what it took in cannot be put away"
            )
    return failures


def _row_of_run(config: Config, runs: Runs, flow: Flow) -> dict[str, Any] | None:
    """The row of `ops.runs` for what a flow has done; None where it has done nothing."""
    flow.started_run.collect()
    since = runs.last_batch(flow.name)
    figures = flow.finish_batches(since)
    has_done = flow.started_run.batches or flow.started_run.error() or figures["last_batch"] > since
    # One that has failed, and has nothing to do now, is well again.
    if not has_done and (not runs.has_failed(flow.name) or flow.started_run.is_processing):
        return None
    return flow_row(config, runs, flow, figures)


def flow_row(
    config: Config,
    runs: Runs,
    flow: Flow,
    figures: Mapping[str, Any],
    failure: str | None = None,
    is_new: bool = False,
) -> dict[str, Any]:
    """The row of `ops.runs` for one query, with what its tables' logs say was written.

    Args:
        failure: why there are no figures. Then the row has no versions either, and the next run
            counts from where the last one on record ended.
        is_new: its tables are to replace those that the records tell of.
    """
    run = flow.started_run
    error = failure or run.error()
    row = {
        "kind": "query",
        "query": flow.name,
        "state": FAILED if error else "done",
        "error": error,
        "started_at": run.started_at,
        "seconds": round(run.seconds, 3),
        "batches": len(run.batches),
        "watermark": run.watermark(),
        **figures,
    }
    return row if failure else {**row, **_written(config, runs, flow, is_new)}


_COLUMNS = (("rows_out", "table_version"), ("quarantined_rows", "quarantine_version"))


def _written(config: Config, runs: Runs, flow: Flow, is_new: bool) -> dict[str, int]:
    """The rows that the flow's tables have got since its last run, and their versions now."""
    recorded = (QueryTotals() if is_new else runs.run_state.totals_of(flow.name)).versions
    found = {}
    for target, (rows, version), since in zip(flow.targets, _COLUMNS, recorded, strict=False):
        table = config.layout.table(target)
        found[version] = delta_tables.table_version(table)
        is_another = since > found[version]  # of one that was moved away
        # Later versions are of the next row, for a stream goes on meanwhile.
        found[rows] = delta_tables.rows_written(table, -1 if is_another else since, found[version])
    return found


def record_failed_start(runs: Runs, name: str, error: MedallionError) -> list[MedallionError]:
    """Put on record that a query could not start, which `status` then tells; why that could not be
    put on record, where it could not."""
    what = {"kind": "query", "query": name, "state": FAILED, "error": str(error)}
    try:
        runs.write([what | {"started_at": clock.now_micros()}])
    except Exception as fault:
        return [as_medallion_error(fault, f"{name}: that it cannot start cannot be put on record")]
    return []


RECORD_SECONDS = 30.0
RECORD_BATCHES = 50


class StreamRecorder:
    """Settles the queries of a stream; what cannot be put on record is told, and tried again.

    Attributes:
        unrecorded: by query, why what it did last is not on record.
    """

    def __init__(self, config: Config, runs: Runs, notices: Notices) -> None:
        self._config, self._runs, self._notices = config, runs, notices
        self._recorded_at = -RECORD_SECONDS
        self.unrecorded: dict[str, str] = {}

    def record_if_due(self, flows: Sequence[Flow]) -> None:
        """Settle every half minute; sooner where rows were late, or batches are many."""
        batches = [flow.run.batches for flow in flows if flow.run]
        # Late rows wait for nobody, and the offsets that settling reads are not kept for ever.
        is_due = any(batch.late for some in batches for batch in some.values())
        is_due = is_due or any(len(some) >= RECORD_BATCHES for some in batches)
        # What cannot be settled is not tried at every look.
        is_due = is_due and not self.unrecorded
        if is_due or time.monotonic() - self._recorded_at > RECORD_SECONDS:
            self.record(flows)
            self._recorded_at = time.monotonic()

    def record(self, flows: Sequence[Flow]) -> bool:
        """Put on record what queries did; whether that went well."""
        names = [flow.name for flow in flows if flow.run and not flow.run.is_recorded]
        try:
            errors = record_flows(self._config, self._runs, flows)
        except Exception as error:
            errors = dict.fromkeys(
                names, as_medallion_error(error, "what was done cannot be put on record")
            )
        for name in names:
            self._note(name, errors.get(name))
        return not errors

    def record_failed_start(self, name: str, error: MedallionError) -> None:
        """Put on record that a query could not start."""
        for fault in record_failed_start(self._runs, name, error):
            self._note(name, fault)
            self._notices.clear(name)  # so that the next try is told, and put on record

    def _note(self, name: str, error: MedallionError | None) -> None:
        self.unrecorded.pop(name, None)
        if error:
            self.unrecorded[name] = str(error)
        # Where nothing can be put on record, that is one thing to be told.
        self._notices.report("record", "; ".join(dict.fromkeys(self.unrecorded.values())))


class Notices:
    """Says a thing unless it is what was said last of the same matter."""

    def __init__(self, say: Reporter) -> None:
        self._say = say
        self._reported: dict[str, str] = {}

    def report(self, about: str, text: str) -> bool:
        """Say it, if it is new; whether it is."""
        is_new = self._reported.get(about) != text
        if text and is_new:
            self._say(text)
        self._reported[about] = text
        return is_new

    def clear(self, about: str) -> None:
        """That matter is settled: should it come again, it is new."""
        self._reported.pop(about, None)
