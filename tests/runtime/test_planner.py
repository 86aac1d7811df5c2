"""The work of a run, planned without Spark; e2e/test_sample has an idle nightly run."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.runtime import planner
from medallion.runtime.planner import Plan, estimate_workload
from medallion.spark.settings import Workload
from medallion.state import journal, pending_work
from medallion.state.pending_work import WorkReason
from medallion.state.runs import RunRecords
from medallion.storage import records, table_specs
from tests.support import PROJECT
from tests.support.home import Home, tree
from tests.support.runs import record


def reasons_of(home: Home) -> dict[str, set[WorkReason]]:
    before = tree(home.layout.root.local)
    plan = planner.plan_run(home.config, RunRecords(home.layout))
    assert tree(home.layout.root.local) == before, "deciding writes nothing"
    return {query.query: set(query.reasons) for query in plan.queries}


def test_reasons_of_bronze(home: Home) -> None:
    home.poll()  # creates the queue
    for query, settings in pending_work.settings_digests(home.config).items():
        pending_work.record_settings(home.config, query, settings)
    not_created = {WorkReason.NOT_CREATED}
    assert reasons_of(home) == {"bronze.activity": not_created, "silver.activity": not_created}
    assert planner.plan_run(home.config, RunRecords(home.layout)).is_idle
    home.land("a.json", "{}\n")
    assert reasons_of(home)["bronze.activity"] == not_created | {WorkReason.NEW_INPUT}
    record(home.config, "bronze.activity", state="failed")
    assert reasons_of(home)["bronze.activity"] == not_created | {WorkReason.FAILED}
    pending_work.record_settings(home.config, "silver.activity", "other settings")
    assert reasons_of(home)["silver.activity"] == not_created | {WorkReason.SETTINGS_CHANGED}


@pytest.mark.parametrize("waiting", [(), ("silver.activity",)])
def test_bronze_is_checked_with_edited_silver(
    home: Home, waiting: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bronze gets the fields that silver names, unless silver waits for `apply`."""
    for query, settings in pending_work.settings_digests(home.config).items():
        pending_work.record_settings(home.config, query, settings)
    source = home.config.sources["activity"]
    edited = replace(source, silver={**source.silver, "coupon": "coupon"})
    config = replace(home.config, sources={"activity": edited})
    monkeypatch.setattr(planner, "waiting_tables", lambda _: dict.fromkeys(waiting, "edited"))
    changed = {
        plan.query: WorkReason.SETTINGS_CHANGED in plan.reasons
        for plan in planner.plan_run(config, RunRecords(home.layout)).queries
    }
    both = {"bronze.activity": True, "silver.activity": True}
    assert changed == ({"bronze.activity": False} if waiting else both)


def test_unplannable_query_hides_no_other(home: Home) -> None:
    table = home.layout.table("bronze.activity") / "_delta_log"
    table.local.mkdir(parents=True)
    (table / f"{0:020}.json").local.write_text("{")
    plan = planner.plan_run(home.config, RunRecords(home.layout))
    assert [query.query for query in plan.queries] == ["bronze.activity", "silver.activity"]
    assert all(query.error for query in plan.queries)
    assert not plan.is_idle


def test_workload_by_waiting_bytes(home: Home) -> None:
    assert (
        estimate_workload(home.config, Plan((), ())) == Workload.LITTLE
    )  # a first run without input
    home.land("a.json", "{}\n" * 1000)
    home.poll()
    home.land("b.json", "{}\n" * 1000)
    assert estimate_workload(home.config, Plan((), ())) == Workload.LITTLE
    home.land("c.json", " " * 4 * 2**20)
    assert estimate_workload(home.config, Plan((), ())) == Workload.SOME
    home.land("d.json", " " * 60 * 2**20)
    assert estimate_workload(home.config, Plan((), ())) == Workload.MUCH


def test_workload_of_compressed_files(home: Home) -> None:
    """Counted as eight times their size: 8 and 72 MiB."""
    for name, size, work in (("a.json.gz", 1, Workload.SOME), ("b.json.gz", 8, Workload.MUCH)):
        home.land(name, "x" * size * 2**20)
        assert estimate_workload(home.config, Plan((), ())) == work


@pytest.mark.parametrize(("table", "name"), [("bronze.activity", "x"), ("gold.device_totals", "n")])
def test_workload_by_waiting_or_gold_rows(home: Home, table: str, name: str) -> None:
    """Count bronze's unread rows, and all rows of gold tables that are rewritten completely."""
    gold = {"device_totals": load({}, PROJECT).gold["device_totals"]}
    config = replace(home.config, gold=gold)
    spec = replace(table_specs.table_spec(table), columns={name: "long"})
    for rows, work in (
        (60_000, Workload.LITTLE),
        (60_000, Workload.SOME),
        (400_000, Workload.MUCH),
    ):
        records.append_records(home.layout.table(table), spec, [{name: n} for n in range(rows)])
        assert estimate_workload(config, Plan((), ())) == work


def test_workload_of_rebuilds(home: Home) -> None:
    """All rows of silver are read; by a nightly run only if it rebuilds a table."""
    spec = replace(table_specs.table_spec("silver.activity"), columns={"n": "long"})
    rows = [{"n": n} for n in range(120_000)]
    records.append_records(home.layout.table("silver.activity"), spec, rows)
    assert estimate_workload(home.config, Plan((), ())) == Workload.LITTLE
    assert estimate_workload(home.config) == Workload.SOME
    journal.require_rebuilds(home.config, ["silver.activity"])
    assert estimate_workload(home.config, Plan((), ())) == Workload.SOME


def test_unknown_workload_is_much(home: Home) -> None:
    log = home.layout.table("bronze.activity") / "_delta_log"
    log.local.mkdir(parents=True)
    (log / f"{0:020}.json").local.write_text("{")
    assert estimate_workload(home.config, Plan((), ())) == Workload.MUCH


def test_planner_does_without_pyspark() -> None:
    """An idle nightly run would pay for the import."""
    code = "import sys, medallion.runtime.planner; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
