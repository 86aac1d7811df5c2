"""A failed gate blocks gold until the rows are corrected or accepted by name."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.cli import render_runs
from medallion.errors import MedallionError, UsageError
from medallion.runtime import backfill, nightly
from medallion.runtime.outcome import Outcome, complete_outcome
from medallion.runtime.refresh import refresh_table
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support import lines
from tests.support.lakehouse import Lakehouse
from tests.support.verdict import take_verdict

SUITES = "great_expectations/expectations"
GOLD = "device_totals"


def recording(second: int, x: float, z: float = 0.0) -> str:
    return lines.recording(f"10:10:{second:02}", index=second, x=x, z=z)


TYPE = "expect_column_values_to_be_between"


@dataclass(frozen=True)
class Blocked:
    """A lakehouse with gold of one run, whose second run is blocked; and that run's results."""

    lakehouse: Lakehouse
    outcome: Outcome
    messages: list[str]
    gold_before: tuple[int, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def blocked(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Blocked:
    """x is to be at most 0.5 (else stop), and z at most 9 (else warn); 2 of 5 rows have a larger x.

    The other tables are not validated, which would only cost time.
    """
    folder = tmp_path_factory.mktemp("blocked")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.keep_only("activity", "event", GOLD, "action_counts")
    for suite in (lakehouse.copy_of_conf(folder) / SUITES).rglob("*.json"):
        suite.unlink()
    for axis, maximum, on_failure in (("x", 0.5, "stop"), ("z", 9, "warn")):
        lakehouse.expect(
            "silver.activity", f"{axis}_small", TYPE, on_failure, column=axis, max_value=maximum
        )
    lakehouse.land("activity", "1.json", recording(0, 0.1, z=9.5), recording(1, 0.2))
    lakehouse.fill()
    before = gold(lakehouse)
    # Two of three new rows are bad: they are in silver, and gold stays as it is.
    lakehouse.land("activity", "2.json", recording(2, 7.25), recording(3, 8.5), recording(4, 0.3))
    lakehouse.land("event", "1.json", lines.event("10:00:00"))
    messages: list[str] = []
    pipeline = lakehouse.pipeline(messages.append)
    return Blocked(lakehouse, nightly.Nightly(pipeline).run(), messages, before)


@pytest.fixture
def lakehouse(blocked: Blocked, tmp_path: Path) -> Lakehouse:
    """Return a copy of the lakehouse whose gold is blocked, with its own conf/."""
    copied = blocked.lakehouse.copy(tmp_path / "lakehouse")
    copied.copy_of_conf(tmp_path)
    return copied


def gold(lakehouse: Lakehouse) -> tuple[int, list[tuple[Any, ...]]]:
    """Return version and rows of gold's table."""
    name = f"gold.{GOLD}"
    return delta_tables.table_version(lakehouse.config.layout.table(name)), lakehouse.rows(name)


def blocking_failures(report: Outcome) -> list[tuple[str, str, int | None]]:
    return [
        (failure.table, failure.expectation, failure.unexpected_count)
        for gate in report.gates
        for failure in gate.blocking_failures
    ]


def accepted(lakehouse: Lakehouse) -> list[tuple[str, str]]:
    """Return table and expectations of the recorded gates that passed because of --accept."""
    rows = lakehouse.rows("ops.runs", "query", "state", "accepted_expectations")
    return [(query, names) for query, state, names in rows if names and state == "passed"]


def test_failed_gate_blocks_gold(blocked: Blocked) -> None:
    lakehouse, outcome = blocked.lakehouse, blocked.outcome
    assert blocked.gold_before[1] == [("phone", 2)]
    assert gold(lakehouse) == blocked.gold_before
    assert (outcome.is_good, outcome.errors) == (False, [])
    assert blocking_failures(outcome) == [("silver.activity", "x_small", 2)]
    (warning,) = (
        f for gate in outcome.gates for f in gate.verdict.failures if f.on_failure != "stop"
    )
    assert (warning.expectation, warning.unexpected_count) == ("z_small", 1)
    complete_outcome(lakehouse.config, outcome, ())
    (line,) = render_runs.nightly_failures(outcome)
    assert line.startswith("blocked: silver.activity: x_small failed: 2 of 5 rows do not meet")
    assert "accept the rows: medallion nightly --accept x_small; or" in line
    assert render_runs.nightly_json(outcome)["ok"] is False
    assert delta_tables.row_count(lakehouse.config.layout.table("silver.activity")) == 5
    assert RunRecords(lakehouse.config.layout).run_state.gates["silver.activity"].state == "held"
    assert accepted(lakehouse) == []


def test_failed_gate_is_reported(blocked: Blocked) -> None:
    lakehouse = blocked.lakehouse
    assert (
        f"  gold.{GOLD} is blocked by the gate of silver.activity: it stays as the last good run "
        "left it"
    ) in blocked.messages
    (problem,) = (p for p in take_verdict(lakehouse.config).problems if p.code == "blocked")
    assert problem.sentence.startswith(
        f"x_small failed: 2 of 5 rows do not meet {TYPE}, such as x=7.25"
    )
    assert problem.sentence.endswith(f"; no later run passed; this blocks gold.{GOLD}")


def test_gate_blocks_only_downstream_tables(blocked: Blocked) -> None:
    rows = blocked.lakehouse.rows("gold.action_counts", "action", "total_events")
    assert rows == [("open", 1)]
    with pytest.raises(MedallionError, match=rf"^gold\.{GOLD} is blocked: x_small on silver"):
        blocked.lakehouse.pipeline().run("gold")
    with pytest.raises(MedallionError, match=rf"^gold\.{GOLD} is blocked: x_small on silver"):
        refresh_table(blocked.lakehouse.pipeline(), f"gold.{GOLD}")
    assert gold(blocked.lakehouse) == blocked.gold_before


def test_backfill_of_a_blocked_table(
    blocked: Blocked, lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backfill reports what it ingested; its valid rows do not release the invalid ones."""
    old = tmp_path / "old.json"
    old.write_text(recording(9, 0.1) + "\n", encoding="utf-8")
    messages: list[str] = []
    pipeline = lakehouse.pipeline(messages.append)
    monkeypatch.setattr(backfill, "open_pipeline", lambda *_: nullcontext(pipeline))
    result = backfill.run_backfill(lakehouse.config, "activity", old, messages.append)
    assert (result.new_files, result.rows, result.is_good) == (1, 1, True)
    message = "gold.device_totals is blocked by the gate of silver.activity"
    assert [text for text in messages if message in text]
    assert gold(lakehouse) == blocked.gold_before
    assert blocking_failures(lakehouse.nightly()) == [("silver.activity", "x_small", 2)]
    assert gold(lakehouse) == blocked.gold_before


def test_accepted_rows_reach_gold(lakehouse: Lakehouse) -> None:
    """Accepting by name releases all blocked rows, and is recorded.

    An acceptance covers only those rows, and needs the expectation's name. Blocked rows are
    validated again even if no new rows arrived.
    """
    with pytest.raises(UsageError, match="no_such_rule"):
        nightly.check_accepted(lakehouse.config, ["no_such_rule"])
    nightly.check_accepted(lakehouse.config, ["x_small", "silver.activity.x_small"])
    lakehouse.land("activity", "3.json", recording(5, 0.5))
    report = lakehouse.nightly("x_small")
    assert report.is_good  # although z_small has failed
    complete_outcome(lakehouse.config, report, ())
    assert render_runs.nightly_failures(report) == []
    assert lakehouse.rows("gold.device_totals") == [("phone", 6)]
    assert accepted(lakehouse) == [("silver.activity", "x_small")]
    assert RunRecords(lakehouse.config.layout).run_state.gates["silver.activity"].state == "passed"
    lakehouse.pipeline().run("gold")

    lakehouse.land("activity", "4.json", recording(6, 9.0), recording(7, 0.5))
    report = lakehouse.nightly("z_small")
    assert blocking_failures(report) == [("silver.activity", "x_small", 1)]
    assert lakehouse.rows("gold.device_totals") == [("phone", 6)]
    assert lakehouse.nightly("silver.activity.x_small").is_good
    assert lakehouse.rows("gold.device_totals") == [("phone", 8)]
    assert accepted(lakehouse) == [("silver.activity", "x_small")] * 2


@pytest.mark.parametrize("removed", ["source", "suite"])
def test_removed_source_or_suite_blocks_nothing(lakehouse: Lakehouse, removed: str) -> None:
    file = lakehouse.config.conf_dir / SUITES / "silver/activity.json"
    if removed == "source":
        lakehouse.keep_only("event", "action_counts")
    else:
        file.unlink()
    messages: list[str] = []
    pipeline = lakehouse.pipeline(messages.append)
    assert nightly.Nightly(pipeline).run().is_good
    is_reported = f"gates     {file} is not used: no table has that name" in messages
    assert is_reported == (removed == "source")
    assert not any("silver/event.json" in line for line in messages)
    expected = 2 if removed == "source" else 5
    assert lakehouse.rows("gold.device_totals") == [("phone", expected)]
