"""`medallion check`: all errors, and the work of the next nightly run.

Nothing is written, and Spark is not started: SQL is compared with the known columns by name only.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from medallion.config.document import config_error
from medallion.config.expressions import (
    column_names,
    did_you_mean,
    nearest_name,
    sql_problem,
    unknown_columns,
)
from medallion.config.model import Aggregate, Config, GoldTable, Join, SourceConfig, Statement
from medallion.config.queries import queries, query_names
from medallion.config.tables import ChildTable
from medallion.errors import (
    ITEM_ERRORS,
    ConfigError,
    InvalidProjectError,
    UsageError,
    error_message,
)
from medallion.ingest.files.discovery import Discovery
from medallion.ingest.files.listing import unread_file_warnings
from medallion.ingest.files.source_type import backlog_of
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.parsing.times import is_time_format
from medallion.ingest.schema import registry
from medallion.ingest.source import Backlog
from medallion.inspect import ledger_files
from medallion.inspect.edits import Edit, EditAction, find_edits, pending_renames
from medallion.inspect.ledger_files import Attention
from medallion.install.jars import class_path
from medallion.install.java import use_java
from medallion.quality.suites import BY_QUERY, Expectation, read_suite, suite_path, unused_suites
from medallion.runtime import planner
from medallion.spark import checkpoints, settings
from medallion.spark.settings import is_submitted
from medallion.sql import engine, guard
from medallion.state import pending_work
from medallion.state.pending_work import WorkReason
from medallion.state.runs import RunRecords
from medallion.storage.paths import layer_of
from medallion.storage.table_specs import (
    INGESTED_AT,
    SPAN,
    TIME_DIGITS,
    WINDOW,
    bronze_columns,
    column_name,
)
from medallion.storage.text import counted


@dataclass
class CheckResult:
    """The result of a check.

    Attributes:
        errors: errors in the configuration, a message each.
        attention: problems with the data, a message each.
        notes: facts that may be intended, a message each.
        files: files that need attention.
        backlogs: the waiting input, by source.
        queries: the reasons to start, by query.
        edits: what `medallion apply` would do.
    """

    errors: list[str] = field(default_factory=list)
    attention: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    files: Attention = field(default_factory=Attention)
    backlogs: dict[str, Backlog] = field(default_factory=dict)
    queries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)

    @property
    def exit_status(self) -> int:
        """Return 2 if the configuration is wrong, 1 if something needs the user, else 0."""
        if self.errors:
            return 2
        needs_apply = any(edit.action == EditAction.REBUILD for edit in self.edits)
        return 1 if needs_apply or self.attention or self.files.has_failures else 0

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect the error of a part of the check, and continue with the next."""
        try:
            yield
        except UsageError as error:
            self.errors.append(str(error))
        except ITEM_ERRORS as error:
            self.attention.append(error_message(error))

    def run_steps(self, config: Config, steps: Iterable[Callable[..., None]]) -> None:
        """Run parts of the check, each of which may fail; keep each message once."""
        for step in steps:
            with self.collecting():
                step(config, self)
        for messages in (self.errors, self.attention):
            messages[:] = dict.fromkeys(messages)


def run_check(config: Config, errors: Iterable[ConfigError] = ()) -> CheckResult:
    """Check the configuration, the landing directories and the tables, and plan the next run.

    Args:
        config: the valid part of the configuration.
        errors: the errors of the rest.
    """
    result = CheckResult(errors=[str(error) for error in errors])
    # The other steps need all sources: the files of an invalid one would count as unread.
    steps = () if result.errors else (_check_landing, _plan)
    result.run_steps(config, (*_PROJECT_CHECKS, *steps))
    if result.errors:
        result.queries = {}
    return result


def _check_view(config: Config, name: str) -> None:
    """Plan the SQL of a view, if its tables are there."""
    try:
        tables = guard.parse_read_only(config.views[name]).tables
        if tables and tables <= config.layout.tables().keys():
            engine.query(config.layout.root, f"EXPLAIN SELECT * FROM {name}", config.views)
    except UsageError as error:
        raise config_error(config.pipeline_file, f"views.{name}", f"is wrong: {error}") from None


