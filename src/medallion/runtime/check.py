"""`medallion check`: all errors, and the work of the next nightly run.

Nothing is written, and Spark is not started: SQL is compared with the known columns by name only.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from medallion.config import expressions
from medallion.config.document import config_error
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
from medallion.ingest.files.source_type import backlog_of
from medallion.ingest.formats import SOURCE_TYPES
from medallion.ingest.parsing.times import is_time_format
from medallion.ingest.schema import registry
from medallion.ingest.source import Backlog
from medallion.inspect import ledger_files
from medallion.inspect.edits import Edit, edited_problems, find_edits, pending_renames
from medallion.inspect.ledger_files import Attention
from medallion.inspect.problems import PartReader, Problem, ProblemCode
from medallion.inspect.verdict import blocked_problems, unfinished_problems, unread_problems
from medallion.install.jars import class_path
from medallion.install.java import use_java
from medallion.quality.suites import BY_QUERY, Expectation, read_suite, suite_path, unused_suites
from medallion.runtime import planner
from medallion.spark import checkpoints, settings
from medallion.spark.settings import is_submitted
from medallion.sql import engine, guard
from medallion.state import journal, pending_work
from medallion.state.ledger import ReasonCode
from medallion.state.pending_work import WorkReason
from medallion.state.runs import RunRecords
from medallion.storage.layout import layer_of, short_name
from medallion.storage.paths import ObjectPath
from medallion.storage.table_specs import INGESTED_AT, SPAN, WINDOW, bronze_columns, column_name
from medallion.storage.text import counted


@dataclass
class CheckResult(PartReader):
    """The result of a check.

    Attributes:
        backlogs: the waiting input, by source.
        queries: the reasons to start, by query.
        edits: what `medallion apply` would do.
    """

    backlogs: dict[str, Backlog] = field(default_factory=dict)
    queries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    edits: list[Edit] = field(default_factory=list)

    def lines(self, exit_status: int) -> list[str]:
        """Return a line for each problem with an exit status; 0 is that of notes.

        The plan has the tables of the edit.
        """
        lines = []
        for each in (each for each in self.problems if _exit_status(each) == exit_status):
            said = each.detail if each.code is ProblemCode.EDITED else each.sentence
            lines.append("; ".join(filter(None, (said, each.remedy))))
        return lines

    @property
    def exit_status(self) -> int:
        """Return 2 if the configuration is wrong, 1 if the data needs attention, else 0."""
        return max(map(_exit_status, self.problems), default=0)

    @property
    def errors(self) -> list[str]:
        """Return the messages about the configuration; a table to rebuild is none."""
        errors = (each for each in self.problems if each.code is ProblemCode.CONFIGURATION)
        return [each.sentence for each in errors]

    def add_error(self, message: str, subject: str = "pipeline.yaml") -> None:
        """Add an error of the configuration."""
        self.problems.append(Problem(ProblemCode.CONFIGURATION, subject, message))

    def attempt(self, subject: str, step: Callable[..., object], *arguments: Any) -> None:
        """Run a part of the check, collect its error, and continue with the next."""
        try:
            step(*arguments)
        except UsageError as error:
            self.add_error(str(error), subject)
        except ITEM_ERRORS as error:
            self.add(subject, error_message(error))


def _exit_status(problem: Problem) -> int:
    if problem.code is ProblemCode.CONFIGURATION:
        return 2
    return 0 if problem.code is ProblemCode.NOTE or problem.is_reported else 1


def run_check(config: Config, errors: Iterable[ConfigError] = ()) -> CheckResult:
    """Check the configuration, the landing directories and the tables, and plan the next run.

    Args:
        config: the valid part of the configuration.
        errors: the errors of the rest.
    """
    # The other steps need all sources: the files of an invalid one would count as unread.
    steps = () if errors else (_check_landing, _plan)
    result = _check_project(config, errors, steps)
    if result.errors:
        result.queries = {}
    return result


def _check_project(
    config: Config, errors: Iterable[ConfigError], more: Iterable[Callable[..., None]] = ()
) -> CheckResult:
    result = CheckResult()
    for error in errors:
        result.add_error(str(error), error.key)
    for step in (*_PROJECT_CHECKS, *more):
        result.attempt("project", step, config, result)
    result.problems = list({each.sentence: each for each in result.problems}.values())
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
    if found := _check_project(config, errors).errors:
        raise InvalidProjectError(*found)


def has_invalid_suites(config: Config) -> bool:
    """Return whether a suite cannot be read."""
    result = CheckResult()
    _check_suites(config, result)
    return bool(result.errors)


def _check_installation(config: Config, result: CheckResult) -> None:
    """Check Spark's settings, Java and jars; a Spark that runs already has them."""
    result.attempt("Spark", settings.session_settings, config)
    if not is_submitted():
        result.attempt("Java", use_java)
        result.attempt("jars", lambda: class_path(settings.required_extras(config)))


