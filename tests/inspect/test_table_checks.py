"""`audit --deep` detects manual changes of files and tables, and reports nothing else."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from deltalake import DeltaTable

from medallion.config.model import Aggregate, Config, GoldTable, Statement
from medallion.ingest.source import Verification
from medallion.inspect import table_checks
from medallion.inspect.audit import Audit, run_audit
from medallion.spark import checkpoints
from medallion.sql import engine
from medallion.state import journal
from medallion.state.journal import Entry, Rebuild
from medallion.storage.layout import Layout
from tests.support import lines
from tests.support.lakehouse import Lakehouse, redefined


def recording(index: int, model: str | None = None) -> str:
    return lines.recording(f"10:18:{index % 60:02}", "p", index, index / 7, Model=model)


def event(time: str, action: str) -> str:
    return lines.event(time, "phone", action)


# Two engines may sum these averages in a different order; one group is null.
MEANS = Aggregate(("model",), {"mean": "avg(x)"})
AXES = GoldTable("axes", ("silver.activity",), MEANS, "complete")
# A division of integers, which engines define differently, and a string that looks like one.
EARLY = "count(case when '1/2' <> '1' and event_at < '2018-03-02T10:05:00Z' then 1 end) / count(*)"
# For events at the same time `max_by` depends on the order of rows; so does the rounding error of
# a sum that is exactly zero.
SHARES = {"early": EARLY, "some": "max_by(device, date(event_at))", "zero": "sum(0.0D)"}
SHARE = GoldTable("shares", ("silver.event",), Aggregate(("action",), SHARES), "complete")
# The terms of `rest` cancel; `pair` has a double within a struct.
RESTS = {"rest": "sum(x - x)", "pair": "named_struct('n', count(*), 'sum', sum(x))"}
REST = GoldTable("rests", ("silver.activity",), Aggregate((), RESTS), "complete")
ALL = GoldTable("all_events", ("silver.event",), Aggregate((), {"n": "count(*)"}), "complete")
# An order-dependent aggregate within a CTE: no column of the table can be compared.
NEWEST = Statement(
    Path("newest.sql"),
    "with t as (select action, last(device) d from silver_event group by 1) select * from t",
)
LAST = GoldTable("newest", ("silver.event",), NEWEST, "complete")
SKIPPED = tuple(
    f"gold.{skipped}."
    for skipped in (
        "shares: not verified, because the order of rows matters: some (max_by)",
        "rests: not verified, because the order of rows matters: pair (a double in a struct or a "
        "list)",
        "newest: not verified, because the order of rows matters: action (last); d (last)",
    )
)
ALL_DIFFERS = (
    'gold.all_events: compared with silver.event, it has 1 row too many, such as {"n":7}, and '
    'lacks 1 row, such as {"n":6}; `medallion refresh gold.all_events` rebuilds it.'
)
SOURCES = ("activity", "event")
# Times outside the range of nanoseconds: year 1 is the zero value of Go and .NET; windows before
# 1970 must start on the same grid as later ones.
OLD = ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "1600-01-01T00:07:00Z")


@pytest.fixture(scope="module")
def lakehouse_config(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Two runs: good rows, a malformed one, a duplicate, and an unreadable file."""
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("deep") / "lakehouse")
    config = lakehouse.config
    gold = {
        **config.gold,
        "axes": AXES,
        "shares": SHARE,
        "rests": REST,
        "all_events": ALL,
        "newest": LAST,
    }
    del gold["device_counts"]
    sources = {name: config.sources[name] for name in SOURCES}
    sources = {n: replace(s, clean_source="archive", clean_after=None) for n, s in sources.items()}
    gold = {
        name: table
        for name, table in gold.items()
        if table.tables[0].removeprefix("silver.") in SOURCES
    }
    lakehouse.config = replace(config, gold=gold, sources=sources)
    many = [recording(n, None if n % 2 else "m") for n in range(500)]
    lakehouse.land("activity", "1.json", *many, "{broken", recording(0))
    lakehouse.land("event", "1.json", event("10:02:33", "open"), event("10:07:00", "open"))
    old = (json.dumps({"id": "p", "action": "old", "ts": time}) for time in OLD)
    lakehouse.land("event", "old.json", *old)
    truncated_file = lakehouse.land("event", "torn.json.gz")
    truncated_file.write_bytes(gzip.compress(event("10:03:00", "open").encode() * 99)[:-9])
    lakehouse.fill("bronze")
    lakehouse.fill("silver")
    compressed = lakehouse.land("event", "2.json.gz")
    compressed.write_bytes(gzip.compress(f"{event('10:08:00', 'close')}\n".encode()))
    lakehouse.fill("bronze")
    lakehouse.fill("silver", "gold")
    return lakehouse.config


