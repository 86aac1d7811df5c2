"""Messages about failed expectations, balances and files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.cli import render_runs
from medallion.config.values import Duration
from medallion.inspect.balance import Balance, ChildBalance
from medallion.inspect.freshness import StaleTable
from medallion.inspect.ledger_files import Attention
from medallion.quality.suites import Failure, Verdict
from medallion.runtime.outcome import GateResult, Outcome
from medallion.state.ledger import Entry


def test_nightly_text_warnings_name_the_consequence() -> None:
    failures = tuple(
        Failure("bronze.event", name, name, 2, 3, (), "2 of 3 rows")
        for name in ("quarantine", "warn", "stop")
    )
    gate = GateResult(Verdict("bronze.event", 3, failures), 1, accepted=("stop",), seconds=0.0)
    outcome = Outcome(seconds={"all": 0.0}, gates=[gate])
    assert render_runs.nightly_text(outcome, []).splitlines()[:3] == [
        "quarantine failed on bronze.event: 2 of 3 rows (rows are in quarantine)",
        "warn failed on bronze.event: 2 of 3 rows (a warning: the run continues)",
        "stop failed on bronze.event: 2 of 3 rows (let through by --accept)",
    ]
    assert render_runs.nightly_failures(outcome) == []


LANDED = {"a": Balance(2, 2, 2, 0, 0, 0, 0)}
NOTHING = {"a": Balance(*[0] * 7)}


def test_balance_tables_leave_out_columns_of_zeros() -> None:
    sources = {"a": Balance(3, 3, 2, 0, 1, 0, 0), "b": Balance(*[0] * 7)}
    assert render_runs.balance_tables(sources, {"c": ChildBalance(2, 0, 2, 0)}) == [
        "source | landed_lines | bronze_rows | silver_rows | duplicate_rows",
        "-------+--------------+-------------+-------------+---------------",
        "a      |            3 |           3 |           2 |              1",
        "b      |            0 |           0 |           0 |              0",
        "",
        "child table | elements | silver_rows | quarantined_rows",
        "------------+----------+-------------+-----------------",
        "silver.c    |        2 |           0 |                2",
    ]
    assert render_runs.balance_tables({}, {})[0] == "source"


def test_nightly_failures_name_accept_command() -> None:
    failures = (("silver.event", "a"), ("silver.activity", "b"), ("silver.activity", "a"))
    gates = [
        GateResult(Verdict(table, 3, (Failure(table, name, "stop", 2, 3, (), ""),)), 1, (), 0.0)
        for table, name in failures
    ]
    output = render_runs.nightly_failures(Outcome(gates=gates))
    assert output[-1].endswith("let the rows through: medallion nightly --accept a --accept b")


def test_nightly_text_unknown_balance() -> None:
    outcome = Outcome(seconds={"all": 0.0}, is_counted=False)
    assert "NOT BALANCED" in render_runs.nightly_text(outcome, []).splitlines()


def test_nightly_text_names_landing_if_empty() -> None:
    hint = "put files into landing/<source>/"
    for lines in (0, 1):
        balances = {"event": Balance(lines, lines, lines, 0, 0, 0, 0), "a": Balance(*[0] * 7)}
        text = render_runs.nightly_text(Outcome({"all": 0.0}, balances=balances), [])
        assert (hint in text) == (not lines)


REJECTED = Entry("a", "landing/a/1.png", 1, 5, 0, 0, "rejected", "no text", reason_code="x")


@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (Outcome(balances=LANDED), "balanced"),
        (Outcome(balances=LANDED, errors=["bronze.a cannot be started"]), None),
        (Outcome(balances=LANDED, files=Attention((REJECTED,))), None),
        (
            Outcome(balances=LANDED, files=Attention((replace(REJECTED, reported_at=1),))),
            "balanced, but 1 file was rejected:",
        ),
        (Outcome(balances=NOTHING, errors=["Spark has died"]), None),
    ],
)
def test_nightly_text_not_balanced_beside_failure(outcome: Outcome, verdict: str | None) -> None:
    outcome.seconds["all"] = 0.0
    lines = render_runs.nightly_text(outcome, []).splitlines()
    assert [line for line in lines if "balanced" in line] == ([verdict] if verdict else [])
    assert ("nothing has landed" in "".join(lines)) is False
    assert bool(render_runs.nightly_failures(outcome)) == (verdict is None)
    assert outcome.is_good == (verdict is not None)
    is_named = "rejected: landing/a/1.png: no text" in lines
    assert is_named == (verdict is not None and "but" in verdict)


def test_nightly_text_of_stale_table_is_balanced() -> None:
    """The rows add up; the verdict names the stale table, and the exit status is 1."""
    stale = [StaleTable("a", Duration.parse("1 day"), None)]
    outcome = Outcome({"all": 0.0}, balances=LANDED, stale=stale)
    assert "balanced" in render_runs.nightly_text(outcome, []).splitlines()
    assert not outcome.is_good
    assert render_runs.nightly_failures(outcome) == [
        "stale: a: never had a row (expect_every: 1 day)"
    ]