def _check_permissions(config: Config, result: CheckResult) -> None:
    layout = config.layout
    if isinstance(layout.root, ObjectPath):  # only a write can tell
        result.attempt("root", journal.refuse_nested_root, layout)
        return
    directories = (layout.root, *layout.internal_directories(), *layout.tables().values())
    remedy = "Grant it, or set MEDALLION_HOME to another folder."
    for path in (path for path in directories if not path.is_writable()):
        result.add_error(f"{path}: this user may not write here. {remedy}", str(path))


def _check_suites(config: Config, result: CheckResult) -> None:
    for table in query_names(config):
        result.attempt(table, read_suite, config.conf_dir, table)


def _check_sql(config: Config, result: CheckResult) -> None:
    """Check rules, and the columns that expressions and suites name."""
    from medallion.quality.rules import load_rules  # here: it imports PySpark

    for source in config.sources.values():
        result.attempt(source.name, _check_silver, config, source, result)
    for child in config.silver.values():
        _check_child(config, child, result)
    for table in config.gold.values():
        _check_gold(config, table, result)
    for name in config.views:
        result.attempt(name, _check_view, config, name)
    for name in query_names(config):
        if layer_of(name) != "gold":
            result.attempt(name, load_rules, config.conf_dir, name)
        result.attempt(name, _check_suite, config, name, result)


def _check_silver(config: Config, source: SourceConfig, result: CheckResult) -> None:
    entry, table = f"sources.{source.name}", f"bronze.{source.name}"
    # A Debezium source names columns of the row in the envelope.
    columns = None if source.is_debezium else known_columns(config, source)
    for hint, type_ in source.hints.items():
        column, dot, _ = hint.partition(".")
        is_of_field = dot and column in (columns or ()) and column not in source.hints
        if is_of_field and is_time_format(type_):
            sentence = (
                f"{entry}.hints.{hint} is not a column: time formats are for whole columns. Set "
                f"hints for {hint} to string or long, and convert it in silver."
            )
            result.problems.append(Problem(ProblemCode.DOUBTFUL, f"{entry}.hints", sentence))
    changes = {}
    if cdc := source.cdc:
        names = "sequence_by", "apply_as_deletes", "apply_as_truncates"
        changes = {f"cdc.{name}": sql for name in names if (sql := getattr(cdc, name))}
    inferred = source if source.schema is None else None
    silver = {f"silver.{column}": sql for column, sql in source.silver.items()}
    _check_expressions(config, result, entry, silver, table, columns, inferred)
    known = None if columns is None else (*columns, *source.silver)
    _check_expressions(config, result, entry, changes, table, known, inferred)
    own = {name.lower(): sql for name, sql in source.silver.items()}
    hidden = own.keys() & {name.lower() for name in columns or ()}
    for key, sql in changes.items():
        for name in hidden & {name.lower() for name in expressions.column_names(sql) or ()}:
            if name not in map(str.lower, expressions.column_names(own[name]) or [name]):
                path, advice = f"{entry}.{key}", "Give silver's column another name to read that"
                sentence = f"{path} reads {name} of silver, which is {own[name]}, and not {name} of"
                problem = Problem(ProblemCode.DOUBTFUL, path, f"{sentence} {table}. {advice}.")
                result.problems.append(problem)


def _check_expressions(
    config: Config,
    result: CheckResult,
    entry: str,
    sql_by_key: Mapping[str, str],
    tables: str,
    columns: Collection[str] | None,
    inferred: SourceConfig | None = None,
) -> None:
    """Report wrong SQL expressions, and names in them that are no columns.

    Args:
        result: gets the messages.
        entry: the path of the expressions' entry in pipeline.yaml.
        sql_by_key: the SQL by its key in the entry.
        tables: the tables that it reads, for messages.
        columns: their columns; None if they are unknown.
        inferred: the source, if it may get further fields: then only a misspelled one is an error.
    """
    for key, sql in sql_by_key.items():
        path = f"{entry}.{key}"
        if problem := expressions.sql_problem(sql):
            result.add_error(str(config_error(config.pipeline_file, path, problem)), path)
        unknown = {} if columns is None else expressions.unknown_names(sql, columns, tables)
        for name, wrong in unknown.items():
            if inferred and not expressions.nearest_name(name, columns or ()):
                result.note(path, f"{path} reads {name}, which no row has had yet.")
                continue
            code = ProblemCode.CONFIGURATION
            if inferred and _is_misspelled(config, inferred, name, sql_by_key, columns or ()):
                wrong += "; a field that is new needs a type in hints"
            elif inferred:
                code = ProblemCode.DOUBTFUL
            error = str(config_error(config.pipeline_file, path, wrong))
            result.problems.append(Problem(code, path, error))