@pytest.fixture
def with_gold(lakehouse_config: Config, tmp_path: Path) -> Config:
    """Return a copy of the lakehouse that tests may damage."""
    shutil.copytree(lakehouse_config.layout.root, tmp_path / "copy", symlinks=True)
    return replace(lakehouse_config, layout=Layout(tmp_path / "copy"))


@pytest.fixture
def config(with_gold: Config) -> Config:
    """Return the copy without gold, whose verification takes most of an audit's time."""
    return replace(with_gold, gold={})


@pytest.fixture
def activity(config: Config) -> Config:
    """Return the copy with one source."""
    return only(config, "activity")


@pytest.fixture
def events(config: Config) -> Config:
    """Return the copy with the other source."""
    return only(config, "event")


def only(config: Config, source: str, *gold: str) -> Config:
    """Return a configuration with one source and some gold tables, so that no other is verified."""
    sources = {source: config.sources[source]}
    return replace(config, sources=sources, gold={name: config.gold[name] for name in gold})


def counting(config: Config) -> Audit:
    """Return a deep audit that counts all files and tables, but verifies none with Spark."""
    with patch.object(table_checks, "verify_tables", return_value=Verification()):
        return run_audit(config, everything=True)


def table(config: Config, name: str) -> DeltaTable:
    return DeltaTable(config.layout.table(name))


def add_again(config: Config, name: str) -> int:
    """Commit a table's newest data file again, and return its number of rows."""
    folder = config.layout.table(name)
    actions: list[dict[str, Any]] = []
    for log in sorted((folder / "_delta_log").local.glob("*.json")):
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        actions += [line["add"] for line in lines if "add" in line]
    live = {Path(uri).name for uri in table(config, name).file_uris()}
    add = next(add for add in reversed(actions) if add["path"] in live)
    copy = f"{uuid.uuid4().hex}.parquet"
    shutil.copy(folder / add["path"], folder / copy)
    version = table(config, name).version() + 1
    commit = folder / "_delta_log" / f"{version:020}.json"
    rows = int(json.loads(add["stats"])["numRecords"])
    commits = [
        {"commitInfo": {"operation": "WRITE", "operationMetrics": {"numOutputRows": str(rows)}}},
        {"add": {**add, "path": copy, "dataChange": True}},
    ]
    commit.local.write_text("".join(f"{json.dumps(action)}\n" for action in commits))
    return rows


def has_finding(audit: Audit, *parts: str) -> bool:
    """Return whether one finding contains all of these parts."""
    assert not audit.is_balanced
    return any(all(part in finding for part in parts) for finding in audit.findings)


def test_intact_lakehouse_has_no_findings(lakehouse_config: Config) -> None:
    audit = run_audit(lakehouse_config, everything=True)
    assert (audit.findings, audit.notes, audit.is_balanced) == ((), SKIPPED, True)


