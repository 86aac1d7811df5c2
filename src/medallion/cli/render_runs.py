"""The nightly run, the balance, the status and files that need attention, as text and as JSON."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

from medallion.cli.terminal import aligned_table, iso_utc
from medallion.inspect import balance as accounting
from medallion.inspect.audit import Audit
from medallion.inspect.balance import Balance, ChildBalance
from medallion.inspect.catalog import FirstRows
from medallion.inspect.edits import Edit, EditAction
from medallion.inspect.freshness import StaleTable
from medallion.inspect.ledger_files import Attention
from medallion.inspect.status import QueryStatus
from medallion.inspect.verdict import LakehouseVerdict, Observations
from medallion.quality.suites import Failure
from medallion.runtime.check import CheckResult
from medallion.runtime.outcome import Outcome
from medallion.state.ledger import Entry, State
from medallion.storage.text import counted, printable

_CONSEQUENCE = {
    "quarantine": "rows are in quarantine",
    "warn": "a warning: the run continues",
    "stop": "let through by --accept",
}
_FILES_SHOWN = 10
_DISMISS = "medallion files --dismiss PATTERN acknowledges them"
_QUERY = (
    "query", "state", "last_batch", "last_run_at", "rows_in", "rows_out", "waiting_rows",
    "watermark",
)  # fmt: skip
_BACKLOG = (
    "waiting for", "files", "messages", "bytes", "oldest_age (s)", "bytes_per_second",
    "caught_up_in (s)", "rejected_files",
)  # fmt: skip


def nightly_json(outcome: Outcome) -> dict[str, Any]:
    """Return the state, balances, rescued values, seconds by step, failed gates and errors."""
    return {
        "ok": outcome.is_good,
        **verdict_json(outcome.verdict),
        "sources": {name: asdict(balance) for name, balance in outcome.balances.items()},
        **child_tables_json(outcome.child_tables),
        **attention_json(outcome.files),
        "stale": stale_json(outcome.stale),
        "rescued": {name: asdict(rescued) for name, rescued in outcome.rescued.items()},
        "seconds": {step: round(seconds, 2) for step, seconds in outcome.seconds.items()},
        "failed_expectations": [
            asdict(failure) for gate in outcome.gates for failure in gate.verdict.failures
        ],
        "errors": nightly_failures(outcome),
    }


def nightly_text(outcome: Outcome, gold: Sequence[FirstRows]) -> str:
    """Return warnings, the tables of gold, the balance of rows, and the total time."""
    lines = [
        printable(f"{_failure_line(failure)} ({_CONSEQUENCE[failure.on_failure]})")
        for gate in outcome.gates
        for failure in gate.verdict.failures
        if failure not in gate.blocking_failures
    ]
    for table in gold:
        lines += ["", *_first_rows_lines(table)]
    if _has_nothing_landed(outcome):
        lines += ["", "nothing has landed yet: put files into landing/<source>/ of the lakehouse"]
    lines += ["", *balance_tables(outcome.balances, outcome.child_tables)]
    lines.append(_balance_line(outcome))
    lines += map(printable, attention_warnings(outcome.files))
    lines.append(f"all       {outcome.seconds['all']:5.1f} s")
    return "\n".join(lines)


def nightly_failures(outcome: Outcome) -> list[str]:
    """Return a line for each failed query, file, blocking expectation and unbalanced source."""
    lines = [*outcome.errors, *attention_errors(outcome.files)]
    lines += [f"stale: {each}" for each in outcome.stale]
    failures = [failure for gate in outcome.gates for failure in gate.blocking_failures]
    for failure in failures:
        lines += [_failure_line(failure), *(f"  {example}" for example in failure.examples)]
    if names := dict.fromkeys(failure.expectation for failure in failures):
        accept = " --accept ".join(("medallion nightly", *names))
        blocked = "the gold tables that these rows feed are blocked until the expectations pass"
        lines.append(f"{blocked}: fix the data or the rule, or let the rows through: {accept}")
    for name in accounting.unbalanced(outcome.balances):
        advice = "medallion audit --deep names the files and tables that differ"
        lines.append(f"the balance of {name} does not add up: {advice}.")
    return lines


def _has_nothing_landed(outcome: Outcome) -> bool:
    files, landed = outcome.files, any(one.landed_lines for one in outcome.balances.values())
    is_seen = landed or files.pending or files.files
    return bool(outcome.balances) and outcome.is_good and not is_seen


def _balance_line(outcome: Outcome) -> str:
    """Return one line, which is `balanced` only if the run has no errors."""
    if not outcome.is_counted or accounting.unbalanced(outcome.balances):
        return "NOT BALANCED"
    if outcome.has_failed:
        return "the rows that were read add up, but the run has failed: see the errors"
    exceptions = attention_summary(outcome.files)
    return f"balanced, but {exceptions}:" if exceptions else "balanced"


def _failure_line(failure: Failure) -> str:
    return f"{failure.expectation} failed on {failure.table}: {failure.detail}"


def _first_rows_lines(table: FirstRows) -> list[str]:
    if table.unreadable:
        return [f"{table.table}: cannot be read"]
    if not table.rows:
        return [f"{table.table}: no rows"]
    more = table.rows - len(table.first.rows)
    lines = [f"{table.table}: {counted(table.rows, 'row')}"]
    lines += aligned_table(table.first.columns, table.first.rows)
    return [*lines, f"... and {more:,} more"] if more > 0 else lines


def audit_json(audit: Audit) -> dict[str, Any]:
    """Return the balance by source; findings, notes and files only if there are any."""
    sources = {name: asdict(balance) for name, balance in audit.balances.items()}
    document: dict[str, Any] = {"balanced": audit.is_balanced, "sources": sources}
    document |= child_tables_json(audit.child_tables)
    lists = {"findings": list(audit.findings), "notes": list(audit.notes)}
    files = attention_json(audit.files)
    return {**document, **files, **{name: lines for name, lines in lists.items() if lines}}


def audit_text(audit: Audit) -> str:
    """Return the balance as a table, then findings, notes, files, and the verdict."""
    files = replace(audit.files, changed=())  # these are among the findings
    lines = [*audit.findings, *audit.notes, *attention_lines(files), balance_verdict(audit)]
    return "\n".join([*balance_tables(audit.balances, audit.child_tables), *map(printable, lines)])


def balance_verdict(audit: Audit) -> str:
    """Return one line, which is just `balanced` only if nothing needs the user's attention."""
    if not audit.is_balanced:
        return "NOT BALANCED"
    exceptions = [f"{', '.join(audit.unchecked)} could not be checked"] if audit.unchecked else []
    if audit.failed:
        exceptions.append(f"the last run of {', '.join(audit.failed)} failed (medallion status)")
    exceptions += filter(None, [attention_summary(audit.files)])
    return f"balanced, but {'; '.join(exceptions)}" if exceptions else "balanced"


