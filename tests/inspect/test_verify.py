"""`audit --deep` finds what was changed by hand in files and tables, and nothing else."""

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

import pytest
from deltalake import DeltaTable

from medallion.config.model import Aggregate, Config, GoldTable, Statement
from medallion.inspect.audit import Audit, run_audit, verify_counts
from medallion.spark import checkpoints
from medallion.sql import engine
from medallion.state import refresh_plan
from medallion.storage.paths import Layout
from tests.support import lines
from tests.support.lakehouse import Lakehouse, redefined


def recording(index: int, model: str | None = None) -> str:
    return lines.recording(f"10:18:{index % 60:02}", "p", index, index / 7, Model=model)


def event(time: str, action: str) -> str:
    return lines.event(time, "phone", action)


# Averages that two engines add up in another order, and a group without a name.
MEANS = Aggregate(("model",), {"mean": "avg(x)"})
AXES = GoldTable("axes", ("silver.activity",), MEANS, "complete")
# Whole numbers divided, which not all engines do alike, and a text that only looks like it.
EARLY = "count(case when '1/2' <> '1' and event_at < '2018-03-02T10:05:00Z' then 1 end) / count(*)"
# Of opens at the same time the order of rows says which is the one, and it may leave of 0.1 + 0.2
# - 0.3 a fraction where there was none.
SHARES = {"early": EARLY, "some": "max_by(device, date(event_at))", "zero": "sum(0.0D)"}
SHARE = GoldTable("shares", ("silver.event",), Aggregate(("action",), SHARES), "complete")
# The terms of the first one cancel, and the second one has a double within it.
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
    "gold.all_events: it differs from its input in 1 group; `medallion refresh gold.all_events` "
    "rebuilds it."
)
SOURCES = ("activity", "event")
# Times that nanoseconds cannot say: year 1 is the zero of Go and .NET, and windows before 1970
# begin where those after it do.
OLD = ("0001-01-01T00:00:00Z", "1969-12-31T23:59:59.999999Z", "1600-01-01T00:07:00Z")


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Two runs: good rows, a broken one, a duplicate, and a file that cannot be read."""
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
    torn = lakehouse.land("event", "torn.json.gz")
    torn.write_bytes(gzip.compress(event("10:03:00", "open").encode() * 99)[:-9])
    lakehouse.fill("bronze", "silver")
    packed = lakehouse.land("event", "2.json.gz")
    packed.write_bytes(gzip.compress(f"{event('10:08:00', 'close')}\n".encode()))
    lakehouse.fill()
    return lakehouse.config


@pytest.fixture
def with_gold(made: Config, tmp_path: Path) -> Config:
    """A copy of the lakehouse, to break."""
    shutil.copytree(made.layout.root, tmp_path / "copy", symlinks=True)
    return replace(made, layout=Layout(tmp_path / "copy"))


@pytest.fixture
def config(with_gold: Config) -> Config:
    """The same without gold, whose verification takes most of an audit's time."""
    return replace(with_gold, gold={})


def table(config: Config, name: str) -> DeltaTable:
    return DeltaTable(config.layout.table(name))


def add_again(config: Config, name: str) -> int:
    """Commit a table's newest data file again, like a writer that ran twice; return its rows."""
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


def has_finding(found: Audit, *parts: str) -> bool:
    """Return whether one of the findings has all of these parts."""
    assert not found.is_balanced
    return any(all(part in finding for part in parts) for finding in found.findings)


def test_an_intact_lakehouse_has_no_findings(made: Config) -> None:
    found = run_audit(made, everything=True)
    assert (found.findings, found.notes, found.is_balanced) == ((), SKIPPED, True)


def test_sliding_windows_counted_by_hand(made: Config) -> None:
    """10 minutes every 5: each event is in two windows."""
    sql = "select action, sum(total_events), count(*) from gold.user_activity group by 1 order by 1"
    found = engine.query(str(made.layout.root), sql).rows
    # open at 10:02 is in 9:55 and 10:00, at 10:07 in 10:00 and 10:05; close in 10:00 and 10:05.
    assert found == [("close", 2, 2), ("old", 6, 6), ("open", 4, 3)]


def test_a_copy_of_the_lakehouse_has_no_findings(config: Config) -> None:
    assert run_audit(config, everything=True).findings == ()


def test_a_row_deleted_from_bronze(config: Config) -> None:
    table(config, "bronze.activity").delete('"Index" = 7')
    found = run_audit(config, everything=True)
    assert has_finding(
        found, "activity/1.json has 502 lines, 502 rows in the ledger and 501 in bronze"
    )


def test_a_bronze_commit_written_twice(config: Config) -> None:
    assert add_again(config, "bronze.event") == 1
    found = run_audit(config, everything=True)
    assert has_finding(found, "event/2.json.gz has 1 line, 1 row in the ledger and 2 in bronze")


def test_a_file_missing_from_the_ledger(config: Config) -> None:
    table(config, "ops.files").delete("path = 'landing/event/1.json'")
    found = run_audit(config, everything=True)
    assert has_finding(found, "bronze has 2 rows of landing/event/1.json", "ledger")


