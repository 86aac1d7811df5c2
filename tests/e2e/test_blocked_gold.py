"""A failed gate blocks gold until the rows are corrected or accepted by name."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.cli import render_runs
from medallion.errors import MedallionError, UsageError
from medallion.inspect.status import query_statuses
from medallion.runtime import backfill, nightly
from medallion.runtime.outcome import Outcome
from medallion.runtime.pipeline import Pipeline
from medallion.state.runs import RunRecords
from medallion.storage import delta_tables
from tests.support import lines
from tests.support.lakehouse import Lakehouse
from tests.support.verdict import take_verdict

SUITES = "great_expectations/expectations"
GOLD = "device_totals"


@pytest.fixture
def lakehouse(lakehouse: Lakehouse) -> Lakehouse:
    lakehouse.keep_only("activity", GOLD)
    return lakehouse


def recording(second: int, x: float, z: float = 0.0) -> str:
    return lines.recording(f"10:10:{second:02}", index=second, x=x, z=z)


def expect_small_x(lakehouse: Lakehouse, to: Path) -> None:
    """Expect x to be at most 0.5 (else stop), and z to be at most 9 (else warn).

    The other tables of the source are not validated, which would only cost time.
    """
    conf = lakehouse.copy_of_conf(to)
    for suite_name in ("bronze/activity", f"gold/{GOLD}"):
        (conf / SUITES / f"{suite_name}.json").unlink()
    type_ = "expect_column_values_to_be_between"
    for axis, maximum, on_failure in (("x", 0.5, "stop"), ("z", 9, "warn")):
        lakehouse.expect(
            "silver.activity", f"{axis}_small", type_, on_failure, column=axis, max_value=maximum
        )


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


def test_stop_blocks_gold_until_it_is_accepted(
    lakehouse: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expect_small_x(lakehouse, tmp_path)
    lakehouse.land("activity", "1.json", recording(0, 0.1, z=9.5), recording(1, 0.2))
    report = lakehouse.nightly()
    # A warning is reported, and blocks nothing.
    assert report.is_good
    assert render_runs.nightly_failures(report) == []
    (warning,) = (f for gate in report.gates for f in gate.verdict.failures)
    actual = (warning.expectation, warning.on_failure, warning.unexpected_count)
    assert actual == ("z_small", "warn", 1)
    before = gold(lakehouse)
    assert lakehouse.rows("gold.device_totals") == [("phone", 2)]

    # Two of three new rows are bad: they are in silver, and gold stays as it is.
    lakehouse.land("activity", "2.json", recording(2, 7.25), recording(3, 8.5), recording(4, 0.3))
    report = lakehouse.nightly()
    assert not report.is_good
    assert not report.errors
    assert blocking_failures(report) == [("silver.activity", "x_small", 2)]
    failures = render_runs.nightly_failures(report)
    assert "x_small failed on silver.activity: 2 of 3 rows" in failures[0]
    assert [line.split(",")[0].strip() for line in failures[1:3]] == ["x=7.25", "x=8.5"]
    assert "--accept" in failures[-1]
    assert render_runs.nightly_json(report)["ok"] is False
    assert delta_tables.row_count(lakehouse.config.layout.table("silver.activity")) == 5
    assert gold(lakehouse) == before
    assert RunRecords(lakehouse.config.layout).run_state.gates["silver.activity"].state == "held"
    errors = {query.query: query.error for query in query_statuses(lakehouse.config)}
    assert errors["gold.device_totals"] == (
        "blocked: x_small on silver.activity failed, and no later run passed"
    )
    assert errors["silver.activity"] is None
    with pytest.raises(MedallionError, match=r"x_small on silver\.activity"):
        lakehouse.pipeline().run("gold")
    assert gold(lakehouse) == before

    # A backfill still reports what it ingested.
    old = tmp_path / "old.json"
    old.write_text(recording(9, 0.1) + "\n", encoding="utf-8")
    messages: list[str] = []
    pipeline = Pipeline(lakehouse.spark, lakehouse.config, "test", messages.append)
    monkeypatch.setattr(backfill, "open_pipeline", lambda *_: nullcontext(pipeline))
    result = backfill.run_backfill(lakehouse.config, "activity", old, messages.append)
    assert (result.new_files, result.rows, result.is_good) == (1, 1, True)
    assert "gold.device_totals is blocked by the gate of silver.activity" in messages[-1]
    assert gold(lakehouse) == before

    # A run over valid rows, here those of the backfill, does not release the invalid ones.
    assert blocking_failures(lakehouse.nightly()) == [("silver.activity", "x_small", 2)]
    assert gold(lakehouse) == before

    with pytest.raises(UsageError, match="no_such_rule"):
        nightly.check_accepted(lakehouse.config, ["no_such_rule"])
    nightly.check_accepted(lakehouse.config, ["x_small", "silver.activity.x_small"])

    # Accepting by name releases all blocked rows, and is recorded.
    assert accepted(lakehouse) == []
    lakehouse.land("activity", "3.json", recording(5, 0.5))
    report = lakehouse.nightly("x_small")
    assert report.is_good
    assert render_runs.nightly_failures(report) == []
    assert lakehouse.rows("gold.device_totals") == [("phone", 7)]
    assert accepted(lakehouse) == [("silver.activity", "x_small")]
    assert RunRecords(lakehouse.config.layout).run_state.gates["silver.activity"].state == "passed"
    lakehouse.pipeline().run("gold")

    # An acceptance covers only those rows, and needs the expectation's name. Blocked rows are
    # validated again even if no new rows arrived.
    lakehouse.land("activity", "4.json", recording(6, 9.0), recording(7, 0.5))
    report = lakehouse.nightly("unique_recordings")
    assert blocking_failures(report) == [("silver.activity", "x_small", 1)]
    assert (
        "x_small failed on silver.activity: 1 of 2 rows" in render_runs.nightly_failures(report)[0]
    )
    assert lakehouse.rows("gold.device_totals") == [("phone", 7)]
    assert lakehouse.nightly("silver.activity.x_small").is_good
    assert lakehouse.rows("gold.device_totals") == [("phone", 9)]
    assert accepted(lakehouse) == [("silver.activity", "x_small")] * 2


def test_gate_blocks_only_downstream_tables(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("activity", "event", GOLD, "action_counts")
    conf = lakehouse.copy_of_conf(tmp_path)
    for suite in (conf / SUITES).rglob("*.json"):
        suite.unlink()
    type_ = "expect_column_values_to_be_between"
    lakehouse.expect("silver.activity", "x_small", type_, "stop", column="x", max_value=0.5)
    action = '{"id": "p", "action": "open", "ts": "2018-03-02T10:00:00"}'
    lakehouse.land("event", "1.json", action)
    lakehouse.land("activity", "1.json", recording(0, 7.0))
    messages: list[str] = []
    pipeline = Pipeline(lakehouse.spark, lakehouse.config, "test", messages.append)
    outcome = nightly.Nightly(pipeline).run()
    assert blocking_failures(outcome) == [("silver.activity", "x_small", 1)]
    assert (outcome.is_good, outcome.errors) == (False, [])
    assert lakehouse.rows("gold.action_counts", "action", "total_events") == [("open", 1)]
    assert not delta_tables.table_exists(lakehouse.config.layout.table(f"gold.{GOLD}"))
    assert (
        f"  gold.{GOLD} is blocked by the gate of silver.activity: it stays as the last good run "
        "left it"
    ) in messages
    (problem,) = (p for p in take_verdict(lakehouse.config).problems if p.code == "blocked")
    assert problem.sentence.startswith(
        f"x_small failed: 1 of 1 rows do not meet {type_}, such as x=7.0"
    )
    assert problem.sentence.endswith(f"; no later run passed; this blocks gold.{GOLD}")
    with pytest.raises(MedallionError, match=rf"^gold\.{GOLD} is blocked: x_small on silver"):
        lakehouse.pipeline().run("gold")


@pytest.mark.parametrize("removed", ["source", pytest.param("suite", marks=pytest.mark.slow)])
def test_removed_source_or_suite_blocks_nothing(
    spark: SparkSession, tmp_path: Path, removed: str
) -> None:
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("activity", "event", GOLD)
    suites = lakehouse.copy_of_conf(tmp_path) / SUITES
    for suite_name in ("bronze/activity", f"gold/{GOLD}"):
        (suites / f"{suite_name}.json").unlink()
    (suites / "bronze/event.json").unlink()
    type_ = "expect_column_values_to_not_be_null"
    file = lakehouse.expect("bronze.event", "timed", type_, "stop", column="time")
    lakehouse.land("event", "1.json", '{"id": "p", "action": "open", "ts": "2018-03-02T10:00:00"}')
    lakehouse.land("activity", "1.json", recording(0, 0.1))
    assert blocking_failures(lakehouse.nightly()) == [("bronze.event", "timed", 1)]
    if removed == "source":
        lakehouse.keep_only("activity", GOLD)
    else:
        file.unlink()
    messages: list[str] = []
    pipeline = Pipeline(lakehouse.spark, lakehouse.config, "test", messages.append)
    assert nightly.Nightly(pipeline).run().is_good
    assert lakehouse.rows("gold.device_totals") == [("phone", 1)]
    if removed == "source":
        assert f"gates     {file} is not used: no table has that name" in messages
    assert not any("silver/activity.json" in line for line in messages)
