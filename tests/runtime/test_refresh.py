"""Refreshes of silver and gold: the same rows, and complete tables at any time."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.config.values import Duration
from medallion.errors import ConfigError, MedallionError, UsageError
from medallion.inspect.audit import run_audit
from medallion.runtime import refresh, swap
from medallion.runtime.pipeline import Pipeline
from medallion.spark import checkpoints
from medallion.sql import engine
from medallion.state import refresh_plan
from medallion.storage import files
from medallion.storage.paths import LAYERS, StoragePath
from medallion.storage.text import Reporter
from tests.support.lakehouse import Lakehouse, redefined
from tests.support.lines import event

RUNS = (
    (event("10:00:00"), event("10:00:00"), event("15:00:00"), "{broken"),
    (event("09:00:00"), event("16:00:00"), event("09:00:01", None), event("09:00:01", None)),
)
AFTER = (event("16:00:00"), event("16:00:01"), event("08:00:00"), '{"id": "p"}')
SILVER = ["08:00:00", "09:00:00", "09:00:01", "09:00:01", "10:00:00", "15:00:00"]
SILVER += ["16:00:00", "16:00:01"]


def times(lakehouse: Lakehouse) -> list[str]:
    return sorted(row[0][11:19] for row in lakehouse.rows("silver.event", "event_at"))


@pytest.fixture(scope="module")
def after_two_runs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    """Return a lakehouse after two nightly runs with events; one row of the second is late."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("refresh") / "lakehouse")
    lakehouse.keep_only("event", "action_counts", "user_activity")
    gold = dict(lakehouse.config.gold)
    gold["action_counts"] = replace(gold["action_counts"], output_mode="update")
    lakehouse.config = replace(lakehouse.config, gold=gold)
    lakehouse.run_each("event", *RUNS)
    return lakehouse