@pytest.mark.parametrize(
    ("break_", "why"),
    [
        (lambda file: file.unlink(), "does not exist any more"),
        (lambda file: file.write_bytes(file.read_bytes()[:-9]), "cannot be read"),
        (lambda file: file.write_bytes(b"no gzip at all"), "cannot be read"),
        (lambda file: file.write_bytes(gzip.compress(b"{}\n{}\n")), "has 2 lines, 1 row"),
        (lambda file: file.write_bytes(file.read_bytes()[:15] + bytes(40)), "cannot be read"),
    ],
    ids=["removed", "torn", "another", "changed", "damaged"],
)
def test_a_changed_archived_file(config: Config, break_: Callable[[Path], Any], why: str) -> None:
    break_((config.layout.archive("event") / "2.json.gz").local)
    assert has_finding(run_audit(config, everything=True), "event", "2.json.gz", why)


def test_rows_doubled_in_silver(config: Config) -> None:
    assert add_again(config, "silver.event") == 1
    found = run_audit(config, everything=True)
    assert has_finding(found, "event/2.json.gz has 1 row in bronze, and 2 in silver and quarantine")
    assert has_finding(found, "silver has 2 rows with the key", "'action': 'close'")


def test_changed_keys_are_a_note_until_a_refresh(config: Config) -> None:
    source = replace(config.sources["event"], keys=("device",))
    assert verify_counts(config, source).findings == []
    sources = {**config.sources, "event": source}
    found = run_audit(replace(config, sources=sources), everything=True)
    assert found.findings == ()
    note = next(note for note in found.notes if note.startswith("silver.event: "))
    assert note.startswith("silver.event: not verified: its definition has changed")
    assert note.endswith(
        "first run (keys was ['event_at', 'device', 'action']). Restore it, or rebuild the table "
        "with medallion refresh silver.event."
    )


def test_a_row_doubled_in_quarantine(config: Config) -> None:
    """A missing table does not hide it."""
    shutil.rmtree(config.layout.table("quarantine.event"))
    assert add_again(config, "quarantine.activity") == 1
    found = run_audit(config, everything=True)
    assert has_finding(
        found,
        "activity/1.json has 1 row in silver or quarantine that bronze does not have as often",
    )
    assert has_finding(found, "silver.event: it cannot be verified: quarantine.event: ")


def test_a_changed_key_in_silver(config: Config) -> None:
    """The number of rows is the same; their keys differ."""
    table(config, "silver.activity").update({"device": "'another'"}, predicate="x = 1")
    found = run_audit(config, everything=True)
    place = "activity: landing/activity/1.json has 1 row in"
    assert has_finding(found, f"{place} silver or quarantine that bronze does not have as often")
    assert has_finding(found, f"{place} bronze that neither", "refresh silver.activity")
    assert len(found.findings) == 2


def test_a_changed_origin_in_quarantine(config: Config) -> None:
    """One lost row and one extra row add up to the same number."""
    broken = {"_source_file": "'landing/activity/0.json'"}
    table(config, "quarantine.activity").update(broken)
    found = run_audit(config, everything=True)
    assert has_finding(found, "activity: landing/activity/0.json has 1 row in silver or quarantine")
    assert has_finding(found, "activity: landing/activity/1.json has 1 row in bronze that neither")


def test_an_interrupted_refresh_is_not_verified(
    config: Config,
) -> None:
    """Killed after it replaced silver's table, and before quarantine's."""
    built = ("silver.activity", "quarantine.activity")
    config.layout.refresh_plan.parent.local.mkdir()
    refresh_plan.write_plan(config.layout, refresh_plan.RefreshPlan("silver.activity", built))
    table(config, "quarantine.activity").delete()
    found = run_audit(config, everything=True)
    assert has_finding(
        found, "silver.activity: a refresh was interrupted", "the next run completes it"
    )
    assert not any("that neither silver" in finding for finding in found.findings)


def test_unrecorded_batches_are_not_verified(config: Config) -> None:
    """Late rows are inserted when the batch is recorded."""
    table(config, "silver.event").delete("action = 'close'")
    table(config, "ops.runs").delete("query = 'silver.event'")
    found = run_audit(config, everything=True)
    assert not any("that neither silver" in finding for finding in found.findings)
    assert any(
        note.startswith("silver.event: not verified: its last batch") for note in found.notes
    )