def test_sliding_windows_count_each_event_twice(lakehouse_config: Config) -> None:
    """Windows of 10 minutes every 5 minutes: each event is in two."""
    sql = "select action, sum(total_events), count(*) from gold.user_activity group by 1 order by 1"
    counts = engine.query(str(lakehouse_config.layout.root), sql).rows
    # open at 10:02 is in 9:55 and 10:00; at 10:07 in 10:00 and 10:05; close in 10:00 and 10:05.
    assert counts == [("close", 2, 2), ("old", 6, 6), ("open", 4, 3)]


def test_copy_of_the_lakehouse_has_no_findings(config: Config) -> None:
    assert counting(config).findings == ()


def test_row_deleted_from_bronze(activity: Config) -> None:
    table(activity, "bronze.activity").delete('"Index" = 7')
    assert has_finding(
        counting(activity),
        "activity/1.json has 502 lines, 502 rows in the ledger and 501 in bronze",
    )


def test_bronze_commit_written_twice(events: Config) -> None:
    assert add_again(events, "bronze.event") == 1
    audit = counting(events)
    assert has_finding(audit, "event/2.json.gz has 1 line, 1 row in the ledger and 2 in bronze")


def test_file_missing_from_the_ledger(events: Config) -> None:
    table(events, "ops.files").delete("path = 'landing/event/1.json'")
    audit = counting(events)
    assert has_finding(audit, "bronze has 2 rows of landing/event/1.json", "ledger")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.unlink(), "does not exist any more"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "cannot be read"),
        (lambda file: file.write_bytes(b"no gzip at all"), "cannot be read"),
        (lambda file: file.write_bytes(gzip.compress(b"{}\n{}\n")), "has 2 lines, 1 row"),
        (lambda file: file.write_bytes(file.read_bytes()[:15] + bytes(40)), "cannot be read"),
    ],
    ids=["removed", "truncated", "another", "changed", "damaged"],
)
def test_changed_archived_file(events: Config, damage: Callable[[Path], Any], reason: str) -> None:
    damage((events.layout.archive("event") / "2.json.gz").local)
    assert has_finding(counting(events), "event", "2.json.gz", reason)


def test_duplicate_rows_in_silver(events: Config) -> None:
    assert add_again(events, "silver.event") == 1
    audit = run_audit(events, everything=True)
    assert has_finding(audit, "silver.event: compared with bronze.event, it has 1 row too many")
    assert has_finding(audit, "silver has 2 rows with the key", "'action': 'close'")


def test_changed_keys_are_a_note_until_a_refresh(events: Config) -> None:
    source = replace(events.sources["event"], keys=("device",))
    audit = run_audit(replace(events, sources={"event": source}), everything=True)
    assert audit.findings == ()
    note = next(note for note in audit.notes if note.startswith("silver.event: "))
    assert note == (
        "silver.event: not verified: its definition has changed (keys: "
        '["event_at", "device", "action"] -> ["device"]): run medallion apply.'
    )


def test_duplicate_row_in_quarantine(config: Config) -> None:
    """A missing table does not hide it."""
    shutil.rmtree(config.layout.table("quarantine.event"))
    assert add_again(config, "quarantine.activity") == 1
    audit = run_audit(config, everything=True)
    assert has_finding(audit, "quarantine.activity: ", "it has 1 row too many, such as ")
    assert has_finding(audit, "silver.event: it cannot be verified: quarantine.event: ")


def test_changed_key_in_silver(activity: Config) -> None:
    """The number of rows is the same; their keys differ."""
    table(activity, "silver.activity").update({"device": "'another'"}, predicate="x = 1")
    audit = run_audit(activity, everything=True)
    (finding,) = audit.findings
    assert finding.startswith("silver.activity: compared with bronze.activity, it has 1 row too ")
    extra, missing = finding.split(", and lacks 1 row, ")
    assert '"device":"another"' in extra
    assert '"device":"p"' in missing
    assert missing.endswith("; `medallion refresh silver.activity` rebuilds it.")