@pytest.fixture
def filled(after_two_runs: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy that tests may change."""
    return after_two_runs.copy(tmp_path / "lakehouse")


def check_next_run(lakehouse: Lakehouse) -> None:
    lakehouse.land("event", "after.json", *AFTER)
    lakehouse.fill()
    assert times(lakehouse) == SILVER
    audit = run_audit(lakehouse.config, everything=True)
    assert (audit.findings, audit.notes) == ((), ())
    balance = audit.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.quarantined_rows) == (12, 8, 2)
    assert balance.duplicate_rows == 2
    (total,) = engine.query(
        str(lakehouse.root), "select sum(total_events) from gold.action_counts"
    ).rows
    assert total == (8,)


class Killed(BaseException):
    """Stands for the end of the process."""


def test_silver_refresh_interrupted_at_each_step(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers find a complete table at any time, and the next process completes the refresh."""
    names = ("silver.event", "quarantine.event", "gold.action_counts", "gold.user_activity")
    before = {name: filled.rows(name) for name in names}
    kills = 0
    with watch_tables(filled) as observed, monkeypatch.context() as patch:
        kill_at_each_step(filled, patch)
        try:
            refresh.refresh_table(filled.pipeline(), "silver.event")
        except Killed:
            kills += 1
        while refresh_plan.read_plan(filled.config.layout):
            try:
                resume_swap(filled)
                for layer in ("silver", "gold"):
                    assert refresh.rebuild_pending(filled.pipeline(), layer) == []
            except Killed:
                kills += 1
    # Built and swapped: silver and one gold table; the second gold table ends the refresh.
    assert kills == 5
    # Six rows, each in two windows of user_activity.
    assert observed == {("action_counts", (6,), (6,)), ("user_activity", (6,), (12,))}
    assert not (filled.root / "_refresh").exists()
    assert {name: filled.rows(name) for name in names} == before
    assert run_audit(filled.config).is_balanced
    figures = filled.rows("ops.runs", "state", "query", "rows_in", "rows_out", "quarantined_rows")
    assert ("refreshed", "silver.event", 8, 6, 1) in figures
    check_next_run(filled)


def resume_swap(lakehouse: Lakehouse, report: Reporter = print) -> None:
    pipeline = lakehouse.pipeline()
    swap.resume_swap(pipeline.spark, pipeline.config, pipeline.runs, LAYERS, report)


def test_missing_staged_table_is_built_again(
    filled: Lakehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user deleted the staged table to free disk space."""
    columns = {**filled.config.sources["event"].silver, "action": "upper(action)"}
    source = replace(filled.config.sources["event"], silver=columns)
    filled.config = replace(filled.config, sources={"event": source}, gold={})
    with monkeypatch.context() as patch:
        kill_at_each_step(filled, patch)
        with pytest.raises(Killed):
            refresh.refresh_table(filled.pipeline(), "silver.event")
    for missing in ("quarantine.event", "checkpoint"):
        killed = filled.copy(tmp_path / missing)
        staged = ("silver.event", "quarantine.event")
        staging = refresh_plan.StagingLayout(killed.config.layout.root, staged)
        is_table = missing != "checkpoint"
        shutil.rmtree(staging.table(missing) if is_table else staging.checkpoint("silver.event"))
        messages = list[str]()
        resume_swap(killed, messages.append)
        assert messages[-1].startswith("refresh   silver.event: ")
        assert messages[-1].endswith("is missing, which the refresh had built")
        assert refresh.rebuild_pending(killed.pipeline(), "silver") == []
        assert {action for (action,) in killed.rows("silver.event", "action")} == {"OPEN"}
        assert run_audit(killed.config, everything=True).findings == ()


def test_swap_without_its_checkpoint_is_refused(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the refresh's notes the old checkpoint would read rows of the new table again."""
    filled.config = replace(filled.config, gold={})
    filled.land("event", "after.json", *AFTER)
    filled.fill("bronze")

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "start_generation", killed)
        with pytest.raises(Killed):
            refresh.refresh_table(filled.pipeline(), "silver.event")
    shutil.rmtree(filled.config.layout.refresh_plan.parent)
    with pytest.raises(UsageError, match=r"lacks the batches .* refresh silver\.event"):
        filled.fill("silver")
    runs = filled.rows("ops.runs", "number", "query", "state", "error")
    _, query, state, error = max(runs)
    assert (query, state) == ("silver.event", "failed")
    assert "lacks the batches" in error
    refresh.refresh_table(filled.pipeline(), "silver.event")
    assert times(filled) == SILVER
    assert run_audit(filled.config).is_balanced


def kill_at_each_step(lakehouse: Lakehouse, patch: pytest.MonkeyPatch) -> None:
    """Make the process end after each write of the refresh plan."""
    write_atomic = files.write_atomic

    def write(file: Path, text: str) -> None:
        write_atomic(file, text)
        if StoragePath(file) == lakehouse.config.layout.refresh_plan:
            raise Killed

    patch.setattr(files, "write_atomic", write)


@contextmanager
def watch_tables(lakehouse: Lakehouse) -> Iterator[set[Any]]:
    """Yield the row counts of silver and gold that a concurrent reader sees."""
    observed: set[Any] = set()
    is_done = threading.Event()

    def watch() -> None:
        sql = "select count(*) from silver.event union all select sum(total_events) from gold."
        while not is_done.wait(0.1):
            for table in ("action_counts", "user_activity"):
                observed.add((table, *sorted(engine.query(str(lakehouse.root), sql + table).rows)))

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield observed
        finally:
            is_done.set()
        watching.result()


def test_waiting_rows_are_ingested_once_after_a_refresh(filled: Lakehouse) -> None:
    """Bronze is ahead of silver at its rebuild; the new checkpoint has read these rows too."""
    filled.keep_only("event")
    filled.land("event", "waits.json", event("17:00:00"))
    filled.fill("bronze")
    refresh.refresh_table(filled.pipeline(), "silver.event")
    assert times(filled)[-1] == "17:00:00"
    filled.fill()
    assert len(times(filled)) == 7


@pytest.mark.slow
def test_gates_validate_refreshed_rows(filled: Lakehouse) -> None:
    """Rows between two gates are validated once, without duplicates."""
    assert filled.nightly().is_good
    filled.land("event", "after.json", *AFTER)
    filled.fill()
    for _ in range(2):
        refresh.refresh_table(filled.pipeline(), "silver.event")
    report = filled.nightly()
    assert report.is_good, report
    assert times(filled) == SILVER


def test_silver_is_rebuilt_while_gold_is_blocked(filled: Lakehouse, tmp_path: Path) -> None:
    """A refresh under a changed rule repairs silver while its gate blocks gold.

    In the other direction, a nightly run rebuilds silver, and its gates validate it before gold.
    """
    filled.keep_only("event", "action_counts")
    gold = filled.rows("gold.action_counts")
    suites = filled.copy_of_conf(tmp_path) / "great_expectations/expectations"
    (suites / "gold/action_counts.json").unlink()
    suite = suites / "silver/event.json"
    document = json.loads(suite.read_text())
    rule = {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "device"},
        "meta": {"name": "no_device", "on_failure": "stop"},
    }
    plain_rules = list(document["expectations"])
    document["expectations"] = [*plain_rules, rule]
    suite.write_text(json.dumps(document))
    filled.land("event", "after.json", event("16:30:00", None), event("16:31:00"))
    report = filled.nightly()
    assert not report.is_good
    with pytest.raises(MedallionError, match=r"gold\.action_counts is blocked: no_device"):
        refresh.refresh_table(filled.pipeline(), "gold.action_counts")

    rule["meta"] = {"name": "no_device", "on_failure": "quarantine"}
    document["expectations"] = [*plain_rules, rule]
    suite.write_text(json.dumps(document))
    refresh.refresh_table(filled.pipeline(), "silver.event")
    assert filled.rows("gold.action_counts") == gold
    assert refresh_plan.read_plan(filled.config.layout) == refresh_plan.RefreshPlan(
        "silver.event", then=("gold.action_counts",)
    )
    report = filled.nightly()
    assert report.is_good, report
    assert refresh_plan.read_plan(filled.config.layout) is None
    # Two rows of the first runs and one of this run have no device.
    balance = report.balances["event"]
    assert (balance.bronze_rows, balance.silver_rows, balance.quarantined_rows) == (10, 5, 4)
    (total,) = engine.query(
        str(filled.root), "select sum(total_events) from gold.action_counts"
    ).rows
    assert total == (5,)

    gold = filled.rows("gold.action_counts")
    rule["meta"] = {"name": "no_device", "on_failure": "stop"}
    suite.write_text(json.dumps({**document, "expectations": [*plain_rules, rule]}))
    filled.config.layout.refresh_plan.parent.local.mkdir()
    pending = ("silver.event", "gold.action_counts")
    refresh_plan.write_plan(
        filled.config.layout, refresh_plan.RefreshPlan("silver.event", then=pending)
    )
    report = filled.nightly()
    assert [f.expectation for gate in report.gates for f in gate.blocking_failures] == ["no_device"]
    assert report.balances["event"].silver_rows == 8
    assert filled.rows("gold.action_counts") == gold
    assert refresh_plan.pending_tables(filled.config.layout) == pending[1:]


