"""Checkpoints that are missing, truncated or damaged, and settings that they keep."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.inspect.balance import Balance
from medallion.runtime import refresh
from medallion.runtime.planner import end_if_idle
from medallion.spark import checkpoints
from medallion.spark.checkpoints import last_planned
from medallion.spark.errors import StreamError
from medallion.state import ledger
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.lines import recording
from tests.support.three_nights import BY_HAND, DEVICES, FIRST, SECOND, THIRD

QUERIES = ("bronze.activity", "silver.activity", "gold.device_totals")
AFTER_FIRST = [("phone", 4)]
AFTER_SECOND = [("other", 1), ("phone", 6)]


def without_late(balance: Balance) -> Balance:
    """Return a balance without the split by time, which depends on the batches of a run."""
    return replace(balance, late_rows=0)


def test_missing_checkpoints(filled: Lakehouse) -> None:
    """Bronze continues from its ledger, silver is not written twice, and gold is recomputed."""
    lakehouse = filled
    layout = lakehouse.config.layout
    before = {name: lakehouse.rows(name) for name in QUERIES[1:]}
    for name in QUERIES:
        shutil.rmtree(layout.checkpoint(name))
    lakehouse.land("activity", "1.json", *SECOND)
    report = lakehouse.run_without_gates()
    assert [error for error in report.errors if "medallion refresh silver.activity" in error]
    assert {name: lakehouse.rows(name) for name in before} == before
    assert delta_tables.row_count(layout.table("bronze.activity")) == len(FIRST) + len(SECOND)
    refresh.refresh_table(lakehouse.pipeline(), "silver.activity")
    balance = run_audit(lakehouse.config).balances["activity"]
    assert (balance.is_balanced, balance.landed_lines) == (True, len(FIRST) + len(SECOND))
    keys = lakehouse.rows("silver.activity", "device", "user_id", "recorded_at")
    assert len(keys) == len(set(keys)) == 7
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == AFTER_SECOND


@pytest.mark.parametrize("lost", ["ledger", "queue", "plan"])
def test_older_ledger_queue_or_plan_of_bronze(filled: Lakehouse, lost: str) -> None:
    """The ledger is repaired from bronze's log, and each file is ingested once."""
    lakehouse = filled
    layout = lakehouse.config.layout
    shutil.copytree(layout.table("ops.files"), lakehouse.root / "copy")
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze")
    if lost == "ledger":
        shutil.rmtree(layout.table("ops.files"))
        (lakehouse.root / "copy").rename(layout.table("ops.files"))
    elif lost == "queue":
        queue = layout.queue("activity")
        (queue / f"_delta_log/{delta_tables.table_version(queue):020}.json").local.unlink()
    else:
        checkpoint = layout.checkpoint("bronze.activity")
        (checkpoint / "offsets" / str(last_planned(checkpoint))).local.write_text("v1\n{")
    lakehouse.land("activity", "2.json", *THIRD)
    lakehouse.run("bronze")
    assert delta_tables.row_count(layout.table("bronze.activity")) == 17
    entries = ledger.read_entries(layout, "activity")
    assert [(Path(e.path).name, e.state, e.rows) for e in entries] == [
        ("0.json", ledger.State.ARCHIVED, len(FIRST)),
        ("1.json", ledger.State.ARCHIVED, len(SECOND)),
        ("2.json", ledger.State.ARCHIVED, len(THIRD)),
    ]


def test_missing_gold_table_is_recomputed(filled: Lakehouse) -> None:
    """Without other work, and also if its checkpoint is damaged."""
    lakehouse = filled
    layout = lakehouse.config.layout
    shutil.rmtree(layout.table("gold.device_totals"))
    assert run_audit(lakehouse.config, everything=True).findings == (
        "gold.device_totals: the table is missing; `medallion run gold` reports what to do.",
    )
    assert end_if_idle(lakehouse.config, "nightly", print) is None
    # The machine stopped.
    (layout.checkpoint("gold.device_totals") / "metadata").local.write_text("")
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST
    # The process was killed while it wrote its first plan; Spark starts no query beside the
    # remnants.
    for part in ("offsets", "commits"):
        shutil.rmtree(layout.checkpoint("gold.device_totals") / part)
        (layout.checkpoint("gold.device_totals") / part).local.mkdir()
    (layout.checkpoint("gold.device_totals") / "offsets/.0.1a.tmp").local.touch()
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST


def test_missing_or_older_bronze_is_refused(filled: Lakehouse) -> None:
    """Nothing is ingested, so that the restored table gets each file once."""
    lakehouse = filled
    layout = lakehouse.config.layout
    shutil.copytree(layout.table("bronze.activity"), lakehouse.root / "older")
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze")
    layout.table("bronze.activity").local.rename(lakehouse.root / "away")
    with pytest.raises(MedallionError, match=r"bronze/activity is missing, and nothing else"):
        lakehouse.fill("bronze")
    assert not layout.table("bronze.activity").local.exists()
    assert not lakehouse.run_without_gates().is_balanced
    (lakehouse.root / "older").rename(layout.table("bronze.activity"))
    lakehouse.land("activity", "2.json", recording("13:30:02"))
    message = r"bronze.activity cannot start: bronze.activity is older .* from one backup\.$"
    with pytest.raises(MedallionError, match=message):
        lakehouse.fill("bronze")
    assert delta_tables.row_count(layout.table("bronze.activity")) == len(FIRST)
    shutil.rmtree(layout.table("bronze.activity"))
    (lakehouse.root / "away").rename(layout.table("bronze.activity"))
    lakehouse.fill("bronze")
    balance = run_audit(lakehouse.config).balances["activity"]
    assert balance.landed_lines == balance.bronze_rows == 15


