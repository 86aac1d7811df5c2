"""Reasons to start a query, found without Spark: in the ledger, checkpoints and table versions.

Starting a query that finds nothing takes seconds, and most queries of a nightly run find nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

from medallion import __version__
from medallion.config.document import read_text
from medallion.config.model import Config, GoldTable, SourceConfig
from medallion.config.queries import Query, QueryType, queries, query_names, readers
from medallion.config.tables import ChildTable
from medallion.errors import MedallionError, UsageError
from medallion.quality.suites import read_suite, suite_path
from medallion.spark import checkpoints
from medallion.spark.checkpoints import DeltaOffset
from medallion.spark.settings import DEFAULTS
from medallion.state.runs import BLOCKED, RunRecords, RunState
from medallion.storage import delta_log, delta_tables, objects
from medallion.storage.layout import LAYERS, PUBLISH, layer_of, short_name
from medallion.storage.paths import StoragePath


class WorkReason(StrEnum):
    """A reason to run or to check a query, or to validate its table."""

    NEW_INPUT = "new input"
    INTERRUPTED = "a batch was interrupted"
    NOT_RECORDED = "a batch is not recorded in ops.runs"
    FAILED = "the last run failed"
    LATE_ROWS = "rows came too late for a join"
    CORRUPT_CHECKPOINT = "the checkpoint is corrupt"
    MISSING_TABLE = "the table is missing"
    OUTDATED_TABLE = "a table is older than what was recorded"
    SETTINGS_CHANGED = "the configuration changed"
    NOT_CREATED = "the table is not created yet"
    NOT_VALIDATED = "rows are not validated yet"


_SETTINGS = "settings"
_OF_OLD_ROWS = (
    *("name", "renamed_from", "expect_every", "silver", "lookup", "cdc", "is_debezium"),
    *("event_time", "keys", "stream", "options"),
)
# Keys that decide which files bronze reads, and when: for later queries, they are all the same.
_OF_FILES: Mapping[str, Any] = {
    **dict.fromkeys(("pattern", "folders", "ignore", "allow_overwrites", "quiet_period")),
    **dict.fromkeys(("clean_source", "clean_after", "max_line_bytes")),
    **dict.fromkeys(("max_files_per_trigger", "max_bytes_per_trigger")),
}
# An output is blocked only by the gate of its gold table: other gates leave that table as it is.
_GATED_BY = {"gold": LAYERS, PUBLISH: ("gold",)}


def settings_digests(config: Config) -> dict[str, str]:
    """Return a digest by query: of the release, of Spark's settings, and of what decides its rows.

    These are the entries and suites of its tables, and of all tables before them. `expect_every`
    decides no row, and keys such as `pattern` only those of bronze.
    """
    common, digests = hashlib.sha256(__version__.encode()), dict[str, str]()
    for directory in (DEFAULTS, config.conf_dir / "spark"):
        for file in sorted(path for path in directory.rglob("*") if path.is_file()):
            common.update(str(file.relative_to(directory)).encode() + file.read_bytes())
    by_table = dict[str, str]()
    for query in queries(config):
        tables = (*query.upstream, *query.targets)
        rules = [read_text(suite_path(config.conf_dir, name)) for name in tables]
        upstream = [by_table[name] for name in query.upstream if name in by_table]
        digest = common.copy()
        digest.update(repr((query, _entry(config, query), rules, upstream)).encode())
        digests[query.name] = digest.hexdigest()
        if query.upstream:  # the entry of a source is also in the digests of its silver table
            by_table |= dict.fromkeys(query.targets, digests[query.name])
    return digests


def _entry(config: Config, query: Query) -> SourceConfig | ChildTable | GoldTable:
    name = query.name.split(".")[1]
    if query.layer in ("gold", PUBLISH):
        return replace(config.gold[name], expect_every=None)
    if query.type == QueryType.CHILD:
        return config.silver[name]
    source = replace(config.sources[query.source], expect_every=None)
    return replace(source, **_OF_FILES) if query.upstream else source


def record_settings(config: Config, query: str, settings: str) -> None:
    """Record the settings with which a query was started, or accepted without one."""
    document = {"of": settings, "new_rows": new_row_settings(config, query)}
    checkpoints.write_document(config.layout.checkpoint(query), _SETTINGS, document)


def has_changed_settings(config: Config, query: str, settings: str) -> bool:
    """Return whether the settings differ from those of the last start."""
    return recorded_settings(config, query).get("of") != settings


def recorded_settings(config: Config, query: str) -> Mapping[str, Any]:
    """Return what `record_settings` recorded at the last start; empty if there was none."""
    return checkpoints.read_document(config.layout.checkpoint(query), _SETTINGS) or {}


def new_row_settings(config: Config, query: str) -> dict[str, Any]:
    """Return the settings of a query that only new rows follow: expectations, and a source's keys.

    Those of Kafka are left out, because they may have a password.
    """
    suite = read_suite(config.conf_dir, query)
    values = {f"rule {each.name}": [each.type, each.kwargs, each.on_failure] for each in suite}
    if layer_of(query) == "bronze":
        source = config.sources[short_name(query)]
        values |= {key: value for key, value in vars(source).items() if key not in _OF_OLD_ROWS}
        values |= {f"options.{key}": value for key, value in vars(source.options).items()}
    return dict(json.loads(json.dumps(values, default=str)))


def unfinished_reasons(config: Config, runs: RunRecords, query: str) -> Iterator[WorkReason]:
    """Yield the reasons to start a query that do not depend on new input."""
    checkpoint = config.layout.checkpoint(query)
    committed = checkpoints.last_committed(checkpoint)
    is_published = layer_of(query) == PUBLISH  # it has no table
    has_table = is_published or delta_tables.table_exists(config.layout.table(query))
    if query.startswith("gold.") and runs.late_rows(query) > 0:
        yield WorkReason.LATE_ROWS
    if checkpoints.corrupt_part(checkpoint) is not None:
        yield WorkReason.CORRUPT_CHECKPOINT
    if committed >= 0 and not has_table:
        yield WorkReason.MISSING_TABLE
    if checkpoints.last_planned(checkpoint) > committed:
        yield WorkReason.INTERRUPTED
    if committed > runs.last_batch(query):
        yield WorkReason.NOT_RECORDED
    if runs.has_failed(query):
        yield WorkReason.FAILED
    if older_table_reason(config, runs, query) is not None:
        yield WorkReason.OUTDATED_TABLE


@objects.remembering()
def older_table_reason(config: Config, runs: RunRecords, query: str) -> str | None:
    """Return why a query must not start if one of its tables is older than was recorded.

    Such a table was restored without the others. Its next commits reuse versions that were read
    before, so readers would skip their rows. Only versions are compared: those of the tables, of
    the record, and of the checkpoints of the query and of the readers of its tables.

    Returns:
        The message; None if no table is older.
    """
    all_queries = queries(config)
    this = next(each for each in all_queries if each.name == query)
    checkpoint, table = config.layout.checkpoint, config.layout.table
    older = [name for name in this.upstream if has_read_more(checkpoint(query), table(name))]
    # Bronze and gold have one target, and silver its quarantine beside it.
    recorded = runs.run_state.totals_of(query).versions
    for target, version in zip(this.targets, recorded, strict=False):
        readers = (each.name for each in all_queries if target in each.upstream)
        if delta_tables.table_exists(table(target)) and (
            version > delta_tables.table_version(table(target))
            or any(has_read_more(checkpoint(reader), table(target)) for reader in readers)
        ):
            older.append(target)
    if not older:
        return None
    refresh = f", or rebuild {query} from the existing rows with medallion refresh {query}"
    return (
        f"{query} cannot start: {' and '.join(older)} is older than its records. Restore the "
        f"whole root from one backup{refresh if this.upstream else ''}."
    )


def lacks_entries(config: Config, source: str, rows_in_ledger: int) -> bool:
    """Return whether a source's ledger lacks rows that bronze has.

    An interrupted run leaves such a ledger, which bronze repairs when it starts. Until then, files
    and messages must not be compared with the ledger: they would be ingested again.
    """
    return rows_in_ledger < delta_tables.row_count(config.layout.table(f"bronze.{source}"))


def has_read_more(checkpoint: StoragePath, table: StoragePath) -> bool:
    """Return whether a query has read a higher version of a table than the table has."""
    if not delta_tables.table_exists(table):
        return False
    batches = checkpoints.last_planned(checkpoint), checkpoints.last_committed(checkpoint)
    try:
        read = max(_last_read(checkpoint, batch, table) for batch in batches)
    except MedallionError:  # corrupt offsets, which the query repairs or reports
        return False
    return read > delta_tables.table_version(table)


def _last_read(checkpoint: StoragePath, batch: int, table: StoragePath) -> int:
    """Return the last version of a table that a batch has read, or -1."""
    if checkpoints.reads_other_table(checkpoint, batch, table):
        return -1
    read = checkpoints.delta_offset(checkpoint, batch, table)
    return read.version - read.is_between_versions


def has_input(config: Config, query: str, upstream: StoragePath) -> bool:
    """Return whether a query must start for one of the tables that it reads.

    It must if the table has unread rows, was recreated, or lost unread commits. The query reports
    the last two.

    Args:
        query: the query that reads the table.
        upstream: the path of the table; for bronze, of its queue.
    """
    if _was_recreated(config, query, upstream):
        return True
    read = read_up_to(config, query, upstream)
    if 0 < read.version < delta_tables.earliest_version(upstream):
        return True  # unread commits are gone
    if _is_changing(config, upstream):  # deleted rows are changes too
        return not read.is_between_versions or delta_log.has_changes(upstream, read.version)
    return not read.is_between_versions or unread_rows_in(read, upstream) > 0


def _was_recreated(config: Config, query: str, upstream: StoragePath) -> bool:
    """Return whether the table was recreated since the query last read it."""
    checkpoint = config.layout.checkpoint(query)
    if query.startswith("bronze.") or not delta_tables.table_exists(upstream):
        return False
    committed = checkpoints.last_committed(checkpoint)
    return checkpoints.reads_other_table(checkpoint, committed, upstream)


def read_up_to(config: Config, query: str, upstream: StoragePath) -> DeltaOffset:
    """Return how far a query has read a table with its last batch.

    After the last file of a change feed's version V, Spark leaves the offset at V: count V as read.
    """
    checkpoint = config.layout.checkpoint(query)
    read = checkpoints.delta_offset(checkpoint, checkpoints.last_committed(checkpoint), upstream)
    is_within_version = not (read.is_between_versions or read.is_initial_snapshot)
    may_be_done = is_within_version and _is_changing(config, upstream)
    if may_be_done and not delta_log.has_more_changes(upstream, read.version, read.index + 1):
        return DeltaOffset(read.version + 1, -1)
    return read


def _is_changing(config: Config, table: StoragePath) -> bool:
    """Return whether the queries that read a table read its change feed."""
    return table in map(config.layout.table, config.changing_tables)


def unread_rows(config: Config, query: Query) -> int | None:
    """Return the number of rows that a query has not read; None for a bronze query."""
    if not query.upstream:
        return None
    upstream = [config.layout.table(name) for name in query.upstream]
    return sum(unread_rows_in(read_up_to(config, query.name, table), table) for table in upstream)


def version_read(checkpoint: StoragePath, batch: int, table: StoragePath) -> int | None:
    """Return a table's newest version if a query has read all of its rows by a batch, else None."""
    read = checkpoints.delta_offset(checkpoint, batch, table)
    now = delta_tables.table_version(table)
    return None if delta_tables.rows_written(table, after=read.version - 1, until=now) else now


