"""Results of `nightly`, `audit`, `status` and `check`, as text and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from medallion.cli.terminal import aligned_table
from medallion.inspect import balance as accounting
from medallion.inspect.audit import Audit
from medallion.inspect.balance import BalanceSnapshot
from medallion.inspect.catalog import FirstRows
from medallion.inspect.edits import Edit, EditAction
from medallion.inspect.problems import LakehouseVerdict, problem_lines, problems_json, summary
from medallion.inspect.status import QueryStatus
from medallion.runtime.check import CheckResult
from medallion.runtime.outcome import Outcome
from medallion.storage.text import counted, printable

_QUERY = (
    "query", "state", "last_batch", "last_run_at", "rows_in", "rows_out", "waiting_rows",
    "watermark",
)  # fmt: skip
_BACKLOG = (
    "waiting for", "files", "messages", "bytes", "oldest_age (s)", "bytes_per_second",
)  # fmt: skip


@dataclass(frozen=True)
class NightlyLines:
    """What a nightly run prints, as JSON values.

    Attributes:
        document: the document of `--json`.
        verdict: the verdict with its problems, if it `has_problems`.
        pending: the number of files that are not ingested yet.
        text: the tables of gold, and the balance.
        news: what an idle run reports first.
    """

    document: Mapping[str, Any]
    verdict: str
    has_problems: bool
    pending: int
    text: str
    news: Sequence[str] = ()


def nightly_lines(
    outcome: Outcome, gold: Sequence[FirstRows], news: Sequence[str] = ()
) -> NightlyLines:
    """Return what a nightly run prints at its end."""
    verdict, pending = outcome.seen.verdict, outcome.seen.files.pending
    text, has_problems = nightly_text(outcome, gold), bool(verdict.problems)
    document = nightly_json(outcome)
    return NightlyLines(document, verdict_text(verdict), has_problems, pending, text, news)


def nightly_json(outcome: Outcome) -> dict[str, Any]:
    """Return the state, balances, rescued values, seconds by step, failed gates and errors."""
    failures = [asdict(each) for gate in outcome.gates for each in gate.verdict.failures]
    return {
        "ok": outcome.is_good,
        **verdict_json(outcome.seen.verdict),
        **balances_json(outcome.snapshot),
        "rescued": {name: asdict(rescued) for name, rescued in outcome.rescued.items()},
        "lost_in_conversion": {name: asdict(lost) for name, lost in outcome.lost.items()},
        "seconds": {step: round(seconds, 2) for step, seconds in outcome.seconds.items()},
        "failed_expectations": failures,
        "errors": nightly_failures(outcome),
    }


def nightly_text(outcome: Outcome, gold: Sequence[FirstRows]) -> str:
    """Return the tables of gold, and the balance of rows."""
    lines = []
    for table in gold:
        lines += ["", *_first_rows_lines(table)]
    files, balances = outcome.seen.files, outcome.snapshot.balances
    has_landed = any(balance.landed_lines for balance in balances.values())
    if balances and outcome.is_good and not (has_landed or files.pending or files.files):
        lines += ["", "nothing has landed yet: put files into landing/<source>/ of the lakehouse"]
    lines += ["", *balance_tables(outcome.snapshot)]
    return "\n".join([*lines, _balance_line(outcome)])


def nightly_failures(outcome: Outcome) -> list[str]:
    """Return a line for each error, and for each problem with which the run fails."""
    return [*outcome.errors, *(problem.line for problem in outcome.failures)]


def _balance_line(outcome: Outcome) -> str:
    """Return one line, which is `balanced` only if the run has no errors."""
    if outcome.is_balanced and not outcome.is_good:
        return "the rows that were read add up, but the run has failed: see the errors"
    return balance_verdict(outcome)


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
    """Return the balance by source; findings and notes only if there are any."""
    lists = {"findings": list(audit.findings), "notes": list(audit.notes)}
    return {
        "balanced": audit.is_balanced,
        **balances_json(audit),
        **{name: lines for name, lines in lists.items() if lines},
        "problems": problems_json(audit.problems),
    }


def audit_text(audit: Audit) -> str:
    """Return the balance as a table, then the problems, and the verdict."""
    lines = [*balance_tables(audit), *problem_lines(audit.problems)]
    return "\n".join([*lines, balance_verdict(audit)])


def balance_verdict(result: Audit | Outcome) -> str:
    """Return one line, which is just `balanced` only if nothing needs the user's attention."""
    if not result.is_balanced:
        return "NOT BALANCED"
    return f"balanced, but {summary(result.exceptions)}" if result.exceptions else "balanced"


