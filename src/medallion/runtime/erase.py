"""Erasure: `medallion erase` removes the rows of a silver table everywhere.

Bronze is written again without the rows, ingested files that have one are deleted, and all tables
that follow are rebuilt from bronze, with new checkpoints. So neither a state, nor an aggregate, nor
a later refresh has anything of them. The journal has the erasure from the start, and each step can
be repeated.
"""

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from medallion.config.expressions import column_names, refuse_wrong_condition
from medallion.config.model import Config, SourceConfig
from medallion.config.queries import Query, layers_in_use, queries, readers
from medallion.config.tables import ToKafka
from medallion.errors import UsageError
from medallion.ingest.files import archive, content
from medallion.ingest.files.listing import current_info
from medallion.inspect.edits import refuse_waiting
from medallion.layers import recovery
from medallion.layers.bronze.flow import Bronze
from medallion.layers.definition import refuse_nondeterministic
from medallion.layers.silver import transform
from medallion.layers.silver.envelope import unwrapped
from medallion.runtime import maintenance, planner, refresh
from medallion.runtime.opening import open_pipeline
from medallion.runtime.pipeline import Pipeline
from medallion.spark import delta
from medallion.spark.errors import SPARK_ERRORS, as_medallion_error, one_line, raise_combined
from medallion.spark.session import session_of_command
from medallion.state import erasures, journal, ledger, pending_work, topics
from medallion.state.journal import Action, Command, Entry, ErasedOrigin, Erasure, Rebuild
from medallion.state.pending_work import WorkReason
from medallion.state.runs import NIGHTLY, RunRecords
from medallion.state.runs import TABLE as RUNS
from medallion.storage import clock, delta_tables
from medallion.storage.layout import PUBLISH, layer_of, short_name
from medallion.storage.table_specs import (
    PARTITION,
    ROW_COUNTS,
    SOURCE_FILE,
    SOURCE_MODIFIED_AT,
    TOPIC,
)
from medallion.storage.text import Reporter, counted

_ORIGIN = (SOURCE_FILE, SOURCE_MODIFIED_AT, TOPIC, PARTITION)
_WHERE = "--where"


@dataclass(frozen=True)
class Request:
    """The arguments of the command.

    Attributes:
        table: the silver table; None to complete an interrupted erasure.
        condition: SQL over its columns.
        cascade: whether all tables and files that have the rows may be changed.
        purge: whether older versions of the tables are removed at once.
        is_dry_run: whether the rows are only counted.
    """

    table: str | None = None
    condition: str | None = None
    cascade: bool = False
    purge: bool = False
    is_dry_run: bool = False


@dataclass(frozen=True)
class EraseResult:
    """The result: what was erased, or would be, and what may still have such rows."""

    erasure: Erasure
    is_dry_run: bool
    notes: tuple[str, ...]


def run_erase(
    config: Config, request: Request, report: Reporter, debug: bool = False
) -> EraseResult:
    """Erase rows, or complete an interrupted erasure if the request is empty.

    Raises:
        UsageError: the table or the condition is not valid, or something has to be done first.
        MedallionError: a table cannot be rebuilt; the next `medallion erase` continues.
    """
    if request != Request():
        journal.refuse_unfinished(config, Erasure)
    if not journal.read_entries(config, Erasure):
        _refuse_invalid(config, request)
    if request.is_dry_run:
        with session_of_command(config, "medallion erase", debug) as spark:
            return erase_rows(Pipeline(spark, config, Command.ERASE, report), request)
    layers = layers_in_use(config)
    with open_pipeline(config, Command.ERASE, layers, report, debug) as pipeline:
        return erase_rows(pipeline, request)


def erase_rows(pipeline: Pipeline, request: Request) -> EraseResult:
    """Erase rows, or complete an interrupted erasure.

    Args:
        pipeline: with the locks of all layers; a dry run needs none.
        request: the arguments, which are valid.
    """
    config = pipeline.config
    for unfinished in journal.read_entries(config, Erasure):
        pipeline.report(f"erase     {unfinished.subject}: resumes")
        return _complete(pipeline, unfinished)
    if not request.is_dry_run:
        _refuse_unread(config, str(request.table))
    erasure = _count_rows(pipeline, request)
    if request.is_dry_run or not (erasure.has_rows or erasure.purge):
        return EraseResult(erasure, request.is_dry_run, tuple(_notes(config, erasure)))
    journal.write_entry(config.layout, entry := Entry(erasure.table, erasure))
    return _complete(pipeline, entry)