def balance_tables(
    balances: Mapping[str, Balance], child_tables: Mapping[str, ChildBalance]
) -> list[str]:
    """Return the lines of a table of sources, and of one of child tables if there are any."""
    lines = aligned_table(*accounting.shown_figures("source", balances))
    if not child_tables:
        return lines
    children = {f"silver.{name}": each for name, each in child_tables.items()}
    return [*lines, "", *aligned_table(*accounting.shown_figures("child table", children))]


def child_tables_json(child_tables: Mapping[str, ChildBalance]) -> dict[str, Any]:
    """Return the balance of each child table, if there are any."""
    tables = {f"silver.{name}": asdict(balance) for name, balance in child_tables.items()}
    return {"child_tables": tables} if tables else {}


def attention_json(files: Attention) -> dict[str, Any]:
    """Return the first ten files of each group with files, and the number of the others."""
    groups = {
        "rejected": files.rejected,
        "waiting": files.waiting,
        "changed": files.changed,
        "unreadable_folders": files.folders,
    }
    names = ("source", "path", "version", "state", "reason_code", "why", "moved_to")
    return {
        group: {
            "files": [{n: getattr(entry, n) for n in names} for entry in entries[:_FILES_SHOWN]],
            "more": max(len(entries) - _FILES_SHOWN, 0),
        }
        for group, entries in groups.items()
        if entries
    }