def known_columns(config: Config, source: SourceConfig) -> Collection[str] | None:
    """Return the known columns of a bronze table; None if its schema is unknown."""
    version = registry.newest_version(config.layout.schemas(source.name))
    if source.schema is None and not version.version:
        return None
    names = [*(source.schema or ()), *source.hints, *version.columns]
    names += [*source.partition_columns, *source.record_fields]
    # A column has `_` in place of characters that Delta refuses.
    names += [column_name(name) for name in names]
    return bronze_columns(dict.fromkeys(names, "string"), source.origin_columns)


def _is_misspelled(
    config: Config,
    source: SourceConfig,
    name: str,
    sql_by_key: Mapping[str, str],
    columns: Collection[str],
) -> bool:
    """Return whether an unknown name is no new field, but one that is spelled much like it.

    No expression reads that one, or an expression does not any more that did at its first run.
    """
    definition = checkpoints.read_document(
        config.layout.checkpoint(source.rows_table), "definition"
    )
    then = {key.removesuffix(" as"): sql for key, sql in (definition or {}).items()}
    read, dropped = set[str](), set[str]()
    for key, sql in sql_by_key.items():
        before = expressions.column_names(str(then.get(key.removeprefix("silver.")) or "")) or ()
        names = {each.lower() for each in expressions.column_names(sql) or ()}
        dropped |= {each.lower() for each in before} - names
        read |= names
    unread = [each for each in columns if each.lower() not in read - dropped]
    nearest, digits = expressions.nearest_name(name, unread, cutoff=0.8) or "", re.compile(r"\d")
    # `amount2` may come beside `amount`.
    return bool(nearest) and digits.sub("", nearest).lower() != digits.sub("", name).lower()


def _check_gold(config: Config, table: GoldTable, result: CheckResult) -> None:
    known = {name: _table_columns(config, name) for name in table.tables}
    columns = [column for each in known.values() for column in each or ()]
    entry, sources = f"gold.{table.name}", " and ".join(known)
    sql_by_key: dict[str, str] = {}
    match table.definition:
        case Statement() as statement:
            _check_expressions(config, result, entry, {"sql": statement.sql}, sources, None)
        case Aggregate() as aggregate:
            sql_by_key = aggregate.expressions
            columns += WINDOW
        case Join() as join:
            sql_by_key = join.expressions
            columns += map(short_name, known)
    _check_expressions(config, result, entry, sql_by_key, sources, columns)


def _check_child(config: Config, table: ChildTable, result: CheckResult) -> None:
    added = ("item", "pos", "key") if table.explode else ()
    columns = [*_silver_columns(config, table.parent), *added]
    entry, parent = f"silver.{table.name}", f"silver.{table.parent}"
    _check_expressions(config, result, entry, table.expressions, parent, columns)


def _silver_columns(config: Config, name: str) -> tuple[str, ...]:
    if child := config.silver.get(name):
        origin = config.sources[config.root(name)].silver_origin_columns
        return (*child.columns, *origin, INGESTED_AT)
    source = config.silver_source(f"silver.{name}")
    assert source, f"silver.{name} is configured"
    is_history = source.cdc is not None and source.cdc.stored_as_scd_type == 2
    return (*source.silver_columns, INGESTED_AT, *(SPAN if is_history else ()))


def _check_suite(config: Config, table: str, result: CheckResult) -> None:
    columns = _table_columns(config, table) or ()
    known = {column.lower() for column in columns}
    for expectation in read_suite(config.conf_dir, table):
        for name in _expectation_columns(expectation):
            if known and name.lower() not in known:
                hint = expressions.did_you_mean(name, columns)
                suite = suite_path(config.conf_dir, table)
                problem = f'"{expectation.name}" reads {name}, which is not a column of {table}'
                result.add_error(f"{suite}: expectation {problem}{hint}.", table)


def _table_columns(config: Config, table: str) -> Collection[str] | None:
    """Return the columns of a table with a suite; None if they are not known."""
    layer, name = layer_of(table), short_name(table)
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
    if expectation.type == BY_QUERY:  # of a gate, it may read more than the rows
        query = str(kwargs.get("unexpected_rows_query"))
        return (expectation.on_failure == "quarantine" and expressions.column_names(query)) or []
    names = [kwargs.get(key) for key in ("column", "column_A", "column_B")]
    names += kwargs.get("column_list") or []
    return [name.partition(".")[0] for name in names if isinstance(name, str)]