def balance_tables(snapshot: BalanceSnapshot | Audit) -> list[str]:
    """Return the lines of a table of sources, and of one of child tables if there are any."""
    lines = aligned_table(*accounting.shown_figures("source", snapshot.balances))
    children = {f"silver.{name}": each for name, each in snapshot.child_tables.items()}
    if not children:
        return lines
    return [*lines, "", *aligned_table(*accounting.shown_figures("child table", children))]


def balances_json(snapshot: BalanceSnapshot | Audit) -> dict[str, Any]:
    """Return the balance of each source, and of each child table if there are any."""
    tables = {f"silver.{name}": asdict(each) for name, each in snapshot.child_tables.items()}
    sources = {name: asdict(balance) for name, balance in snapshot.balances.items()}
    return {"sources": sources, **({"child_tables": tables} if tables else {})}


def verdict_json(verdict: LakehouseVerdict) -> dict[str, Any]:
    """Return whether the lakehouse is healthy, the verdict in one line, and all problems."""
    problems = problems_json(verdict.problems)
    return {"healthy": verdict.is_healthy, "verdict": str(verdict), "problems": problems}


def verdict_text(verdict: LakehouseVerdict) -> str:
    """Return the verdict in one line, then its problems."""
    return "\n".join([printable(str(verdict)), *problem_lines(verdict.problems)])


def status_json(statuses: Sequence[QueryStatus], verdict: LakehouseVerdict) -> dict[str, Any]:
    """Return the verdict, and the queries with their backlogs."""
    return {**verdict_json(verdict), "queries": [asdict(query) for query in statuses]}


def status_text(statuses: Sequence[QueryStatus]) -> str:
    """Return a table of queries and one of backlogs; what is wrong is part of the verdict."""
    queries = [tuple(getattr(query, column) for column in _QUERY) for query in statuses]
    backlogs = [(q.query, *asdict(q.backlog).values()) for q in statuses if q.backlog]
    return "\n".join([*aligned_table(_QUERY, queries), "", *aligned_table(_BACKLOG, backlogs)])


def check_json(result: CheckResult) -> dict[str, Any]:
    """Return the problems by level, and the plan of the next nightly run."""
    return {
        "ok": result.exit_status == 0,
        "errors": result.errors,
        "attention": result.lines(1),
        "notes": result.lines(0),
        "problems": problems_json(result.problems),
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
    """Return a line for each problem, then the plan of the next nightly run."""
    levels = ("note", "attention", "error")
    lines = [f"{levels[n]}: {line}" for n in (2, 1, 0) for line in result.lines(n)]
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
    new = [edit.table for edit in edits if edit.action == EditAction.NEW]
    lines = [f"  new, with the next nightly run: {', '.join(new)}"] if new else []
    for edit in edits:
        match edit.action:
            case EditAction.NEW_ROWS:
                lines.append(f"  {edit.table}: new rows only, with the next nightly run")
            case EditAction.LEFT_OVER:
                lines.append(f"  {edit.table}: left over until medallion drop {edit.table}")
            case EditAction.REBUILD:
                why = f", because it reads {' and '.join(edit.reads)}" if edit.reads else ""
                seconds = f", about {max(edit.seconds, 1):.0f} s" if edit.seconds else ""
                lines.append(f"  {edit.table}: rebuild{why}: {counted(edit.rows, 'row')}{seconds}")
        lines += [f"    {change}" for change in edit.changes]
    is_due = any(edit.action == EditAction.REBUILD for edit in edits)
    title = "the plan, which medallion apply carries out:" if is_due else "the plan:"
    return [title, *map(printable, lines)] if lines else []
