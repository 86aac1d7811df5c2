"""What a gate found, and how a result of Great Expectations is put in words."""

from __future__ import annotations

import html
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from medallion.quality.suites import BY_QUERY, Expectation

if TYPE_CHECKING:
    from great_expectations.core import (
        ExpectationSuiteValidationResult,
        ExpectationValidationResult,
    )

EXAMPLES = 5
EXAMPLE_LENGTH = 200


@dataclass(frozen=True)
class Failure:
    """An expectation that a table does not meet, and what that does to the run."""

    table: str
    expectation: str
    on_failure: str
    unexpected_count: int | None
    element_count: int | None
    examples: tuple[str, ...]
    detail: str


@dataclass(frozen=True)
class Verdict:
    """What the gate of one table found."""

    table: str
    rows: int
    failures: tuple[Failure, ...]


def failure_of(
    table: str, rows: int, expectation: Expectation, result: ExpectationValidationResult
) -> Failure:
    """What a failed result of Great Expectations says, in the words of a report."""
    found = dict(result.result)
    raised = exception_of(result)
    on_failure = expectation.on_failure
    count = found.get("unexpected_count")
    examples = found.pop("unexpected_rows", None) or found.get("partial_unexpected_list") or []
    detail = f"{count} of {rows} rows do not meet {expectation.kind}"
    if expectation.kind == BY_QUERY:
        count = found.get("observed_value")
        examples = found.get("details", {}).pop("unexpected_rows", [])
        detail = f"its query found {count} rows"
    elif count is None and "observed_value" not in found:
        detail = f"some of {rows} rows do not meet {expectation.kind}, and they cannot be shown"
    elif count is None:
        detail = f"{expectation.kind} observed {found.get('observed_value')}"
    if raised:
        on_failure, detail = "stop", f"it could not be evaluated: {raised}"
    elif on_failure == "quarantine" and not table.startswith("bronze."):
        on_failure = "stop"
        detail += ", which quarantine should have kept out: the rule and the gate disagree"
    shown = tuple(_example(row, expectation) for row in list(examples)[:EXAMPLES])
    return Failure(table, expectation.name, on_failure, count, rows, shown, detail)


def _example(row: Any, expectation: Expectation) -> str:
    """A row as "column=value" with the column in question first, or a single value, cut short."""
    if isinstance(row, dict):
        asked = [c for c in map(expectation.kwargs.get, ("column", "column_A", "column_B")) if c]
        order = asked + [column for column in row if column not in asked]
        text = ", ".join(f"{column}={row.get(column)}" for column in order)
    else:
        text = str(row)
    return text if len(text) <= EXAMPLE_LENGTH else text[: EXAMPLE_LENGTH - 3] + "..."


def make_harmless(outcome: ExpectationSuiteValidationResult) -> None:
    """What comes from the data, and names of columns do, is shown and never run by a browser."""
    for judged in outcome.results:
        judged.result = escaped(judged.result)
        judged.exception_info = escaped(judged.exception_info)
        if config := judged.expectation_config:
            named = {k: escaped(v) for k, v in config.kwargs.items() if k.startswith("column")}
            config.kwargs = {**config.kwargs, **named}


def escaped(value: Any) -> Any:
    """A value that a page of Great Expectations can show: it writes most of them into its HTML as
    they are, and what lands is anybody's text."""
    match value:
        case None | bool() | int() | float() | Decimal() | date():
            return value
        case dict():
            return {escaped(key): escaped(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [escaped(item) for item in value]
    return html.escape(str(value), quote=False)


def exception_of(result: ExpectationValidationResult) -> str | None:
    """The first line of what an expectation raised: at the top level, or one for each metric."""
    info = result.exception_info or {}
    for part in (info, *info.values()):
        if isinstance(part, dict) and part.get("raised_exception"):
            return str(part.get("exception_message")).strip().splitlines()[0]
    return None