def unread_rows_in(read: DeltaOffset, table: StoragePath) -> int:
    """Return the number of unread rows of a table, even if its first commits are gone."""
    if not delta_tables.table_exists(table):
        return 0
    if read.version == 0 and read.is_between_versions:
        return delta_tables.row_count(table)
    return delta_tables.rows_written(table, after=read.version - 1)


def blocked_gates(
    config: Config, run_state: RunState, layers: Sequence[str] = ("bronze", "silver")
) -> dict[str, str]:
    """Return the tables whose gate blocks their rows, with the names of the failed expectations.

    A table that is no longer configured, or no longer has a suite, blocks nothing.

    Args:
        run_state: the recorded gates.
        layers: the layers of the tables; the rows of the default ones are blocked from gold.
    """
    return {
        table: gate.failed
        for table in query_names(config, layers)
        if (gate := run_state.gates.get(table)) and gate.state == BLOCKED
        if read_suite(config.conf_dir, table)
    }


def blocking_gates(config: Config, run_state: RunState, query: str) -> dict[str, str]:
    """Return those of `blocked_gates` that block a query, because their rows would reach it."""
    gates = blocked_gates(config, run_state, _GATED_BY.get(layer_of(query), ()))
    return {
        table: failed
        for table, failed in gates.items()
        if query in {reader.name for reader in readers(config, [table])}
    }


