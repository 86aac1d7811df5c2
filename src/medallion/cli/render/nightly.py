"""What a nightly batch did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medallion.cli.render import attention
from medallion.cli.render.audit import balances
from medallion.cli.render.values import table
from medallion.inspect import balance as accounting
from medallion.inspect.catalog import FirstRows
from medallion.quality.suites import Failure
from medallion.runtime.outcome import Outcome
from medallion.storage.text import counted, printable

_THEN = {
    "quarantine": "set aside in quarantine",
    "warn": "a warning: the run goes on",
    "stop": "let through by --accept",
}


def as_json(outcome: Outcome) -> dict[str, Any]:
    """Whether all is well, the balance, values that did not fit, seconds by step, gates, errors."""
    return {
        "ok": outcome.is_good,
        "sources": {name: asdict(balance) for name, balance in outcome.balances.items()},
        **attention.as_json(outcome.files),
        "rescued": {name: asdict(rescued) for name, rescued in outcome.rescued.items()},
        "seconds": {step: round(seconds, 2) for step, seconds in outcome.seconds.items()},
        "failed_expectations": [
            asdict(failure) for gate in outcome.gates for failure in gate.verdict.failures
        ],
        "errors": failures(outcome),
        "data_docs": outcome.docs,
    }


def as_text(outcome: Outcome, gold: Sequence[FirstRows]) -> str:
    """Warnings, gold's tables, the balance of rows, and the time it took."""
    lines = [
        printable(f"{_failure_line(failure)} ({_THEN[failure.on_failure]})")
        for gate in outcome.gates
        for failure in gate.verdict.failures
        if failure not in gate.stops
    ]
    for found in gold:
        lines += ["", *_first_rows(found)]
    if _has_nothing_landed(outcome):
        lines += ["", "nothing has landed yet: files go to landing/<source>/ of the lakehouse"]
    lines += ["", *balances(outcome.balances), _verdict(outcome)]
    lines += map(printable, attention.warnings(outcome.files))
    if outcome.docs:
        lines += ["", printable(f"quality   {outcome.docs}")]
    lines.append(f"all       {outcome.seconds['all']:5.1f} s")
    return "\n".join(lines)


def failures(outcome: Outcome) -> list[str]:
    """What went wrong, a line each: failed queries, files, expectations that hold gold back,
    balances."""
    lines = [*outcome.errors, *attention.errors(outcome.files)]
    for gate in outcome.gates:
        for failure in gate.stops:
            lines += [_failure_line(failure), *(f"  {example}" for example in failure.examples)]
    if names := dict.fromkeys(f.expectation for gate in outcome.gates for f in gate.stops):
        lines.append(
            "gold is held back until these pass: put the data or the rule right and run nightly "
            f"again, or let the rows through: medallion nightly --accept {' --accept '.join(names)}"
        )
    for name in accounting.unbalanced(outcome.balances):
        lines.append(f"the balance of {name} does not add up; medallion audit names the files.")
    return lines


def _has_nothing_landed(outcome: Outcome) -> bool:
    files, landed = outcome.files, any(one.landed_lines for one in outcome.balances.values())
    is_seen = landed or files.pending or files.files
    return bool(outcome.balances) and outcome.is_good and not is_seen


def _verdict(outcome: Outcome) -> str:
    """Never that all is balanced, where the run ends with an error."""
    if not outcome.is_counted or accounting.unbalanced(outcome.balances):
        return "NOT BALANCED"
    if not outcome.is_good:
        return "the rows that were read add up, but the run has failed: see the errors"
    but = attention.summary(outcome.files)
    return f"balanced, but {but}:" if but else "balanced"


def _failure_line(failure: Failure) -> str:
    return f"{failure.expectation} failed on {failure.table}: {failure.detail}"


def _first_rows(found: FirstRows) -> list[str]:
    if found.unreadable:
        return [f"{found.table}: cannot be read"]
    if not found.rows:
        return [f"{found.table}: no rows"]
    more = found.rows - len(found.first.rows)
    lines = [f"{found.table}: {counted(found.rows, 'row')}"]
    lines += table(found.first.columns, found.first.rows)
    return [*lines, f"... and {more:,} more"] if more > 0 else lines
