"""The overview of a lakehouse for `medallion report`; no JVM."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from medallion.config.model import Config
from medallion.config.queries import queries
from medallion.ingest.schema import registry
from medallion.ingest.schema.registry import SchemaVersion
from medallion.inspect import freshness
from medallion.inspect.audit import Audit, run_audit
from medallion.inspect.catalog import FirstRows, quarantined_by_rule, read_rows
from medallion.inspect.problems import PartReader, ProblemCode
from medallion.inspect.status import QueryStatus, query_statuses
from medallion.inspect.verdict import Observations, observe
from medallion.sql import engine, guard
from medallion.state import runs
from medallion.state.runs import RunState
from medallion.storage import clock, delta_tables, records
from medallion.storage.delta_tables import TableSize
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, SOURCE_FILE, SOURCE_POSITION

_GOLD_ROWS, _RUNS, _PERIODS, _EXAMPLES = 500, 300, 60, 3
_NO_SIZE = TableSize(0, 0, 0, None)
_UNITS = ("minute", 2 * 3600), ("hour", 3 * 86_400)
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Run:
    """One row of `ops.runs`, of a query or a gate; `started_at` in microseconds since 1970.

    The last two are of a gate, as JSON and as names separated by commas.
    """

    query: str
    state: str
    started_at: int
    seconds: float | None
    batches: int | None
    rows_in: int | None
    rows_out: int | None
    quarantined_rows: int | None
    duplicate_rows: int | None
    late_rows: int | None
    error: str | None
    failures: str | None = None
    accepted_expectations: str | None = None


Periods = Mapping[str, Sequence[tuple[datetime, str, int]]]
"""By name, the start of a minute, hour or day, `rows`, and how many rows."""


@dataclass(frozen=True)
class Overview:
    """The lakehouse at one moment, as `medallion report` shows it.

    Attributes:
        root: path of the lakehouse.
        created_at: microseconds since 1970.
        audit: the balance of every source.
        seen: what is wrong, with its remedy, and the records.
        arrivals: when the last rows of each source and gold table arrived, in microseconds.
        gold: the newest rows of each gold table and view.
        broken: number of quarantined rows by silver table and rule; a row that breaks two counts
            twice.
        gates: the newest validations, newest first.
        runs: the newest runs, newest first.
        unreadable: messages about parts that cannot be read.
        statuses: the status of each query.
        periods: the ingested rows of each source over time, oldest first.
        examples: quarantined rows by silver table, newest first, at most three of each rule.
        sizes: the size of each table.
        schemas: source, version and its changes of all schemas, newest first.
        edges: pairs of a source, table or output and what is computed from it.
    """

    root: str
    created_at: int
    audit: Audit
    seen: Observations = field(default_factory=lambda: Observations(RunState()))
    arrivals: Mapping[str, int | None] = field(default_factory=dict)
    gold: tuple[FirstRows, ...] = ()
    broken: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    gates: tuple[Run, ...] = ()
    runs: tuple[Run, ...] = ()
    unreadable: tuple[str, ...] = ()
    statuses: tuple[QueryStatus, ...] = ()
    periods: Periods = field(default_factory=dict)
    examples: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    sizes: Mapping[str, TableSize] = field(default_factory=dict)
    schemas: tuple[tuple[str, SchemaVersion, list[str]], ...] = ()
    edges: tuple[tuple[str, str], ...] = ()


def take_overview(config: Config, patience: float | None = None) -> Overview:
    """Read everything for the report; a table that cannot be read does not affect the others.

    Args:
        patience: seconds to wait beside a running stream until its batches are recorded; by
            default half a minute.
    """
    created_at, seen, parts = clock.now_micros(), observe(config), PartReader()
    audit = run_audit(config, patience=patience)
    parts.problems += (p for p in audit.problems if p.code is ProblemCode.UNREADABLE)
    tables = [*(f"gold.{name}" for name in config.gold), *config.views]
    gold = tuple(read_rows(config, table, _GOLD_ROWS, is_newest=True) for table in tables)
    for table in gold:
        if table.unreadable:
            parts.add(table.table, table.unreadable)

    def by_name(
        names: Iterable[str], read: Callable[[Config, str], list[_Value]]
    ) -> dict[str, list[_Value]]:
        return {name: parts.read_or([], name, partial(read, config, name)) for name in names}

    silver = [query.table for query in queries(config, ["silver"])]
    broken = by_name(silver, quarantined_by_rule)
    examples = by_name(silver, _quarantine_examples)
    schemas = by_name(config.sources, _schema_changes)
    changes = ((name, *change) for name, each in schemas.items() for change in each)
    newest_first = sorted(changes, key=lambda change: change[1].created_at, reverse=True)
    sizes = {
        name: parts.read_or(_NO_SIZE, name, partial(delta_tables.table_size, path))
        for name, path in sorted(config.layout.tables().items())
    }
    arrivals = partial(freshness.last_arrivals, config, seen.run_state)
    return Overview(
        root=str(config.layout.root),
        created_at=created_at,
        audit=audit,
        gold=gold,
        broken={source: dict(rows) for source, rows in broken.items()},
        seen=seen,
        arrivals=parts.read_or({}, "ops.files", arrivals),
        gates=tuple(parts.read_or([], "ops.runs", partial(_newest_runs, config, "gate"))),
        runs=tuple(parts.read_or([], "ops.runs", partial(_newest_runs, config, "query"))),
        statuses=tuple(query_statuses(config)),
        periods=by_name(config.sources, _periods),
        examples=examples,
        sizes=sizes,
        schemas=tuple(newest_first),
        edges=tuple(parts.read_or([], "lineage", partial(_edges, config))),
        unreadable=tuple(each.sentence for each in parts.problems),  # the last
    )


def _quarantine_examples(config: Config, name: str) -> list[Mapping[str, Any]]:
    """Return the newest rows of each rule, without null columns; `rule` is one of those broken."""
    table = f"quarantine.{name}"
    if not delta_tables.table_exists(config.layout.table(table)):
        return []
    newest = f"row_number() over (partition by rule order by {INGESTED_AT} desc) as _nth"
    by_rule = f"(select unnest({FAILED_RULES}) as rule, * from {table})"
    sql = f"select * from (select *, {newest} from {by_rule}) where _nth <= {_EXAMPLES} order by 1"
    result = engine.query(str(config.layout.root), sql)
    rows = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    has_lines = config.sources[config.root(name)].has_lines
    for row in rows:
        position = row.pop(SOURCE_POSITION, None)
        if has_lines and position:
            row[SOURCE_FILE] = f"{row[SOURCE_FILE]}, line {position:,}"
    return [{k: v for k, v in row.items() if v is not None and k != "_nth"} for row in rows]


def _periods(config: Config, name: str) -> list[tuple[datetime, str, int]]:
    """Return the ingested rows of the newest minutes, hours or days; a refresh ingests none."""
    table = config.layout.table(runs.TABLE)
    of_bronze = f"query = 'bronze.{name}' and kind = 'query' and state <> '{runs.REFRESHED}'"
    source = f"(select started_at as at, rows_in from rows where {of_bronze} and rows_in > 0)"
    span = "extract(epoch from max(at)) - extract(epoch from min(at))"
    seconds = [row[0] for row in delta_tables.select_rows(table, span, source=source)]
    if not seconds or seconds[0] is None:
        return []
    unit = next((unit for unit, longest in _UNITS if seconds[0] < longest), "day")
    columns = f"date_trunc('{unit}', at), 'rows', sum(rows_in)"
    return delta_tables.select_rows(table, columns, "group by 1 order by 1", source)[-_PERIODS:]


def _newest_runs(config: Config, kind: str) -> list[Run]:
    newest = f"where kind = '{kind}' order by number desc limit {_RUNS}"
    return records.read_records(config.layout.table(runs.TABLE), runs.RUNS, Run, newest)


def _schema_changes(config: Config, source: str) -> list[tuple[SchemaVersion, list[str]]]:
    versions = registry.read_versions(config.layout.schemas(source))
    return list(registry.changes_by_version(versions))


def _edges(config: Config) -> list[tuple[str, str]]:
    """Return which tables and outputs are computed from which sources and tables."""
    edges = []
    for query in queries(config):
        source = f"{config.sources[query.source].format}: {query.source}"
        targets = query.targets or (query.name,)
        edges += [(each, target) for each in query.upstream or (source,) for target in targets]
    sources = config.sources.items()
    edges += [(each.lookup.file, f"silver.{name}") for name, each in sources if each.lookup]
    for name, sql in config.views.items():
        parsed = guard.parse_read_only(sql)
        tables = sorted(parsed.tables & config.layout.tables().keys())
        views = (view for view in config.views if view in parsed.names and view != name)
        edges += [(each, name) for each in (*tables, *views)]
    return edges