def test_failed_rebuild_stops_no_other(filled: Lakehouse) -> None:
    valid = filled.config.gold
    invalid = redefined(valid["user_activity"], measure={"total_events": "count_if(nothing)"})
    counts = {"action_counts": valid["action_counts"]}
    filled.config = replace(filled.config, gold={"user_activity": invalid, **counts})
    with pytest.raises(MedallionError, match=r"gold\.user_activity\..*nothing"):
        refresh.refresh_table(filled.pipeline(), "silver.event")
    filled.land("event", "after.json", *AFTER)
    report = filled.run_without_gates()
    assert report.exit_status
    (expected,) = report.errors
    assert "gold.user_activity" in expected
    assert not any((filled.root / "_refresh").glob("*.*/_delta_log"))
    assert sum(n for (n,) in filled.rows("gold.action_counts", "total_events")) == len(SILVER)
    filled.config = replace(filled.config, gold={"user_activity": valid["user_activity"], **counts})
    assert filled.run_without_gates().is_good
    assert sum(n for (n,) in filled.rows("gold.user_activity", "total_events")) == 2 * len(SILVER)
    assert refresh_plan.read_plan(filled.config.layout) is None


def test_gold_rebuilt_with_another_measure(filled: Lakehouse) -> None:
    filled.keep_only("event", "action_counts")
    table = redefined(
        filled.config.gold["action_counts"],
        measure={"total_events": "count(*)", "devices": "count(distinct device)"},
    )
    filled.config = replace(filled.config, gold={**filled.config.gold, "action_counts": table})
    refresh.refresh_table(filled.pipeline(), "gold.action_counts")
    rows = filled.rows("gold.action_counts", "window_start", "total_events", "devices")
    assert rows == [
        ("2018-03-02 09:00:00", 3, 1),
        ("2018-03-02 10:00:00", 1, 1),
        ("2018-03-02 15:00:00", 1, 1),
        ("2018-03-02 16:00:00", 1, 1),
    ]
    filled.fill("gold")
    assert filled.rows("gold.action_counts", "window_start", "total_events", "devices") == rows