def attention_errors(files: Attention) -> list[str]:
    """Return lines for files and folders that make this run end with status 1."""
    lines = _group_lines(files, lambda entry: entry.reported_at is None)
    if lines:
        lines.append(f"{_DISMISS}; until then each run names them")
    return lines + _folder_lines(files)


def attention_warnings(files: Attention) -> list[str]:
    """Return lines for files that an earlier run has reported with status 1."""
    lines = _group_lines(files, lambda entry: entry.reported_at is not None)
    return [*lines, _DISMISS] if lines else []


def attention_lines(files: Attention) -> list[str]:
    """Return lines for all files and folders that need attention."""
    lines = _group_lines(files, lambda _: True) + _folder_lines(files)
    return [*lines, _DISMISS] if lines else []


def attention_summary(files: Attention) -> str | None:
    """Return the numbers of files, such as `2 files were rejected`; None if there are none."""
    counts = (
        (len(files.rejected), "file", "rejected"),
        (len(files.waiting), "file", "waiting"),
        (len(files.changed), "archived file", "written after it was read"),
        (len(files.folders), "folder", "not readable"),
    )
    parts = [
        f"{counted(number, noun)} {'was' if number == 1 else 'were'} {what}"
        for number, noun, what in counts
        if number
    ]
    return " and ".join(parts) or None


def _group_lines(files: Attention, is_shown: Callable[[Entry], bool]) -> list[str]:
    groups = (
        (files.rejected, "rejected", State.REJECTED),
        (files.waiting, "waiting", State.PENDING),
        (files.changed, "changed", None),
    )
    lines = (_entry_lines(list(filter(is_shown, entries)), *rest) for entries, *rest in groups)
    return [line for group in lines for line in group]


def _folder_lines(files: Attention) -> list[str]:
    return _entry_lines(files.folders, "no files were read from", State.PENDING)


def _entry_lines(entries: Sequence[Entry], label: str, state: str | None) -> list[str]:
    lines = [f"{label}: {entry.path}: {entry.why}" for entry in entries[:_FILES_SHOWN]]
    if more := len(entries) - len(lines):
        hint = f" (medallion files --state {state})" if state else ""
        lines.append(f"{label}: and {counted(more, 'more file')}{hint}")
    return lines


def verdict_json(verdict: LakehouseVerdict) -> dict[str, Any]:
    """Return whether the lakehouse is healthy, the verdict in one line, and all problems."""
    problems = [{**asdict(each), "is_warning": each.is_warning} for each in verdict.problems]
    return {"healthy": verdict.is_healthy, "verdict": str(verdict), "problems": problems}


def verdict_text(verdict: LakehouseVerdict) -> str:
    """Return the verdict in one line, then a line for each problem, and for each remedy once."""
    lines = [str(verdict)]
    for remedy, problems in groupby(verdict.problems, attrgetter("remedy")):
        for each in problems:
            sentence = each.sentence.removeprefix(f"{each.subject}: ")
            lines.append(f"  {each.code.label}: {each.subject}: {sentence}")
        lines.append(f"    {remedy}")
    return "\n".join(map(printable, lines))


def stale_json(stale: Sequence[StaleTable]) -> list[dict[str, Any]]:
    """Return the stale sources and gold tables; `since` is null if there never were rows."""
    return [
        {"name": s.name, "expect_every": str(s.expect_every), "since": iso_utc(s.since)}
        for s in stale
    ]


