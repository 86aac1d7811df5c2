"""The plan of a run, made before Spark starts and without writing anything.

This module must not import PySpark: if there is nothing to do, Spark is not started at all.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from medallion.config.model import Config
from medallion.config.queries import Query, layers_in_use, queries, query_names, readers
from medallion.ingest.formats import SOURCE_TYPES, refuse_format_change
from medallion.ingest.schema import registry
from medallion.ingest.source import NO_SCAN, SourceScan
from medallion.inspect import balance
from medallion.inspect.edits import waiting_tables
from medallion.runtime.outcome import Outcome
from medallion.runtime.rename import carry_out_renames
from medallion.spark.settings import Workload
from medallion.state import journal, pending_work
from medallion.state.journal import Entry, Erasure, Rebuild, Replay
from medallion.state.pending_work import WorkReason
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables, objects
from medallion.storage.layout import LAYERS, layer_of
from medallion.storage.text import Reporter

NOTHING_IS_NEW = "nothing is new"
_CHECKS = {WorkReason.SETTINGS_CHANGED, WorkReason.NOT_CREATED}


@dataclass(frozen=True)
class QueryPlan:
    """The work of one query in a run.

    Attributes:
        query: its name.
        reasons: the reasons to run it, to check its settings, or to validate its table.
        scan: the scan of the source of a bronze query, to be enqueued by the query or without it.
        error: the error that prevented the plan; it occurs again when the query starts.
    """

    query: str
    reasons: tuple[WorkReason, ...] = ()
    scan: SourceScan = NO_SCAN
    error: Exception | None = None

    @property
    def should_run(self) -> bool:
        """Return whether the query has input, or a batch to complete or to record."""
        return bool(set(self.reasons) - _CHECKS - {WorkReason.NOT_VALIDATED})

    @property
    def should_prepare(self) -> bool:
        """Return whether `Flow.start` has to be called without a trigger if it need not run.

        Then wrong SQL is reported before there are rows, and readers find an empty table.
        """
        return bool(set(self.reasons) & _CHECKS)


@dataclass(frozen=True)
class Plan:
    """The work of a run.

    Attributes:
        queries: a plan for each query, in the order of the layers.
        unfinished: the interrupted commands that have to be completed first.
    """

    queries: tuple[QueryPlan, ...]
    unfinished: tuple[Entry[Any], ...]

    @property
    def is_idle(self) -> bool:
        """Return whether there is no work except to create empty tables."""
        reasons = {reason for query in self.queries for reason in query.reasons}
        has_work = reasons - {WorkReason.NOT_CREATED} or any(query.error for query in self.queries)
        return not (has_work or self.unfinished)

    @property
    def reusable(self) -> dict[str, QueryPlan]:
        """The plans by query that still hold when the run starts them.

        The tables of other queries may have new rows by then, and the completion of interrupted
        commands changes ledgers.
        """
        plans = {plan.query: plan for plan in self.queries if layer_of(plan.query) == "bronze"}
        return {} if self.unfinished else {k: v for k, v in plans.items() if not v.error}


def plan_run(config: Config, runs: RunRecords, is_complete: bool = True) -> Plan:
    """Plan a run of all layers; write nothing.

    Args:
        config: the configuration.
        runs: the recorded runs.
        is_complete: whether to plan all queries. Otherwise those that read tables are left out once
            there is work: they are planned when their inputs are written.
    """
    waiting = waiting_tables(config) if config.on_change == "wait" else {}
    waiting_queries = waiting.keys() | {query.name for query in readers(config, waiting)}
    settings, plans = pending_work.settings_digests(config), list[QueryPlan]()
    for name, source in config.sources.items():
        if source.rows_table in waiting_queries:
            del settings[f"bronze.{name}"]  # it gets the fields that silver names then
    for query in (each for each in queries(config) if each.name not in waiting_queries):
        if query.upstream and not is_complete and not Plan(tuple(plans), ()).is_idle:
            break
        try:
            plans.append(plan_query(config, runs, query, settings))
        except Exception as error:  # the other queries are planned
            plans.append(QueryPlan(query.name, error=error))
    return Plan(tuple(plans), tuple(journal.read_entries(config, Rebuild, Replay, Erasure)))


@objects.remembering()
def plan_query(
    config: Config, runs: RunRecords, query: Query, settings: Mapping[str, str]
) -> QueryPlan:
    """Plan one query of a run; write nothing.

    Args:
        runs: the recorded runs.
        query: the query to plan.
        settings: `pending_work.settings_digests` of the configuration; of others it checks nothing.

    Raises:
        UsageError: the source has another format than before.
        MedallionError: a table, a checkpoint or a broker cannot be read.
    """
    if not query.upstream:
        refuse_format_change(config, config.sources[query.source])
    reasons, scan = list(pending_work.unfinished_reasons(config, runs, query.name)), NO_SCAN
    if not reasons:  # an interrupted batch may have read what looks like new input
        if not query.upstream:
            source = config.sources[query.source]
            scan = SOURCE_TYPES[source.format].scan(config, source)
        tables = map(config.layout.table, query.upstream)
        if scan.has_work or any(pending_work.has_input(config, query.name, t) for t in tables):
            reasons.append(WorkReason.NEW_INPUT)
    digest = settings.get(query.name)
    if digest and pending_work.has_changed_settings(config, query.name, digest):
        reasons.append(WorkReason.SETTINGS_CHANGED)
    # An output has no table, and bronze no SQL that needs the columns of its source.
    has_table = all(delta_tables.table_exists(config.layout.table(t)) for t in query.targets[:1])
    sources = query.sources if query.upstream else ()
    has_columns = all(registry.has_known_columns(config, config.sources[name]) for name in sources)
    if has_columns and not has_table:
        reasons.append(WorkReason.NOT_CREATED)
    if pending_work.needs_validation(config, runs.run_state, query.name):
        reasons.append(WorkReason.NOT_VALIDATED)
    return QueryPlan(query.name, tuple(reasons), scan)


@contextmanager
def plan_under_lock(config: Config, command: str, report: Reporter) -> Iterator[Plan]:
    """Lock all layers, and yield the plan of a run, for which each source is scanned once.

    Args:
        command: the command, for the lock files.
        report: reports what was renamed or upgraded.

    Raises:
        UsageError: another process writes one of the layers.
    """
    with journal.lock_layers(config, layers_in_use(config), command, report):
        carry_out_renames(config, report)
        try:
            plan = plan_run(config, RunRecords(config.layout), is_complete=False)
        except Exception as error:  # which the run meets again and reports
            plan = Plan((QueryPlan("", error=error),), ())
        yield plan


def end_if_idle(config: Config, plan: Plan, report: Reporter) -> Outcome | None:
    """Return the outcome of a nightly run if there is nothing to do.

    Return None if Spark is needed, or on error: the full run reports it.

    Args:
        config: the configuration.
        plan: the plan of `plan_under_lock`, whose locks are held.
        report: reports that nothing is new.
    """
    if not plan.is_idle:
        return None
    with suppress(Exception):
        runs = RunRecords(config.layout)
        for query in plan.queries:
            query.scan.enqueue(runs.last_batch(query.query), report)
        if not (snapshot := balance.take_snapshot(config, runs)).problems:
            report(NOTHING_IS_NEW)
            return Outcome(snapshot=snapshot, is_idle=True)
    return None


@objects.remembering()
def estimate_workload(config: Config, plan: Plan | None = None) -> Workload:
    """Return the amount of work, which selects the settings of Java and Spark.

    Args:
        plan: the plan of a run; without one, tables may be rebuilt, which reads all rows of others.
    """
    known = {query.query: query.scan.backlog for query in (plan.queries if plan else ())}
    try:
        backlogs = [
            known.get(f"bronze.{name}") or SOURCE_TYPES[source.format].backlog(config, source)
            for name, source in config.sources.items()
        ]
        rows = sum(pending_work.unread_rows(config, query) or 0 for query in queries(config))
        is_rebuild = plan is None or (config.on_change == "apply" and waiting_tables(config))
        layers = LAYERS if is_rebuild or journal.rebuilds(config) else ("gold",)
        paths = map(config.layout.table, query_names(config, layers))  # gold may be rewritten
        rows += sum(map(delta_tables.row_count, paths))
    except Exception:  # the full run reports it
        return Workload.MUCH
    rows += sum(backlog.messages for backlog in backlogs)
    return Workload.for_input(sum(backlog.unpacked for backlog in backlogs), rows)