def _refuse_invalid(config: Config, request: Request) -> None:
    """Raise UsageError if the arguments do not name rows of a silver table."""
    table, layout = request.table, config.layout
    if table is None or not request.condition:
        raise UsageError(
            "medallion erase needs a table and --where, such as medallion erase silver.orders "
            '--where "customer_id = 42". Without them it completes an interrupted erasure, and '
            "there is none."
        )
    names = [f"silver.{name}" for name in config.sources]
    if table not in names:
        raise UsageError(f"No rows can be erased from {table}; name one of {', '.join(names)}.")
    if not delta_tables.table_exists(layout.table(table)):
        raise UsageError(f"{table} does not exist yet: nothing was ingested.")
    refuse_waiting(config, _tables(config, table))
    columns = delta_tables.column_names(layout.table(table))
    refuse_wrong_condition(_WHERE, request.condition, columns, table)
    if not request.cascade and not request.is_dry_run:
        followers = (name for name in _tables(config, table) if name != table)
        raise UsageError(
            f"Rows erased from {table} alone would stay in {', '.join(followers)} and in the "
            "ingested files, and return with a refresh: add --cascade to erase them there too, "
            "which deletes each file that has such a row, or --dry-run to count and name them."
        )


def _tables(config: Config, table: str) -> list[str]:
    """Return the tables that have rows of a silver table, bronze first."""
    following = _following(config, short_name(table))
    return [f"bronze.{short_name(table)}", *(t for query in following for t in query.targets)]


def _refuse_unread(config: Config, table: str) -> None:
    """Raise UsageError if rows of the source are not in all tables yet."""
    journal.refuse_unfinished(config, Rebuild)
    source = short_name(table)
    runs, settings = RunRecords(config.layout), pending_work.settings_digests(config)
    for query in queries(config):
        if source in query.sources:
            reasons = {*planner.plan_query(config, runs, query, settings).reasons}
            if waiting := sorted(reasons - {WorkReason.NOT_CREATED}):
                raise UsageError(
                    f"No rows can be erased from {table} yet, because {query.name} has work to do "
                    f"({', '.join(waiting)}). Run medallion nightly first."
                )
            pending_work.refuse_if_blocked(config, runs.run_state, query.name)


def _count_rows(pipeline: Pipeline, request: Request) -> Erasure:
    """Count the rows to erase; write nothing."""
    config, table, condition = pipeline.config, str(request.table), str(request.condition)
    source, bronze = _source_and_rows(pipeline, short_name(table))
    try:
        with_matches = _with_matches(pipeline, source, condition, bronze)
        columns = [column for column in _ORIGIN if column in source.origin_columns]
        counts = _count_by_origin(with_matches(bronze), columns)
        _, invalid = _following(config, source.name)[0].targets
        silver = _rows(pipeline, table)
        if source.cdc:
            keys = _keys_of_matches(with_matches(bronze), source)
            erased = silver.join(keys, keys.columns, "left_semi")
        else:
            erased = silver.where(condition)
        quarantine = transform.with_bronze_columns(_rows(pipeline, invalid), bronze)
        rows = {
            f"bronze.{source.name}": sum(row["rows"] for row in counts),
            table: erased.count(),
            invalid: with_matches(quarantine).where(transform.MATCHES).count(),
        }
        origins = _origins(pipeline, source, counts)
    except AnalysisException as error:
        raise UsageError(f"{_WHERE}: {one_line(str(error))}.") from None
    except SPARK_ERRORS as error:
        raise as_medallion_error(error, f"{_WHERE} cannot be evaluated") from error
    rebuilt = tuple(t for t in _tables(config, table) if t not in rows)
    undecided = sum(row["undecided"] for row in counts)
    return Erasure(
        uuid.uuid4().hex, table, condition, request.purge, rows, undecided, tuple(origins), rebuilt
    )


def _source_and_rows(pipeline: Pipeline, name: str) -> tuple[SourceConfig, DataFrame]:
    """Return a source as silver's query starts with it, and the rows of its bronze table."""
    source, bronze = pipeline.config.sources[name], pipeline.flow(f"bronze.{name}").rows()
    return unwrapped(source, bronze), bronze


def _with_matches(
    pipeline: Pipeline, source: SourceConfig, condition: str, bronze: DataFrame
) -> Callable[[DataFrame], DataFrame]:
    """Return a function that adds the condition's value to rows of bronze.

    If one change record of a key matches, all do: else an older one would become the key's row.

    Raises:
        UsageError: the condition is not boolean, or does not depend on the row alone.
    """
    columns = {"event_time": source.event_time, "origin": source.silver_origin_columns}
    with_silver = partial(transform.with_matches, silver=source.silver, condition=condition)
    with_matches: Callable[..., DataFrame] = partial(with_silver, **columns)
    rows = with_matches(bronze)
    if dict(rows.dtypes)[transform.MATCHES] != "boolean":
        raise UsageError(f"{_WHERE} is not a condition: {condition!r} is neither true nor false.")
    refuse_nondeterministic(_WHERE, rows, condition)
    if not source.cdc:
        return with_matches
    current = _rows(pipeline, f"silver.{source.name}").where(condition).select(*source.keys)
    return partial(with_matches, keys=_keys_of_matches(rows, source).union(current).distinct())