def refuse_if_blocked(config: Config, run_state: RunState, query: str) -> None:
    """Raise MedallionError if gates block a query."""
    if gates := blocking_gates(config, run_state, query):
        failures = "; ".join(f"{failed} on {table}" for table, failed in gates.items())
        raise MedallionError(
            f"{query} is blocked: {failures} failed, and no later run passed. Run medallion "
            "nightly, with --accept EXPECTATION to accept the rows as they are."
        )


def refuse_if_all_blocked(config: Config, names: Sequence[str]) -> None:
    """Raise MedallionError if gates block all queries of these names."""
    run_state = RunRecords(config.layout).run_state
    if all(blocking_gates(config, run_state, name) for name in names):
        for name in names:
            refuse_if_blocked(config, run_state, name)


def refuse_missing_input(config: Config, name: str) -> None:
    """Raise UsageError if a table that a query reads does not exist yet."""
    for query in queries(config):
        for table in query.upstream if query.name == name else ():
            if not delta_tables.table_exists(config.layout.table(table)):
                layer = layer_of(table)
                raise UsageError(f"{table} does not exist yet: run medallion run {layer} first.")


def needs_validation(config: Config, run_state: RunState, table: str) -> bool:
    """Return whether a table has rows that its gate has not passed, blocked rows included."""
    if not suite_path(config.conf_dir, table).is_file():
        return False
    last = run_state.gates.get(table)
    if last is not None and last.state == BLOCKED:
        return True
    path = config.layout.table(table)
    since = validated_version(run_state, table, path)
    # A commit that maintenance has removed may have had rows: a stream has no gate in between.
    is_removed = delta_tables.earliest_version(path) > since + 1
    return is_removed or delta_tables.rows_written(path, since) > 0


def validated_version(run_state: RunState, table: str, path: StoragePath) -> int:
    """Return the version up to which a table has passed its gate; -1 if it was recreated since."""
    version = run_state.passed.get(table, 0)
    is_older = version > delta_tables.table_version(path)
    return -1 if is_older and delta_tables.table_exists(path) else version