def test_changed_gold_rows(with_gold: Config) -> None:
    """Measures, duplicate groups and a missing one: each is a finding, and nothing else is."""
    for name, figure in {"device_totals": "total_recordings", "all_events": "n"}.items():
        table(with_gold, f"gold.{name}").update({figure: f"{figure} + 1"})
    old = {"total_events": "total_events + 1"}
    table(with_gold, "gold.action_counts").update(old, predicate="action = 'old'")
    table(with_gold, "gold.axes").delete("model is null")
    table(with_gold, "gold.axes").update({"mean": "cast('NaN' as double)"})
    differing = {"device_totals": 1, "all_events": 1, "action_counts": len(OLD), "axes": 2}
    differing["user_activity"] = add_again(with_gold, "gold.user_activity")
    # 5e-10 may be left of terms that cancel, 5e-9 is a difference; the others are not compared.
    near = {"rest": "5e-10", "pair": "named_struct('n', pair['n'], 'sum', pair['sum'] + 1)"}
    table(with_gold, "gold.rests").update(near)
    chance = {"some": "'another'", "zero": "0.1 + 0.2 - 0.3"}
    table(with_gold, "gold.shares").update(chance, predicate="action = 'open'")
    table(with_gold, "gold.newest").update({"d": "'another'"})
    found = run_audit(with_gold, everything=True)
    for name, count in differing.items():
        assert has_finding(found, f"gold.{name}: it differs from its input in {count} group")
    assert len(found.findings) == len(differing)
    assert found.notes == SKIPPED
    table(with_gold, "gold.rests").update({"rest": "5e-9"})
    found = run_audit(replace(with_gold, gold={"rests": REST}), everything=True)
    assert has_finding(found, "gold.rests: it differs from its input in 1 group")


def test_gold_behind_silver_is_not_verified(with_gold: Config) -> None:
    gold = {name: with_gold.gold[name] for name in ("device_totals", "axes")}
    add_again(with_gold, "silver.activity")
    found = run_audit(replace(with_gold, gold=gold), everything=True)
    notes = [note.split(":")[0] for note in found.notes if "not verified" in note]
    assert notes == ["gold.device_totals", "gold.axes"]


def test_unreadable_gold_hides_no_other_finding(with_gold: Config) -> None:
    cut, gone = (
        next(with_gold.layout.table(f"gold.{name}").local.glob("*.parquet"))
        for name in ("device_totals", "action_counts")
    )
    cut.write_bytes(cut.read_bytes()[:-1])
    gone.unlink()
    table(with_gold, "gold.all_events").update({"n": "n + 1"})
    names = ("device_totals", "action_counts", "all_events")
    gold = {name: with_gold.gold[name] for name in names}
    *unreadable, differing = run_audit(replace(with_gold, gold=gold), everything=True).findings
    for expected, name, file in zip(unreadable, names, (cut, gone), strict=False):
        assert expected.startswith(f"gold.{name}: it cannot be verified: ")
        assert file.name in expected
    assert len(unreadable) == 2
    assert differing == ALL_DIFFERS


def test_a_changed_gold_definition_hides_no_other_finding(with_gold: Config) -> None:
    """An edited entry before its refresh, and SQL over a column that silver lost."""
    totals = redefined(with_gold.gold["device_totals"], measure={"total_recordings": "count(x)"})
    sql = Statement(Path("lacking.sql"), "select lacking from silver_event")
    lacking = GoldTable("lacking", ("silver.event",), sql, "append")
    for path in (with_gold.layout.table, with_gold.layout.checkpoint):
        shutil.copytree(path("gold.all_events"), path("gold.lacking"))
    checkpoint = with_gold.layout.checkpoint("gold.lacking")
    checkpoints.write_document(checkpoint, "definition", {"sql": sql.sql, "output_mode": "append"})
    gold = {each.name: each for each in (totals, lacking, ALL)}
    table(with_gold, "gold.all_events").update({"n": "n + 1"})
    found = run_audit(replace(with_gold, gold=gold), everything=True)
    unknown, differing = found.findings
    assert differing == ALL_DIFFERS
    (another,) = (note for note in found.notes if "not verified" in note)
    assert another.startswith("gold.device_totals: not verified: its definition has changed: ")
    assert another.endswith(
        "first run (measure was {'total_recordings': 'count(*)'}). Restore it, or rebuild the "
        "table with medallion refresh gold.device_totals."
    )
    assert unknown.startswith("gold.lacking: it cannot be verified: lacking.sql: ")
    assert "`lacking`" in unknown


def test_file_versions_with_equal_times(lakehouse: Lakehouse) -> None:
    """A file replaced by a longer one with the same time, as by `cp -p` or `rsync -t`."""
    config = lakehouse.config
    source = replace(config.sources["event"], allow_overwrites=True, clean_source="off")
    lakehouse.config = replace(config, sources={"event": source}, gold={})
    for actions in (("open",), ("open", "close")):
        rows = [event(f"10:0{n}:00", action) for n, action in enumerate(actions)]
        file = lakehouse.land("event", "day.json", *rows)
        os.utime(file, (1_700_000_000, 1_700_000_000))
        lakehouse.fill("bronze")
    found = run_audit(lakehouse.config, everything=True)
    assert (found.balances["event"].bronze_rows, found.findings) == (3, ())
    DeltaTable(config.layout.table("bronze.event")).delete("action = 'close'")
    found = run_audit(lakehouse.config, everything=True)
    assert has_finding(found, "day.json has 3 lines, 3 rows in the ledger and 2 in bronze")
