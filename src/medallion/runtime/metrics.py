"""Metrics of a lakehouse for Prometheus, in a file that the node exporter reads; no JVM."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from medallion.config.model import Config
from medallion.errors import ITEM_ERRORS
from medallion.inspect import freshness
from medallion.inspect.problems import ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.inspect.verdict import Observations
from medallion.state.runs import FAILED
from medallion.storage.layout import short_name

# Name, description, label, and the values by the values of the label; without label by "".
Metric = tuple[str, str, str, Mapping[str, float | None]]


def write_metrics(
    config: Config, file: Path, statuses: Sequence[QueryStatus], seen: Observations
) -> None:
    """Write all metrics at once: readers see the old file or the new one.

    Args:
        file: the file, whose name should end with `.prom`.
        statuses: the queries.
        seen: the lakehouse, with its verdict.

    Raises:
        OSError: the file cannot be written.
    """
    registry = CollectorRegistry()
    for name, text, label, values in _metrics(config, statuses, seen):
        gauge = Gauge(f"medallion_{name}", text, [label] if label else [], registry=registry)
        for key, value in values.items():
            if value is not None:
                (gauge.labels(key) if label else gauge).set(value)
    write_to_textfile(str(file), registry)


def _metrics(
    config: Config, statuses: Sequence[QueryStatus], seen: Observations
) -> Iterator[Metric]:
    state, codes = seen.run_state, [each.code for each in seen.verdict.problems]
    yield "healthy", "1 if nothing is wrong but warnings", "", {"": seen.verdict.is_healthy}
    yield "problems", "problems", "code", {code.value: codes.count(code) for code in ProblemCode}
    yield "free_bytes", "free space of the root", "", {"": config.layout.root.free_bytes()}
    if nightly := state.nightly:
        started = {"": nightly.started_at / 1e6}
        yield "nightly_timestamp_seconds", "start of the last nightly run", "", started
        yield "nightly_duration_seconds", "its duration", "", {"": nightly.seconds}
    runs = {each.query: run for each in statuses if (run := state.last.get(each.query))}
    starts = {name: run.started_at / 1e6 for name, run in runs.items()}
    failed = {name: run.state == FAILED for name, run in runs.items()}
    waiting = {status.query: status.waiting_rows for status in statuses}
    yield "query_timestamp_seconds", "start of a query's last run", "query", starts
    yield "query_failed", "1 if a query's last run failed", "query", failed
    yield "query_rows_in", "rows read", "query", {n: run.rows_in for n, run in runs.items()}
    yield "query_rows_out", "rows written", "query", {n: run.rows_out for n, run in runs.items()}
    yield "query_waiting_rows", "rows that a query has not read", "query", waiting
    backlogs = {short_name(s.query): s.backlog for s in statuses if s.backlog}
    for name in ("files", "bytes", "messages"):
        values = {source: getattr(each, name) for source, each in backlogs.items()}
        yield f"source_{name}", f"{name} of a source that are not in bronze", "source", values
    arrivals = dict[str, int | None]()
    with suppress(*ITEM_ERRORS):  # the verdict has it
        arrivals = freshness.last_arrivals(config, state)
    seconds = {name: at and at / 1e6 for name, at in arrivals.items()}
    yield "arrival_timestamp_seconds", "arrival of the newest rows", "name", seconds