def refuse_invalid_project(config: Config, errors: Iterable[ConfigError] = ()) -> None:
    """Find all that is wrong with a project and that does not need Spark, before a run starts it.

    Args:
        config: the valid part of the configuration.
        errors: the errors of the rest.

    Raises:
        InvalidProjectError: something is wrong.
    """
    result = CheckResult(errors=[str(error) for error in errors])
    result.run_steps(config, _PROJECT_CHECKS)
    if result.errors:
        raise InvalidProjectError(*result.errors)


def has_invalid_suites(config: Config) -> bool:
    """Return whether a suite cannot be read."""
    result = CheckResult()
    _check_suites(config, result)
    return bool(result.errors)


def _check_installation(config: Config, result: CheckResult) -> None:
    """Check Spark's settings, Java and jars; a Spark that runs already has them."""
    with result.collecting():
        settings.session_settings(config)
    if is_submitted():
        return
    with result.collecting():
        use_java()
    with result.collecting():
        class_path(settings.required_extras(config))


def _check_permissions(config: Config, result: CheckResult) -> None:
    layout = config.layout
    directories = (layout.root, *layout.internal_directories(), *layout.tables().values())
    result.errors += [
        f"{path}: this user may not write here. Grant it, or set MEDALLION_HOME to another folder."
        for path in directories
        if not path.is_writable()
    ]


def _check_suites(config: Config, result: CheckResult) -> None:
    for table in query_names(config):
        with result.collecting():
            read_suite(config.conf_dir, table)


def _check_sql(config: Config, result: CheckResult) -> None:
    """Check rules, and the columns that expressions and suites name."""
    from medallion.quality.rules import load_rules  # here: it imports PySpark

    for source in config.sources.values():
        with result.collecting():
            _check_silver(config, source, result)
    for child in config.silver.values():
        _check_child(config, child, result)
    for table in config.gold.values():
        _check_gold(config, table, result)
    for name in config.views:
        with result.collecting():
            _check_view(config, name)
    for name in query_names(config):
        with result.collecting():
            if layer_of(name) != "gold":
                load_rules(config.conf_dir, name)
            _check_suite(config, name, result)


def _check_silver(config: Config, source: SourceConfig, result: CheckResult) -> None:
    entry, table = f"sources.{source.name}", f"bronze.{source.name}"
    expressions, changes = {f"silver.{column}": sql for column, sql in source.silver.items()}, {}
    if cdc := source.cdc:
        names = "sequence_by", "apply_as_deletes", "apply_as_truncates"
        changes = {f"cdc.{name}": sql for name in names if (sql := getattr(cdc, name))}
    _check_syntax(config, result, entry, expressions | changes)
    columns = known_columns(config, source)
    if columns is None or source.is_debezium:  # it names columns of the row in the envelope
        return
    for hint in source.hints:
        column, dot, _ = hint.partition(".")
        is_format = is_time_format(source.hints[hint])
        if is_format and dot and column in columns and column not in source.hints:
            result.attention.append(
                f"sources.{source.name}.hints.{hint} is not a column: time formats are for whole "
                f"columns. Set hints for {hint} to string or long, and convert it in silver."
            )
    is_declared = source.schema is not None
    _check_names(config, result, entry, expressions, table, columns, is_declared)
    known = (*columns, *source.silver)
    _check_names(config, result, entry, changes, table, known, is_declared)


def _check_syntax(
    config: Config, result: CheckResult, entry: str, expressions: Mapping[str, str]
) -> None:
    for key, sql in expressions.items():
        if problem := sql_problem(sql):
            path = f"{entry}.{key}"
            result.errors.append(str(config_error(config.pipeline_file, path, problem)))