def status_json(
    statuses: Sequence[QueryStatus], seen: Observations, verdict: LakehouseVerdict
) -> dict[str, Any]:
    """Return the verdict, the queries with their backlogs, files that need attention, and stale.

    Args:
        statuses: the queries.
        seen: the observations of the verdict.
        verdict: the verdict.
    """
    return {
        **verdict_json(verdict),
        "queries": [asdict(query) for query in statuses],
        **attention_json(seen.files),
        "stale": stale_json(seen.stale),
    }


def status_text(statuses: Sequence[QueryStatus]) -> str:
    """Return a table of queries and one of backlogs; what is wrong is part of the verdict."""
    queries = [tuple(getattr(query, column) for column in _QUERY) for query in statuses]
    backlogs = [(q.query, *asdict(q.backlog).values()) for q in statuses if q.backlog]
    return "\n".join([*aligned_table(_QUERY, queries), "", *aligned_table(_BACKLOG, backlogs)])


def check_json(result: CheckResult) -> dict[str, Any]:
    """Return errors, notes and files, and the plan of the next nightly run."""
    return {
        "ok": result.exit_status == 0,
        "errors": result.errors,
        "attention": result.attention,
        "notes": result.notes,
        **attention_json(result.files),
        "sources": {
            name: {"files": backlog.files, "bytes": backlog.bytes, "messages": backlog.messages}
            for name, backlog in result.backlogs.items()
        },
        "queries": {name: list(reasons) for name, reasons in result.queries.items()},
        "plan": [
            {**asdict(edit), "changes": list(map(str, edit.changes))} for edit in result.edits
        ],
    }


def check_text(result: CheckResult) -> str:
    """Return a line for each error, note and file, then the plan of the next nightly run."""
    lines = [f"error: {line}" for line in result.errors]
    lines += [f"attention: {line}" for line in result.attention]
    lines += [*attention_lines(result.files), *(f"note: {line}" for line in result.notes)]
    lines = [*map(printable, lines), ""]
    if result.errors:
        return "\n".join([*lines, "the configuration is wrong: correct it before the next run"])
    lines.append("the next nightly run:")
    for name, backlog in result.backlogs.items():
        size = f", {backlog.bytes:,} bytes" if backlog.files else ""
        messages = f", {counted(backlog.messages, 'message')}" if backlog.messages else ""
        lines.append(f"  {name}: {counted(backlog.files, 'file')}{size}{messages}")
    starts = [f"  starts {name}: {', '.join(why)}" for name, why in result.queries.items()]
    lines += starts or ["  starts nothing: nothing is new"]
    lines += ["", *plan_lines(result.edits)] if result.edits else []
    verdicts = "nothing is wrong", "see above what needs attention"
    return "\n".join([*lines, verdicts[result.exit_status]])


def plan_lines(edits: Sequence[Edit]) -> list[str]:
    """Return lines for what `medallion apply` and the next nightly run do with edited tables."""
    lines = []
    for edit in edits:
        match edit.action:
            case EditAction.NEW:
                lines.append(f"  {edit.table}: new, with the next nightly run")
            case EditAction.LEFT_OVER:
                lines.append(f"  {edit.table}: left over until medallion drop {edit.table}")
            case EditAction.REBUILD:
                why = f", because it reads {' and '.join(edit.reads)}" if edit.reads else ""
                seconds = f", about {max(edit.seconds, 1):.0f} s" if edit.seconds else ""
                lines.append(f"  {edit.table}: rebuild{why}: {counted(edit.rows, 'row')}{seconds}")
                lines += [f"    {change}" for change in edit.changes]
    is_due = any(edit.action == EditAction.REBUILD for edit in edits)
    title = "the plan, which medallion apply carries out:" if is_due else "the plan:"
    return [title, *map(printable, lines)]