def test_missing_commits_are_written_again(filled: Lakehouse) -> None:
    """Then gold's older checkpoint is restored, whose next batch Delta would skip as written."""
    lakehouse = filled
    layout = lakehouse.config.layout
    gold = layout.checkpoint("gold.device_totals")
    shutil.copytree(gold, lakehouse.root / "copy")
    for name in QUERIES:
        commits = (layout.checkpoint(name) / "commits").local
        max(commits.glob("[0-9]*"), key=lambda file: int(file.name)).unlink()
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.run()
    assert run_audit(lakehouse.config).is_balanced
    assert lakehouse.rows("gold.device_totals") == AFTER_SECOND
    shutil.rmtree(gold)
    (lakehouse.root / "copy").rename(gold)
    lakehouse.land("activity", "2.json", *THIRD)
    lakehouse.run()
    balance = run_audit(lakehouse.config).balances["activity"]
    assert without_late(balance) == without_late(BY_HAND)
    assert lakehouse.rows("gold.device_totals") == DEVICES


def test_corrupt_plan_of_gold_is_recomputed(filled: Lakehouse) -> None:
    lakehouse = filled
    checkpoint = lakehouse.config.layout.checkpoint("gold.device_totals")
    (checkpoint / "offsets" / str(last_planned(checkpoint))).local.write_text("v1\n{")
    messages: list[str] = []
    replace(lakehouse.pipeline(), report=messages.append).run("gold")
    assert [text for text in messages if "is missing or corrupt: recomputed from all rows" in text]
    assert lakehouse.rows("gold.device_totals") == AFTER_FIRST
    assert last_planned(lakehouse.config.layout.checkpoint("gold.device_totals")) >= 0


@pytest.mark.slow  # `test_older_tables` has the reasons
def test_restored_silver_is_refused(filled: Lakehouse) -> None:
    """Silver and the records are restored from the run before, but gold is not."""
    lakehouse = filled
    layout = lakehouse.config.layout
    silver_tables = ("silver.activity", "quarantine.activity", "ops.runs", "ops.files")
    backup = [*map(layout.table, silver_tables), layout.checkpoint("silver.activity")]
    for folder in backup:
        shutil.copytree(folder, lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root))
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill()
    # Its new checkpoint has read as much.
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    for folder in backup:
        shutil.rmtree(folder)
        shutil.copytree(lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root), folder)
    lakehouse.land("activity", "2.json", recording("13:30:02"))
    message = r"(silver|gold)\.\w+ cannot start: silver.activity is older .* medallion refresh \1"
    errors = lakehouse.run_without_gates().errors
    assert [bool(re.search(message, error)) for error in errors] == [True, True]
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    assert lakehouse.run_without_gates().is_good
    assert lakehouse.rows("gold.device_totals") == [("other", 1), ("phone", 7)]


@pytest.mark.usefixtures("production_streams")
def test_damaged_or_missing_state(lakehouse: Lakehouse) -> None:
    """Python writes silver's batches, and Spark writes gold's."""
    lakehouse.keep_only("activity", "device_totals")
    names = ("silver.activity", "gold.device_totals")
    silver, gold = (lakehouse.config.layout.checkpoint(name) / "state" for name in names)
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill()
    lakehouse.land("activity", "1.json", recording("13:30:00"))
    lakehouse.fill("bronze")
    # New rows for gold, without a run of silver.
    table = DeltaTable(lakehouse.config.layout.table("silver.activity"))
    write_deltalake(
        table, QueryBuilder().register("t", table).execute("select * from t limit 1"), mode="append"
    )
    before = [lakehouse.rows(name) for name in names]
    for state, layer, name in ((gold, "gold", names[1]), (silver, "silver", names[0])):
        message = f"state cannot be read: medallion refresh {name} "
        for file in [*state.local.rglob("*.zip"), *state.local.rglob("*.sst")]:
            file.write_bytes(b"damaged")
        with pytest.raises(StreamError, match=message):
            lakehouse.fill(layer)
        shutil.rmtree(state)
        with pytest.raises(StreamError, match=message):
            lakehouse.fill(layer)
    assert [lakehouse.rows(name) for name in names] == before


OTHER_SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


@pytest.mark.usefixtures("production_streams")
def test_settings_that_a_state_keeps(lakehouse: Lakehouse) -> None:
    """The state keeps its partitions and type; the watermark's delay applies at once."""
    lakehouse.keep_only("activity")
    lakehouse.land("activity", "0.json", *FIRST)
    lakehouse.fill("bronze", "silver")
    lakehouse.land("activity", "1.json", *SECOND)
    source = lakehouse.config.sources["activity"]
    shorter = replace(source, watermark=Duration.parse("30 minutes"))
    lakehouse.config = replace(lakehouse.config, sources={"activity": shorter})
    conf = lakehouse.spark.conf
    original = {key: str(conf.get(key)) for key in OTHER_SETTINGS}
    for key, value in OTHER_SETTINGS.items():
        conf.set(key, value)
    try:
        lakehouse.fill("bronze", "silver")
    finally:
        for key, value in original.items():
            conf.set(key, value)
    silver = lakehouse.config.layout.checkpoint("silver.activity")
    minutes = (datetime(2015, 2, 23, hour, 0, tzinfo=UTC).timestamp() for hour in (12, 13))
    # The first run leaves 13:00 less an hour; the second 13:30 less half an hour.
    watermarks = {checkpoints.watermark(silver, n) for n in range(last_planned(silver) + 1)} - {
        None
    }
    assert watermarks == {1000 * at for at in minutes}
    balance = run_audit(lakehouse.config).balances["activity"]
    assert (balance.is_balanced, balance.silver_rows, balance.duplicate_rows) == (True, 7, 5)
