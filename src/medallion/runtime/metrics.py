"""Metrics of a lakehouse for Prometheus, in a file that the node exporter reads; no JVM."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from medallion.config.model import Config
from medallion.errors import ITEM_ERRORS
from medallion.inspect import freshness
from medallion.inspect.problems import ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.inspect.verdict import Observations
from medallion.state.runs import FAILED

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
    codes, nightly = [each.code for each in seen.verdict.problems], seen.run_state.nightly
    metrics: list[Metric] = [
        ("healthy", "1 if nothing is wrong but warnings", "", {"": seen.verdict.is_healthy}),
        ("problems", "problems", "code", {code.value: codes.count(code) for code in ProblemCode}),
        ("free_bytes", "free space of the root", "", {"": config.layout.root.free_bytes()}),
        *_query_metrics(statuses, seen),
        *_source_metrics(config, statuses, seen),
    ]
    if nightly:
        started = {"": nightly.started_at / 1e6}
        metrics += [
            ("nightly_timestamp_seconds", "start of the last nightly run", "", started),
            ("nightly_duration_seconds", "its duration", "", {"": nightly.seconds}),
        ]
    registry = CollectorRegistry()
    for name, text, label, values in metrics:
        gauge = Gauge(f"medallion_{name}", text, [label] if label else [], registry=registry)
        for key, value in values.items():
            if value is not None:
                (gauge.labels(key) if label else gauge).set(value)
    write_to_textfile(str(file), registry)


def _query_metrics(statuses: Sequence[QueryStatus], seen: Observations) -> Iterator[Metric]:
    names = [status.query for status in statuses]
    runs = {name: seen.run_state.last[name] for name in names if name in seen.run_state.last}
    starts = {name: run.started_at / 1e6 for name, run in runs.items()}
    failed = {name: run.state == FAILED for name, run in runs.items()}
    waiting = {status.query: status.waiting_rows for status in statuses}
    yield "query_timestamp_seconds", "start of a query's last run", "query", starts
    yield "query_failed", "1 if a query's last run failed", "query", failed
    yield "query_rows_in", "rows read", "query", {n: run.rows_in for n, run in runs.items()}
    yield "query_rows_out", "rows written", "query", {n: run.rows_out for n, run in runs.items()}
    yield "query_waiting_rows", "rows that a query has not read", "query", waiting


def _source_metrics(
    config: Config, statuses: Sequence[QueryStatus], seen: Observations
) -> Iterator[Metric]:
    backlogs = {s.query.partition(".")[2]: s.backlog for s in statuses if s.backlog}
    for name in ("files", "bytes", "messages"):
        values = {source: getattr(each, name) for source, each in backlogs.items()}
        yield f"source_{name}", f"{name} of a source that are not in bronze", "source", values
    try:
        arrivals = freshness.last_arrivals(config, seen.run_state)
    except ITEM_ERRORS:  # the verdict has it
        arrivals = {}
    seconds = {name: at and at / 1e6 for name, at in arrivals.items()}
    yield "arrival_timestamp_seconds", "arrival of the newest rows", "name", seconds
