"""Rows of gold tables, and problems that the rows of tables show; no JVM."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from medallion.config.model import Aggregate, Config
from medallion.config.queries import queries
from medallion.errors import ITEM_ERRORS, error_message
from medallion.inspect.problems import Problem, ProblemCode
from medallion.sql import engine
from medallion.sql.result import Result
from medallion.state.runs import RunState
from medallion.storage import delta_tables, table_specs
from medallion.storage.layout import short_name
from medallion.storage.text import counted

ROWS_SHOWN = 3
_SUM = re.compile(r"\s*(count|sum|count_if)\((?!\s*distinct)[^()]*\)\s*", re.IGNORECASE)
_ORDERED = re.compile(r"\border\s+by\b[^()]*$", re.IGNORECASE)  # the rows of a view
_EMPTY = Result((), [])


@dataclass(frozen=True)
class FirstRows:
    """The row count of a table and its first rows, or why it cannot be read.

    `groups` are the columns that identify a row, if the definition has some, and `sums` the counts
    and sums, which add up over groups.
    """

    table: str
    rows: int
    first: Result
    unreadable: str | None = None
    groups: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()


def first_rows(config: Config, limit: int = ROWS_SHOWN) -> list[FirstRows]:
    """Return the first rows of each gold table, sorted by its group columns."""
    return [read_rows(config, f"gold.{name}", limit) for name in config.gold]


def read_rows(config: Config, table: str, limit: int, is_newest: bool = False) -> FirstRows:
    """Return the first rows of a gold table or view, or the newest ones.

    Args:
        table: the table or view.
        limit: the most rows to return.
        is_newest: whether to return the newest rows, if it has times.
    """
    gold = None if table in config.views else config.gold[short_name(table)].definition
    groups, measure = (gold.groups, gold.measure) if isinstance(gold, Aggregate) else ((), {})
    sums = tuple(name for name, sql in measure.items() if _SUM.fullmatch(sql))
    try:
        if not (rows := _row_count(config, table)):
            return FirstRows(table, 0, _EMPTY)
        order = ", ".join(str(n + 1) for n in range(len(groups) or 1))
        if is_newest:
            columns = _query(config, f"DESCRIBE {table}").rows
            times = [name for name, type_, _ in columns if type_.startswith(("timestamp", "date"))]
            order = f"{table_specs.quote_identifier(times[0])} desc" if times else "1"
        sql = f"select * from {table} order by {order} limit {limit}"
        view = config.views.get(table, "").rstrip("; \n")
        if ordered := _ORDERED.search(view):  # selecting from it would not sort
            sql = view if "limit" in ordered[0].lower() else f"{view}\nlimit {limit}"
        first = _query(config, sql)
        first = Result(first.columns, first.rows[:limit])
        return FirstRows(table, rows, first, groups=groups, sums=sums)
    except ITEM_ERRORS as error:
        reason = error_message(error).removeprefix(f"{table}: ")
        return FirstRows(table, 0, _EMPTY, f"{table}: {reason}")


def quarantined_by_rule(config: Config, name: str) -> list[tuple[str, int]]:
    """Return the number of rows in `quarantine.<name>` by broken rule, the greatest first."""
    table = config.layout.table(f"quarantine.{name}")
    rules = f"(select unnest({table_specs.FAILED_RULES}) as rule from rows)"
    by_rule = "group by rule order by 2 desc, 1"
    return delta_tables.select_rows(table, "rule, count(*)", by_rule, rules)


def mostly_quarantined(config: Config, run_state: RunState) -> Iterator[Problem]:
    """Yield a problem for each quarantine table that got most rows of its query's last run.

    A table that is empty by now, for example after a replay, is not among them.
    """
    for query in queries(config, ["silver"]):
        last, table = run_state.last_busy.get(query.name), query.targets[-1]
        if not last:
            continue
        rows, quarantined = last.rows_in or 0, last.quarantined_rows or 0
        if 2 * quarantined <= rows:
            continue
        rules = quarantined_by_rule(config, short_name(table))
        if not {rule for rule, _ in rules} <= {*table_specs.MESSAGE_RULES}:
            all_rules = ", ".join(f"{rule} ({count:,})" for rule, count in rules)
            detail = f"{quarantined:,} of {counted(rows, 'row')} of the last run broke a rule"
            sentence = f"{detail}; all rows by rule: {all_rules}"
            remedy = _quarantine_remedy(config, table)
            yield Problem(ProblemCode.QUARANTINED, table, sentence, remedy, detail)


def deletes_not_applied(config: Config) -> Iterator[Problem]:
    """Yield a problem for each quarantine table that has deletes."""
    for name in (name for name, source in config.sources.items() if source.cdc):
        if count := dict(quarantined_by_rule(config, name)).get(table_specs.DELETE_RULE):
            table = f"quarantine.{name}"
            sentence = f"{counted(count, 'delete')} broke a rule, so silver.{name} keeps the rows"
            remedy = _quarantine_remedy(config, table)
            yield Problem(ProblemCode.DELETES, table, sentence, remedy)


def _quarantine_remedy(config: Config, table: str) -> str:
    name = short_name(table)
    command = f"refresh silver.{name}" if name in config.silver else f"replay {table}"
    return (
        "see its rows in medallion report, correct the rule or the columns in pipeline.yaml, and "
        f"run medallion {command}"
    )


def held_snapshots(config: Config) -> Iterator[Problem]:
    """Yield a problem for each silver table whose newest snapshot is too small to be applied."""
    for name, source in config.sources.items():
        if not source.cdc or not source.cdc.snapshot:
            continue
        keys = ", ".join(f'"{key}"' for key in source.keys)
        at, file = "1", "1"
        if source.cdc.has_file_snapshots:
            at = table_specs.INGESTED_AT
            file = f"split_part({table_specs.SOURCE_FILE}, '.zip#', 1)"
        columns = f"{table_specs.SEQUENCE} as sequence, {at} as at, {file} as file, {keys}"
        log, rows = config.layout.table(source.rows_table), f"(select distinct {columns} from rows)"
        what, rest = "sequence, count(*)", "group by sequence, at, file order by sequence, at, file"
        # Of several files with one sequence, the last is the snapshot.
        sizes = {str(key): n for key, n in delta_tables.select_rows(log, what, rest, rows)}
        applied, held = 0, None
        for sequence, size in sizes.items():
            held = (sequence, size) if size < (1 - source.cdc.max_deletes) * applied else None
            applied = applied if held else size
        if held:
            table = f"silver.{name}"
            sentence = (
                f"the snapshot {held[0]} has {counted(held[1], 'row')} and the one before it "
                f"{applied:,}, which are more deletes than max_deletes: it is not applied"
            )
            remedy = (
                f"land the complete file, or raise max_deletes and run medallion refresh {table}"
            )
            yield Problem(ProblemCode.SNAPSHOT, table, sentence, remedy)


def unlikely_times(config: Config) -> Iterator[Problem]:
    """Yield a problem for each silver table with event times before 1990, without `max_past`.

    Later times than `max_future` allows are in quarantine.
    """
    for name, source in config.sources.items():
        if source.cdc or source.max_past:
            continue
        table, what = f"silver.{name}", f'count(*), min("{source.event_time}")'
        old = f"where \"{source.event_time}\" < timestamp '1990-01-01' having count(*) > 0"
        for rows, first in delta_tables.select_rows(config.layout.table(table), what, old):
            detail = f"{source.event_time} is before 1990 in {counted(rows, 'row')}"
            sentence = f"{detail}, such as {first:%Y-%m-%d %H:%M}"
            remedy = (
                f"correct sources.{name}.silver or hints and run medallion refresh {table}; or set "
                "max_past to an interval that these times are within"
            )
            yield Problem(ProblemCode.TIMES, table, sentence, remedy, detail)


def _row_count(config: Config, table: str) -> int:
    if table in config.views:
        return int(_query(config, f"select count(*) from {table}").rows[0][0])
    return delta_tables.row_count(config.layout.table(table))


def _query(config: Config, statement: str) -> Result:
    return engine.query(config.layout.root, statement, config.views)