def test_gold_waits_for_a_silver_refresh(filled: Lakehouse) -> None:
    """Its windows would mix two event times, also after the old one is restored."""
    filled.land("event", "after.json", *AFTER)
    filled.fill("bronze", "silver")
    valid = filled.config
    source = replace(valid.sources["event"], event_time="_ingested_at")
    filled.config = replace(valid, sources={"event": source})
    with pytest.raises(ConfigError, match=r"event_time was 'event_at'.* refresh silver.event"):
        filled.pipeline().run("gold")
    filled.config = valid
    filled.fill()
    assert run_audit(filled.config, everything=True).findings == ()


def test_merged_rows_without_a_definition_are_refused(filled: Lakehouse) -> None:
    """Its groups would be merged into the existing ones."""
    checkpoint = filled.config.layout.checkpoint("gold.action_counts")
    before = filled.rows("gold.action_counts")
    gold = filled.config.gold
    hours = redefined(gold["action_counts"], window=Duration.parse("1 hour"))
    changed = replace(filled.config, gold={**gold, "action_counts": hours})
    for commit_file in (checkpoint / "commits").local.iterdir():
        commit_file.unlink()
    with pytest.raises(ConfigError, match=r"window was '10 minutes'.* refresh gold.action"):
        Pipeline(filled.spark, changed, "test", print).run("gold")
    shutil.rmtree(checkpoint)
    with pytest.raises(UsageError, match=r"lacks the batches .* refresh gold.action"):
        Pipeline(filled.spark, changed, "test", print).run("gold")
    assert filled.rows("gold.action_counts") == before


def test_refresh_of_an_unknown_table_is_refused(lakehouse: Lakehouse, tmp_path: Path) -> None:
    for table in ("bronze.nothing", "silver.nothing", "gold", "ops.runs"):
        with pytest.raises(UsageError, match=r"cannot be rebuilt; these can: bronze\.activity"):
            refresh.layers_to_lock(lakehouse.config, table)
    assert refresh.layers_to_lock(lakehouse.config, "gold.device_counts") == ("gold",)
    assert set(refresh.layers_to_lock(lakehouse.config, "silver.event")) < set(LAYERS)
    with pytest.raises(MedallionError, match="run medallion run silver first"):
        refresh.refresh_table(lakehouse.pipeline(), "gold.device_counts")