def _check_names(
    config: Config,
    result: CheckResult,
    entry: str,
    expressions: Mapping[str, str],
    tables: str,
    columns: Collection[str],
    is_declared: bool = True,
) -> None:
    """Report the names in SQL expressions that are no columns.

    Args:
        config: the configuration.
        result: gets the messages.
        entry: the path of the expressions' entry in pipeline.yaml.
        expressions: the SQL by its key in the entry.
        tables: the tables that it reads, for messages.
        columns: their columns.
        is_declared: False if the tables may get further columns.
    """
    known = {column.lower() for column in columns}
    for key, sql in expressions.items():
        for name in (name for name in column_names(sql) or () if name.lower() not in known):
            hint = did_you_mean(name, columns) or f"; there are {', '.join(columns)}"
            problem = f"reads {name}, which is not a column of {tables}{hint}"
            error = str(config_error(config.pipeline_file, f"{entry}.{key}", problem))
            if is_declared:
                result.errors.append(error)
            elif nearest_name(name, columns):
                result.attention.append(error)
            else:
                result.notes.append(f"{entry}.{key} reads {name}, which no row has had yet.")


def known_columns(config: Config, source: SourceConfig) -> Collection[str] | None:
    """Return the known columns of a bronze table; None if its schema is unknown."""
    versions = registry.read_versions(config.layout.schemas(source.name))
    if source.schema is None and not versions:
        return None
    names = [*(source.schema or ()), *source.hints, *(versions[-1].columns if versions else ())]
    names += [*source.partition_columns, *source.record_fields]
    names += [path.rpartition(".")[2] for path in source.record_fields]
    # A column has `_` in place of characters that Delta refuses.
    names += [column_name(name) for name in names]
    return bronze_columns(dict.fromkeys(names, "string"), source.origin_columns)


def _check_gold(config: Config, table: GoldTable, result: CheckResult) -> None:
    known = {name: _table_columns(config, name) for name in table.tables}
    columns = [column for each in known.values() for column in each or ()]
    sources = " and ".join(known)
    expressions: dict[str, str] = {}
    match table.definition:
        case Statement() as statement:
            _check_syntax(config, result, f"gold.{table.name}", {"sql": statement.sql})
            views = {name.replace(".", "_"): names for name, names in known.items()}
            for view, name in unknown_columns(statement.sql, views):
                read, names = view.replace("_", ".", 1), views[view] or ()
                _check_names(config, result, f"gold.{table.name}", {"sql": name}, read, names)
        case Aggregate() as aggregate:
            expressions = aggregate.expressions
            columns += WINDOW
        case Join() as join:
            expressions = join.expressions
            columns += [name.removeprefix("silver.") for name in known]
    _check_syntax(config, result, f"gold.{table.name}", expressions)
    _check_names(config, result, f"gold.{table.name}", expressions, sources, columns)


def _check_child(config: Config, table: ChildTable, result: CheckResult) -> None:
    added = ("item", "pos", "key") if table.explode else ()
    columns = [*_silver_columns(config, table.parent), *added]
    parent = f"silver.{table.parent}"
    _check_syntax(config, result, f"silver.{table.name}", table.expressions)
    _check_names(config, result, f"silver.{table.name}", table.expressions, parent, columns)


def _silver_columns(config: Config, name: str) -> tuple[str, ...]:
    if child := config.silver.get(name):
        origin = config.sources[config.root(name)].silver_origin_columns
        return (*child.columns, *origin, INGESTED_AT)
    source = config.silver_source(f"silver.{name}")
    assert source, f"silver.{name} is configured"
    is_history = source.cdc is not None and source.cdc.stored_as_scd_type == 2
    return (*source.silver_columns, INGESTED_AT, TIME_DIGITS, *(SPAN if is_history else ()))


def _check_suite(config: Config, table: str, result: CheckResult) -> None:
    columns = _table_columns(config, table) or ()
    known = {column.lower() for column in columns}
    for expectation in read_suite(config.conf_dir, table):
        for name in _expectation_columns(expectation):
            if known and name.lower() not in known:
                result.errors.append(
                    f'{suite_path(config.conf_dir, table)}: expectation "{expectation.name}" reads '
                    f"{name}, which is not a column of {table}{did_you_mean(name, columns)}."
                )


def _table_columns(config: Config, table: str) -> Collection[str] | None:
    """Return the columns of a table with a suite; None if they are not known."""
    layer, _, name = table.partition(".")
    if layer == "bronze":
        return known_columns(config, config.sources[name])
    if layer == "silver":
        return _silver_columns(config, name)
    match config.gold[name].definition:
        case Aggregate() as aggregate:
            return (*aggregate.groups, *aggregate.measure)
        case Join() as join:
            return tuple(join.columns)
    return None