def _keys_of_matches(rows: DataFrame, source: SourceConfig) -> DataFrame:
    keys = (transform.silver_column(k, source.silver[k], source.event_time) for k in source.keys)
    return rows.where(transform.MATCHES).select(*keys)


def _rows(pipeline: Pipeline, table: str) -> DataFrame:
    return delta.read_table(pipeline.spark, pipeline.config.layout.table(table))


def _count_by_origin(rows: DataFrame, keys: Sequence[str]) -> list[Row]:
    matches = F.col(transform.MATCHES)
    counts = (F.count_if(matches).alias("rows"), F.count_if(matches.isNull()).alias("undecided"))
    times = {SOURCE_MODIFIED_AT: F.unix_micros(SOURCE_MODIFIED_AT)}
    by_time = rows.withColumns(times) if SOURCE_MODIFIED_AT in keys else rows
    return by_time.groupBy(*keys).agg(*counts).collect()


def _origins(pipeline: Pipeline, source: SourceConfig, counts: Iterable[Row]) -> list[ErasedOrigin]:
    """Return what is done with each file or partition."""
    if TOPIC in source.origin_columns:
        rows = ((f"{row[TOPIC]}/{row[PARTITION]}", row["rows"]) for row in counts if row["rows"])
        return [ErasedOrigin(path, count, Action.KEPT) for path, count in rows]
    by_file = Counter[tuple[str, int]]()
    for row in counts:
        if row["rows"] and row[SOURCE_FILE]:  # rows of other writers have no file
            by_file[content.strip_member(row[SOURCE_FILE]), row[SOURCE_MODIFIED_AT]] += row["rows"]
    return archive.erased_origins(pipeline.config, source, by_file)


def _complete(pipeline: Pipeline, entry: Entry[Erasure]) -> EraseResult:
    """Run the remaining steps of an erasure."""
    config, erasure = pipeline.config, entry.arguments
    if "files" not in entry.done:  # an older version planned to rewrite files instead
        origins = (
            replace(each, action=Action.DELETED) if each.action is Action.REWRITTEN else each
            for each in erasure.origins
        )
        erasure = replace(erasure, origins=tuple(origins))
        entry = replace(entry, arguments=erasure)
    journal.run_steps(config.layout, entry, _steps(pipeline, erasure))
    return EraseResult(erasure, False, tuple(_notes(config, erasure)))


def _steps(pipeline: Pipeline, erasure: Erasure) -> Iterator[tuple[str, Callable[[], None]]]:
    yield "files", partial(_erase_files, pipeline, erasure)
    yield "bronze", partial(_erase_bronze, pipeline, erasure)
    for query in _following(pipeline.config, erasure.source):
        if query.targets:
            yield query.name, partial(_rebuild, query, pipeline, erasure)
    yield PUBLISH, partial(_publish, pipeline, erasure)
    yield "purge", partial(_purge_gold_and_records, pipeline, erasure)


def _erase_files(pipeline: Pipeline, erasure: Erasure) -> None:
    source = pipeline.config.sources[erasure.source]
    if not source.stream:
        archive.delete_files(pipeline.config, source, erasure.origins)


def _erase_bronze(pipeline: Pipeline, erasure: Erasure) -> None:
    """Write bronze again without the rows, and bring ledger and records up to date."""
    config, (source, bronze) = pipeline.config, _source_and_rows(pipeline, erasure.source)
    flow, started = cast(Bronze, pipeline.flow(f"bronze.{erasure.source}")), clock.now_micros()
    refresh.require_readers(config, flow.name)
    rows = _with_matches(pipeline, source, erasure.condition, bronze)(bronze)
    matches = F.coalesce(transform.MATCHES, F.lit(False))
    if not rows.where(matches).isEmpty():
        kept = rows.where(~matches).drop(transform.MATCHES)
        # Not DELETE: the table's log would have the condition.
        kept.write.format("delta").mode("overwrite").save(str(flow.target_paths[0]))
    if TOPIC in source.origin_columns:
        _count_messages_again(config, erasure)
    else:
        archive.count_rows_again(pipeline.config, source, erasure.origins)
    refresh.record_rewrite(pipeline, flow, started)
    erasures.record(config.layout, erasure, clock.now_micros())
    if erasure.purge:
        maintenance.purge(config.layout.table(flow.name))
    pipeline.report(f"erase     {flow.name}: {counted(erasure.rows[flow.name], 'row')} erased")


