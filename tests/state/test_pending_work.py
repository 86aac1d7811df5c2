"""Pending work, determined without Spark; e2e/test_sample has complete runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.queries import Query, queries, query_names, readers
from medallion.config.tables import ToFiles
from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.quality.suites import suite_path
from medallion.state import pending_work
from medallion.state.runs import PASSED, RunRecords
from medallion.storage import clock, delta_tables, records
from medallion.storage.layout import LAYERS, PUBLISH
from medallion.storage.table_specs import TableSpec
from tests.support import PROJECT, checkpoints
from tests.support.delta_log import forget_commits
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse


@pytest.mark.parametrize("rows", [0, 3])
def test_has_input_after_commits_were_removed(home: Home, rows: int) -> None:
    """A new gold table in an old lakehouse, without other input."""
    gold = {"device_totals": load({}, PROJECT).gold["device_totals"]}
    config = replace(home.config, gold=gold)
    query = next(query for query in queries(config) if query.name == "gold.device_totals")
    silver = config.layout.table("silver.activity")
    records.append_records(
        silver, TableSpec({"n": "long"}), [{"n": number} for number in range(rows)]
    )
    # Add a commit without rows.
    DeltaTable(silver).alter.set_table_properties({"delta.appendOnly": "true"})
    newest = forget_commits(silver.local)
    assert pending_work.has_input(config, query.name, silver) == (rows > 0)
    assert pending_work.unread_rows(config, query) == rows
    checkpoints.write_completed(
        config.layout, query.name, 0, newest + 1, of=delta_tables.table_id(silver)
    )
    assert not pending_work.has_input(config, query.name, silver)
    assert pending_work.unread_rows(config, query) == 0


def test_needs_validation_after_commits_were_removed(home: Home) -> None:
    """A stream runs no gate, and ran longer than its commits are kept."""
    silver, runs = home.config.layout.table("silver.activity"), RunRecords(home.config.layout)
    passed = {"kind": "gate", "query": "silver.activity", "state": PASSED}
    for number in range(4):
        records.append_records(silver, TableSpec({"n": "long"}), [{"n": number}])
        if number == 1:
            runs.write([passed | {"started_at": clock.now_micros(), "table_version": number + 1}])
    DeltaTable(silver).alter.set_table_properties({"delta.appendOnly": "true"})
    newest = forget_commits(silver.local)
    assert pending_work.needs_validation(home.config, runs.run_state, "silver.activity")
    runs.write([passed | {"started_at": clock.now_micros(), "table_version": newest}])
    assert not pending_work.needs_validation(home.config, runs.run_state, "silver.activity")


def test_gate_blocks_only_its_downstream(home: Home) -> None:
    config = home.project_config
    published = replace(config.gold["action_counts"], outputs={"files": ToFiles("json")})
    config = replace(config, gold={**config.gold, "action_counts": published})
    runs = RunRecords(config.layout)
    names = query_names(config, (*LAYERS, PUBLISH))

    def blocked() -> dict[str, dict[str, str]]:
        gates = {name: pending_work.blocking_gates(config, runs.run_state, name) for name in names}
        return {name: tables for name, tables in gates.items() if tables}

    def record(table: str, **gate: str) -> None:
        runs.write([{"kind": "gate", "query": table, "state": "held", **gate}])

    assert blocked() == {}
    record("silver.event", failed_expectations="late")
    events = ("gold.action_counts", "gold.user_activity")
    by_event = {name: {"silver.event": "late"} for name in events}
    assert blocked() == by_event
    pending_work.refuse_if_all_blocked(config, ["gold.action_counts", "gold.device_counts"])
    with pytest.raises(MedallionError, match=r"gold\.action_counts is blocked: late on silver"):
        pending_work.refuse_if_all_blocked(config, events)
    record("bronze.activity", failed_expectations="x")
    by_activity = ("gold.device_counts", "gold.device_totals")
    assert blocked() == by_event | {name: {"bronze.activity": "x"} for name in by_activity}
    # A gate of gold blocks its outputs.
    record("silver.event", state="passed")
    record("bronze.activity", state="passed")
    record("gold.action_counts", failed_expectations="few")
    assert blocked() == {"publish.action_counts.files": {"gold.action_counts": "few"}}


def test_settings_digests_change_where_rows_do(tmp_path: Path) -> None:
    """An edit of a source concerns the queries after it; `expect_every` concerns none."""
    config = replace(Lakehouse(None, tmp_path).config, conf_dir=tmp_path)
    before = pending_work.settings_digests(config)

    def changed(edited: Config) -> set[str]:
        after = pending_work.settings_digests(edited)
        return {query for query in before if before[query] != after[query]}

    def edited(**changes: Any) -> Config:
        event = replace(config.sources["event"], **changes)
        return replace(config, sources={**config.sources, "event": event})

    after_event = {"bronze.event", "silver.event", *_names(readers(config, ["silver.event"]))}
    assert changed(edited(expect_every=Duration.parse("1 day"))) == set()
    assert changed(edited(pattern="*.jsonl")) == {"bronze.event"}
    assert changed(edited(watermark=Duration.parse("1 day"))) == after_event
    totals = replace(config.gold["device_totals"], output_mode="update")
    gold = {**config.gold, "device_totals": totals}
    assert changed(replace(config, gold=gold)) == {
        "gold.device_totals",
        *_names(readers(config, ["gold.device_totals"])),
    }
    suite = suite_path(tmp_path, "silver.event")
    suite.parent.mkdir(parents=True)
    suite.write_text("{}")
    assert changed(config) == after_event - {"bronze.event"}


def _names(queries: Iterable[Query]) -> set[str]:
    return {query.name for query in queries}