def _expectation_columns(expectation: Expectation) -> list[str]:
    """Return the columns that an expectation names."""
    kwargs = expectation.kwargs
    if expectation.type == BY_QUERY:
        is_simple = expectation.on_failure == "quarantine"
        return (is_simple and column_names(str(kwargs.get("unexpected_rows_query")))) or []
    names = [kwargs.get(key) for key in ("column", "column_A", "column_B")]
    names += kwargs.get("column_list") or []
    return [name.partition(".")[0] for name in names if isinstance(name, str)]


_PROJECT_CHECKS = (_check_suites, _check_sql, _check_permissions, _check_installation)


def _check_landing(config: Config, result: CheckResult) -> None:
    """Find unused files and suites, sources without files, and unreadable directories."""
    result.files = ledger_files.find_attention(config)
    reported = {entry.path for entry in result.files.files}
    result.attention += unread_file_warnings(config)
    for suite in unused_suites(config.conf_dir, query_names(config)):
        result.notes.append(f"{suite} is not used: no table has that name.")
    for rename in pending_renames(config):
        result.notes.append(f"the next nightly run moves what {rename.old} has to {rename.new}.")
    for source in config.sources.values():
        with result.collecting():
            if source.stream:
                result.backlogs[source.name] = SOURCE_TYPES[source.format].backlog(config, source)
                continue
            entries = Discovery(config, source).entries()
            result.backlogs[source.name] = backlog_of(entries)
            for entry in entries:
                if entry.reason_code in ledger_files.FOLDERS:
                    result.attention.append(f"no files were read from {entry.path}: {entry.why}.")
                elif entry.reason_code in ledger_files.FOR_THE_USER and entry.path not in reported:
                    result.attention.append(f"{entry.path} waits: {entry.why}.")
            if not any(entry.reason_code not in ledger_files.FOLDERS for entry in entries):
                folder = config.layout.relative(config.layout.landing(source.name))
                result.notes.append(f"{source.name} has no files: nothing has landed in {folder}/.")


def _plan(config: Config, result: CheckResult) -> None:
    runs = RunRecords(config.layout)
    alerts = config.monitoring.on_failure
    if alerts.variable and not alerts.post:
        result.attention.append(f"on_failure.post: {alerts.variable} is not set: no alert is sent.")
    for name in query_names(config, ["gold"]):
        if gates := pending_work.blocking_gates(config, runs.run_state, name):
            result.attention.append(f"{name} is blocked: {pending_work.blocked_reason(gates)}")
    plan = planner.plan_run(config, runs)
    result.attention += [f"{entry}." for entry in plan.unfinished]
    for query in plan.queries:
        if query.error:
            is_usage = isinstance(query.error, UsageError)
            (result.errors if is_usage else result.attention).append(str(query.error))
        elif query.should_run or query.should_prepare:
            # The settings of a query that never ran cannot have changed.
            is_new = checkpoints.last_planned(config.layout.checkpoint(query.query)) < 0
            reasons = [r for r in query.reasons if not is_new or r != WorkReason.SETTINGS_CHANGED]
            if reasons:
                result.queries[query.query] = tuple(map(str, reasons))
    result.queries = _with_readers(config, result.queries)
    result.edits = find_edits(config)


def _with_readers(
    config: Config, started: Mapping[str, tuple[str, ...]]
) -> dict[str, tuple[str, ...]]:
    """Return the reasons by query, also of queries that read the new rows of others."""
    writing = {name for name, reasons in started.items() if WorkReason.NEW_INPUT in reasons}
    result = {}
    for query in queries(config):
        reasons = started.get(query.name, ())
        if WorkReason.NEW_INPUT in reasons and (rows := pending_work.unread_rows(config, query)):
            reasons = (*reasons, f"{counted(rows, 'row')} not read yet")
        if upstream := [table for table in query.upstream if table in writing]:
            writing.add(query.name)
            reasons = (*reasons, f"new rows of {' and '.join(upstream)}")
        if reasons:
            result[query.name] = reasons
    return result