def test_changed_value_in_silver(activity: Config) -> None:
    """A value beside the key: the row of bronze counts as a duplicate of the changed one."""
    table(activity, "silver.activity").update({"gt": "'sit'"}, predicate="x = 1")
    (finding,) = run_audit(activity, everything=True).findings
    assert "it has 1 row too many, such as" in finding
    assert '"gt":"sit"' in finding
    assert "lacks" not in finding


def test_row_missing_in_silver(activity: Config) -> None:
    table(activity, "silver.activity").delete("x = 1")
    (balance, finding) = run_audit(activity, everything=True).findings
    assert "bronze has 502 rows, but" in balance
    assert finding.startswith(
        "silver.activity: compared with bronze.activity, it lacks 1 row, such as "
    )


def test_changed_origin_in_quarantine(activity: Config) -> None:
    """One lost row and one extra row add up to the same number."""
    broken = {"_source_file": "'landing/activity/0.json'"}
    table(activity, "quarantine.activity").update(broken)
    audit = run_audit(activity, everything=True)
    extra, missing = audit.findings
    assert extra.startswith("quarantine.activity: compared with bronze.activity, it has 1 row too ")
    assert "landing/activity/0.json" in extra
    assert missing.startswith("silver.activity: compared with bronze.activity, it lacks 1 row, ")
    assert "landing/activity/1.json" in missing


def test_interrupted_refresh_is_not_verified(activity: Config) -> None:
    """The refresh was killed after it replaced silver's table, and before quarantine's."""
    built = ("silver.activity", "quarantine.activity")
    journal.write_entry(activity.layout, Entry("silver.activity", Rebuild(built)))
    table(activity, "quarantine.activity").delete()
    audit = run_audit(activity, everything=True)
    assert has_finding(audit, "unfinished refresh of silver.activity")
    (problem,) = (each for each in audit.problems if each.code == "unfinished_refresh")
    assert problem.remedy == "complete it with medallion nightly"
    assert not any("compared with" in finding for finding in audit.findings)


def test_unrecorded_batches_are_not_verified(events: Config) -> None:
    """Late rows are inserted when the batch is recorded."""
    table(events, "silver.event").delete("action = 'close'")
    table(events, "ops.runs").delete("query = 'silver.event'")
    audit = run_audit(events, everything=True)
    assert not any("compared with" in finding for finding in audit.findings)
    assert any(
        note.startswith("silver.event: not verified: its last batch") for note in audit.notes
    )


def test_changed_gold_rows(with_gold: Config) -> None:
    """Changed measures and duplicate or missing groups are findings, and nothing else is."""
    for name, figure in {"device_totals": "total_recordings", "all_events": "n"}.items():
        table(with_gold, f"gold.{name}").update({figure: f"{figure} + 1"})
    old = {"total_events": "total_events + 1"}
    table(with_gold, "gold.action_counts").update(old, predicate="action = 'old'")
    table(with_gold, "gold.axes").delete("model is null")
    table(with_gold, "gold.axes").update({"mean": "cast('NaN' as double)"})
    differing = {"device_totals": 1, "all_events": 1, "action_counts": len(OLD), "axes": 1}
    differing["user_activity"] = add_again(with_gold, "gold.user_activity")
    # Canceling terms may leave 5e-10, but not 5e-9; order-dependent columns are not compared.
    within_tolerance = {
        "rest": "5e-10",
        "pair": "named_struct('n', pair['n'], 'sum', pair['sum'] + 1)",
    }
    table(with_gold, "gold.rests").update(within_tolerance)
    order_dependent = {"some": "'another'", "zero": "0.1 + 0.2 - 0.3"}
    table(with_gold, "gold.shares").update(order_dependent, predicate="action = 'open'")
    table(with_gold, "gold.newest").update({"d": "'another'"})
    audit = run_audit(with_gold, everything=True)
    for name, count in differing.items():
        assert has_finding(audit, f"gold.{name}: compared with silver.", f", it has {count} row")
    assert len(audit.findings) == len(differing)
    assert audit.notes == SKIPPED
    table(with_gold, "gold.rests").update({"rest": "5e-9"})
    audit = run_audit(only(with_gold, "activity", "rests"), everything=True)
    assert has_finding(audit, "gold.rests: compared with silver.activity, it has 1 row", "lacks 1")


