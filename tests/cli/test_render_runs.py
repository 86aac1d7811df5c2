"""Messages about failed expectations, balances and files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.cli import render_runs
from medallion.inspect.balance import Balance, BalanceSnapshot, ChildBalance
from medallion.inspect.problems import LakehouseVerdict, Problem, ProblemCode
from medallion.inspect.verdict import Observations
from medallion.quality.suites import Failure, Verdict
from medallion.runtime.outcome import GateResult, Outcome
from medallion.state.runs import RunState

LANDED = BalanceSnapshot({"a": Balance(2, 2, 2, 0, 0, 0, 0)})
NOTHING = BalanceSnapshot({"a": Balance(*[0] * 7)})


def test_balance_tables_leave_out_columns_of_zeros() -> None:
    sources = {"a": Balance(3, 3, 2, 0, 1, 0, 0), "b": Balance(*[0] * 7)}
    assert render_runs.balance_tables(
        BalanceSnapshot(sources, {"c": ChildBalance(2, 0, 2, 0)})
    ) == [
        "source | landed_lines | bronze_rows | silver_rows | duplicate_rows",
        "-------+--------------+-------------+-------------+---------------",
        "a      |            3 |           3 |           2 |              1",
        "b      |            0 |           0 |           0 |              0",
        "",
        "child table | elements | silver_rows | quarantined_rows",
        "------------+----------+-------------+-----------------",
        "silver.c    |        2 |           0 |                2",
    ]
    assert render_runs.balance_tables(BalanceSnapshot())[0] == "source"


def test_nightly_text_unknown_balance() -> None:
    outcome = Outcome(seconds={"all": 0.0}, is_balanced=False)
    assert "NOT BALANCED" in render_runs.nightly_text(outcome, []).splitlines()


def test_nightly_text_names_landing_if_empty() -> None:
    hint = "put files into landing/<source>/"
    for lines in (0, 1):
        balances = {"event": Balance(lines, lines, lines, 0, 0, 0, 0), "a": Balance(*[0] * 7)}
        outcome = Outcome({"all": 0.0}, snapshot=BalanceSnapshot(balances))
        text = render_runs.nightly_text(outcome, [])
        assert (hint in text) == (not lines)


REJECTED = Problem(ProblemCode.REJECTED, "a", "landing/a/1.png: no text", "repair it")
EDITED = Problem(ProblemCode.EDITED, "silver.a", "1 table waits", "run medallion apply")
STALE = Problem(ProblemCode.STALE, "a", "never had a row", "ask")


def seen(problem: Problem) -> Observations:
    return Observations(RunState(), verdict=LakehouseVerdict((problem,)))


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(snapshot=LANDED), "balanced"),
        (Outcome(snapshot=LANDED, errors=["bronze.a cannot be started"]), None),
        (Outcome(snapshot=LANDED, seen=seen(REJECTED)), None),
        (
            Outcome(snapshot=LANDED, seen=seen(replace(REJECTED, is_reported=True))),
            "balanced, but rejected: a",
        ),
        (Outcome(snapshot=LANDED, seen=seen(EDITED)), None),
        (Outcome(snapshot=LANDED, seen=seen(STALE)), None),
        (Outcome(snapshot=NOTHING, errors=["Spark has died"]), None),
    ],
)
def test_nightly_text_not_balanced_beside_failure(outcome: Outcome, verdict: str | None) -> None:
    outcome.seconds["all"] = 0.0
    lines = render_runs.nightly_text(outcome, []).splitlines()
    assert [line for line in lines if "balanced" in line] == ([verdict] if verdict else [])
    assert ("nothing has landed" in "".join(lines)) is False
    assert bool(render_runs.nightly_failures(outcome)) == (verdict is None)
    assert outcome.is_good == (verdict is not None)


def test_nightly_failures_are_new_problems() -> None:
    """A gate blocks in this run or in an earlier one; a full disk is no failure of a run."""
    blocked = [Problem(ProblemCode.BLOCKED, f"silver.{name}", "no", "accept") for name in "ab"]
    problems = (*blocked, Problem(ProblemCode.DISK, "/", "full"), STALE)
    failure = Failure("silver.a", "small", "stop", 2, 3, (), "")
    gates = [GateResult(Verdict("silver.a", 3, (failure,)), 1, (), 0.0)]
    verdict = Observations(RunState(), verdict=LakehouseVerdict(problems))
    assert render_runs.nightly_failures(Outcome(gates=gates, seen=verdict)) == [
        "blocked: silver.a: no; accept",
        "stale: a: never had a row; ask",
    ]