_PROJECT_CHECKS = (_check_suites, _check_sql, _check_permissions, _check_installation)


def _check_landing(config: Config, result: CheckResult) -> None:
    """Find unused files and suites, sources without files, and unreadable directories."""
    known = ledger_files.find_attention(config)
    result.problems += ledger_files.file_problems(known)
    reported = {entry.path for entry in (*known.files, *known.folders)}
    result.collect("landing", unread_problems(config))
    for suite in unused_suites(config.conf_dir, query_names(config)):
        result.note(str(suite), f"{suite} is not used: no table has that name.")
    for each in pending_renames(config):
        result.note(each.old, f"the next nightly run moves what {each.old} has to {each.new}.")
    for source in config.sources.values():
        result.attempt(source.name, _check_input, config, source, result, reported)


def _check_input(
    config: Config, source: SourceConfig, result: CheckResult, reported: Collection[str]
) -> None:
    """Find waiting files, and directories whose files are unknown, that no run has reported."""
    if source.stream:
        result.backlogs[source.name] = SOURCE_TYPES[source.format].backlog(config, source)
        return
    discovery = Discovery(config, source)
    entries = discovery.entries(scan := discovery.scan())
    result.backlogs[source.name] = backlog_of(entries)
    same = ReasonCode.SAME_FILE  # of a copy of an ingested file no row is missing
    if lost := [each for each in scan.changed if each.is_refused and each.reason_code != same]:
        more = f", and {len(lost) - 1:,} more" if len(lost) > 1 else ""
        sentence = f"{lost[0].path}{more} will be rejected: {lost[0].why}"
        result.problems.append(Problem(ProblemCode.REJECTED, source.name, sentence))
    folders, waiting = (
        [each for each in entries if each.reason_code in codes and each.path not in reported]
        for codes in (ledger_files.FOLDERS, ledger_files.FOR_THE_USER)
    )
    files = Attention(folders=tuple(folders), waiting=tuple(waiting))
    result.problems += ledger_files.file_problems(files)
    if all(each.reason_code in ledger_files.FOLDERS for each in entries):
        folder = config.layout.relative(config.layout.landing(source.name))
        sentence = f"{source.name} has no files: nothing has landed in {folder}/."
        result.note(source.name, sentence)


def _plan(config: Config, result: CheckResult) -> None:
    runs = RunRecords(config.layout)
    alerts = config.on_failure
    if alerts.variable and not alerts.post:
        sentence = f"on_failure.post: {alerts.variable} is not set: no alert is sent."
        result.problems.append(Problem(ProblemCode.DOUBTFUL, "on_failure.post", sentence))
    result.collect("gates", blocked_problems(config, runs.run_state))
    plan = planner.plan_run(config, runs)
    result.collect("journal", unfinished_problems(config))
    for query in plan.queries:
        if isinstance(query.error, UsageError):
            result.add_error(str(query.error), query.query)
        elif query.error:
            result.add(query.query, str(query.error))
        elif query.should_run or query.should_prepare:
            # The settings of a query that never ran cannot have changed.
            is_new = checkpoints.last_planned(config.layout.checkpoint(query.query)) < 0
            reasons = [r for r in query.reasons if not is_new or r != WorkReason.SETTINGS_CHANGED]
            if reasons:
                result.queries[query.query] = tuple(map(str, reasons))
    planned = {each.query for each in plan.queries}  # the others wait for medallion apply
    result.queries = _with_readers(config, result.queries, planned)
    result.edits = find_edits(config)
    if not result.errors:  # a wrong table would be rebuilt
        result.problems += edited_problems(config)


def _with_readers(
    config: Config, started: Mapping[str, tuple[str, ...]], planned: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """Return the reasons by query, also of planned ones that read the new rows of others."""
    writing = {name for name, reasons in started.items() if WorkReason.NEW_INPUT in reasons}
    result = {}
    for query in (each for each in queries(config) if each.name in planned):
        reasons = started.get(query.name, ())
        if WorkReason.NEW_INPUT in reasons and (rows := pending_work.unread_rows(config, query)):
            reasons = (*reasons, f"{counted(rows, 'row')} not read yet")
        if upstream := [table for table in query.upstream if table in writing]:
            writing.add(query.name)
            reasons = (*reasons, f"new rows of {' and '.join(upstream)}")
        if reasons:
            result[query.name] = reasons
    return result