def test_gold_behind_silver_is_not_verified(with_gold: Config) -> None:
    add_again(with_gold, "silver.activity")
    audit = run_audit(only(with_gold, "activity", "device_totals", "axes"), everything=True)
    notes = [note.split(":")[0] for note in audit.notes if "not verified" in note]
    assert notes == ["gold.device_totals", "gold.axes"]


def test_unreadable_gold_hides_no_other_finding(with_gold: Config) -> None:
    truncated, removed = (
        next(with_gold.layout.table(f"gold.{name}").local.glob("*.parquet"))
        for name in ("action_counts", "user_activity")
    )
    truncated.write_bytes(truncated.read_bytes()[:-1])
    removed.unlink()
    table(with_gold, "gold.all_events").update({"n": "n + 1"})
    names = ("action_counts", "user_activity", "all_events")
    config = only(with_gold, "event", *names)
    *unreadable, differing = run_audit(config, everything=True).findings
    for expected, name, file in zip(unreadable, names, (truncated, removed), strict=False):
        assert expected.startswith(f"gold.{name}: it cannot be verified: ")
        assert file.name in expected
    assert len(unreadable) == 2
    assert differing == ALL_DIFFERS


def test_changed_gold_definition_hides_no_other_finding(with_gold: Config) -> None:
    """A changed definition before its refresh, and SQL with a column that silver lost."""
    totals = redefined(with_gold.gold["device_totals"], measure={"total_recordings": "count(x)"})
    sql = Statement(Path("lacking.sql"), "select lacking from silver_event")
    lacking = GoldTable("lacking", ("silver.event",), sql, "append")
    for path in (with_gold.layout.table, with_gold.layout.checkpoint):
        shutil.copytree(path("gold.all_events"), path("gold.lacking"))
    checkpoint = with_gold.layout.checkpoint("gold.lacking")
    checkpoints.write_document(checkpoint, "definition", {"sql": sql.sql, "output_mode": "append"})
    gold = {gold_table.name: gold_table for gold_table in (totals, lacking, ALL)}
    table(with_gold, "gold.all_events").update({"n": "n + 1"})
    audit = run_audit(replace(with_gold, gold=gold), everything=True)
    unknown, differing = audit.findings
    assert differing == ALL_DIFFERS
    (note,) = (note for note in audit.notes if "not verified" in note)
    assert note == (
        'gold.device_totals: not verified: its definition has changed (measure: {"total_recordings"'
        ': "count(*)"} -> {"total_recordings": "count(x)"}): run medallion apply.'
    )
    assert unknown.startswith("gold.lacking: it cannot be verified: lacking.sql: ")
    assert "`lacking`" in unknown


def test_file_versions_with_equal_times(lakehouse: Lakehouse) -> None:
    """A file is replaced by a longer one with the same time, as by `cp -p` or `rsync -t`."""
    config = lakehouse.config
    source = replace(config.sources["event"], allow_overwrites=True, clean_source="off")
    lakehouse.config = replace(config, sources={"event": source}, gold={})
    for actions in (("open",), ("open", "close")):
        rows = [event(f"10:0{n}:00", action) for n, action in enumerate(actions)]
        file = lakehouse.land("event", "day.json", *rows)
        os.utime(file, (1_700_000_000, 1_700_000_000))
        lakehouse.fill("bronze")
    audit = counting(lakehouse.config)
    assert (audit.balances["event"].bronze_rows, audit.findings) == (3, ())
    DeltaTable(config.layout.table("bronze.event")).delete("action = 'close'")
    audit = counting(lakehouse.config)
    assert has_finding(audit, "day.json has 3 lines, 3 rows in the ledger and 2 in bronze")