def _count_messages_again(config: Config, erasure: Erasure) -> None:
    """Write the rows that bronze still has of each partition into the ledger."""
    layout = config.layout
    what = f"{TOPIC}, {PARTITION}, {ROW_COUNTS}"
    rows = delta_tables.select_rows(layout.table(f"bronze.{erasure.source}"), what, "group by 1, 2")
    counts = {(topic, int(partition)): each for topic, partition, *each in rows}
    changed = []
    for key, progress in topics.read_progress(layout, erasure.source).items():
        total, corrupt, rescued = map(int, counts.get(key, (0, 0, 0)))
        changed.append(replace(progress, rows=total, corrupt_rows=corrupt, rescued_rows=rescued))
    topics.write_progress(layout, changed)


def _rebuild(query: Query, pipeline: Pipeline, erasure: Erasure) -> None:
    """Rebuild a table; purge it before a reader has its version, or after it is published."""
    refresh.rebuild_if_pending(pipeline, pipeline.flow(query.name))
    if erasure.purge and query.layer == "silver":
        _purge(pipeline.config, [query])


def _following(config: Config, source: str) -> list[Query]:
    """Return the queries that follow bronze; the first one reads it."""
    return readers(config, [f"bronze.{source}"])


def _purge(config: Config, tables: Iterable[Query]) -> None:
    for table in (config.layout.table(name) for query in tables for name in query.targets):
        if delta_tables.table_exists(table):
            maintenance.purge(table)


def _publish(pipeline: Pipeline, erasure: Erasure) -> None:
    """Publish the changes of the rebuilt gold tables."""
    outputs = (query for query in _following(pipeline.config, erasure.source) if not query.targets)
    flows = [pipeline.flow(query.name) for query in outputs]
    raise_combined(error for _, error in pipeline.run_flows(flows))


def _purge_gold_and_records(pipeline: Pipeline, erasure: Erasure) -> None:
    """Purge gold, publish it again, and remove pages and messages that may quote rows."""
    if not erasure.purge:
        return
    config, following = pipeline.config, _following(pipeline.config, erasure.source)
    _purge(config, [query for query in following if query.layer == "gold"])
    for query in following:
        if not query.targets:  # its checkpoint refers to older changes
            refresh.publish_all_again(pipeline, query.name)
        elif any(layer_of(table) == "gold" for table in query.upstream):  # and so does its
            recovery.drop_checkpoint(config.layout, query.name)
    config.layout.report.delete()
    names = [f"bronze.{erasure.source}", NIGHTLY, *(query.name for query in following)]
    pipeline.runs.forget_values(names)
    maintenance.purge(config.layout.table(RUNS))


def _notes(config: Config, erasure: Erasure) -> Iterator[str]:
    """Yield a message for everything that may still have such rows."""
    layout, source = config.layout, config.sources[erasure.source]
    for origin in erasure.origins:
        if origin.action is Action.KEPT:
            kept = "files of a backfill" if origin.location else "topics"
            rows = counted(origin.rows, "row")
            yield f"{origin.path} keeps {rows}: medallion does not change {kept}."
    if erasure.undecided:
        rows = f"{counted(erasure.undecided, 'row')} for which the condition is null"
        yield f"bronze.{source.name} keeps {rows}, such as malformed lines."
    erased = {*_tables(config, erasure.table)}
    columns = {
        table: {*map(str.lower, delta_tables.column_names(path))}
        for table, path in layout.tables().items()
        if table not in erased and layer_of(table) != "ops"
    }
    for name in dict.fromkeys(column_names(erasure.condition) or ()):
        if others := [table for table in columns if name.lower() in columns[table]]:
            yield f"Other tables with a column {name} are not changed: {', '.join(others)}."
    entries = () if source.stream else ledger.read_entries(layout, source.name)
    waiting = (e for e in ledger.newest_versions(entries).values() if not e.is_ingested)
    paths = (entry.moved_to or entry.path for entry in waiting)
    if unread := [path for path in paths if current_info(layout, path)]:
        yield f"{counted(len(unread), 'file')} not ingested, such as {min(unread)}: not searched."
    if source.lookup:
        yield f"The lookup table {source.lookup.file} is not changed."
    for other in config.sources.values():
        if other.lookup and layout.root / other.lookup.file == layout.table(erasure.table):
            yield f"silver.{other.name} keeps columns that it has looked up in {erasure.table}."
    for query in (query for query in _following(config, erasure.source) if not query.targets):
        _, table, output = query.name.split(".")
        to, name = config.gold[table].outputs[output], query.name
        if isinstance(to, ToKafka):
            yield f"{name}: older messages stay in the topic {to.topic}."
        elif not erasure.purge:
            remedy = f"medallion refresh {name} publishes the whole table again"
            yield f"{name} keeps what it has published: {remedy}."
    if not erasure.purge:
        time = config.maintain.retention.text
        yield f"Older versions of the tables stay for {time}: --purge removes them at once."
