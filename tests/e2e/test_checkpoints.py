"""Checkpoints that are gone, torn or damaged, and settings that they keep."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from medallion.config.values import Duration
from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.runtime import refresh
from medallion.runtime.graph import Pipeline
from medallion.runtime.planner import end_if_idle
from medallion.spark import checkpoints
from medallion.spark.checkpoints import last_planned
from medallion.spark.errors import StreamError
from medallion.state import ledger
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.lines import recording
from tests.support.three_nights import BY_HAND, DEVICES, FIRST, SECOND, THIRD


def test_a_checkpoint_that_is_gone(filled: Lakehouse) -> None:
    """Bronze goes on by its ledger, silver is not written twice, and gold is counted anew; as it is
    where its table is gone, with nothing else to do.

    An older ledger is repaired as long as bronze's log has the batches that it lacks. Without
    bronze's table, or beside an older one, nothing is ingested.
    """
    lakehouse = filled
    layout = lakehouse.config.layout
    shutil.copytree(layout.table("ops.files"), lakehouse.root / "copy")
    shutil.copytree(layout.table("bronze.activity"), lakehouse.root / "older")
    before = {name: lakehouse.rows(name) for name in ("silver.activity", "gold.device_totals")}
    for name in ("bronze.activity", "silver.activity", "gold.device_totals"):
        shutil.rmtree(layout.checkpoint(name))
    lakehouse.land("activity", "1.json", *SECOND)
    report = lakehouse.run_without_gates()
    assert [error for error in report.errors if "medallion refresh silver.activity" in error]
    assert {name: lakehouse.rows(name) for name in before} == before
    assert delta_tables.row_count(layout.table("bronze.activity")) == len(FIRST) + len(SECOND)
    refresh.refresh_table(lakehouse.pipeline(), "silver.activity")
    shutil.rmtree(layout.table("ops.files"))
    (lakehouse.root / "copy").rename(layout.table("ops.files"))
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.run_without_gates()
    assert report.is_good, report
    balance = report.balances["activity"]
    assert balance.landed_lines == balance.bronze_rows == 17
    taken = ledger.read_entries(layout, "activity")
    assert [(Path(e.path).name, e.state, e.rows) for e in taken] == [
        ("0.json", ledger.State.ARCHIVED, len(FIRST)),
        ("1.json", ledger.State.ARCHIVED, len(SECOND)),
        ("2.json", ledger.State.ARCHIVED, len(THIRD)),
    ]
    keys = Counter(lakehouse.rows("silver.activity", "device", "user_id", "recorded_at"))
    assert keys == Counter(dict.fromkeys(keys, 1))
    assert len(keys) == 9  # as BY_HAND has them
    assert lakehouse.rows("gold.device_totals") == DEVICES
    shutil.rmtree(layout.table("gold.device_totals"))
    assert run_audit(lakehouse.config, everything=True).findings == (
        "gold.device_totals: the table is missing; `medallion run gold` reports what to do.",
    )
    assert end_if_idle(lakehouse.config, "nightly", print) is None
    (layout.checkpoint("gold.device_totals") / "metadata").local.write_text("")  # a machine stopped
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == DEVICES
    # Killed as it wrote its first plan. Spark begins no query beside what is left then.
    for part in ("offsets", "commits"):
        shutil.rmtree(layout.checkpoint("gold.device_totals") / part)
        (layout.checkpoint("gold.device_totals") / part).local.mkdir()
    (layout.checkpoint("gold.device_totals") / "offsets/.0.1a.tmp").local.touch()
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == DEVICES
    layout.table("bronze.activity").local.rename(lakehouse.root / "away")
    with pytest.raises(MedallionError, match=r"bronze/activity is missing, and nothing else"):
        lakehouse.fill("bronze")
    assert not layout.table("bronze.activity").local.exists()
    assert not lakehouse.run_without_gates().is_counted
    (lakehouse.root / "older").rename(layout.table("bronze.activity"))
    lakehouse.land("activity", "3.json", recording("13:30:02"))
    told = r"bronze.activity cannot start: bronze.activity is older .* from one backup\.$"
    assert [each for each in lakehouse.run_without_gates().errors if re.search(told, each)]
    assert delta_tables.row_count(layout.table("bronze.activity")) == len(FIRST)
    shutil.rmtree(layout.table("bronze.activity"))
    (lakehouse.root / "away").rename(layout.table("bronze.activity"))
    balance = lakehouse.run_without_gates().balances["activity"]
    assert balance.is_balanced
    assert balance.landed_lines == 18


def test_the_last_files_of_checkpoints_are_torn(filled: Lakehouse) -> None:
    """An end that is gone is written again; a plan that is torn is made again, or told.

    Then silver and the records are put back as they were the night before, and gold is not.
    """
    lakehouse = filled
    layout = lakehouse.config.layout
    names = ("bronze.activity", "silver.activity", "gold.device_totals")
    for name in names:
        ends = layout.checkpoint(name) / "commits"
        max(
            ends.local.iterdir(), key=lambda end: int(end.name) if end.name.isdigit() else -1
        ).unlink()
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill()
    assert run_audit(lakehouse.config).is_balanced
    tables_of_silver = ("silver.activity", "quarantine.activity", "ops.runs", "ops.files")
    night = [*map(layout.table, tables_of_silver), layout.checkpoint("silver.activity")]
    for folder in night:
        shutil.copytree(folder, lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root))
    for name in ("bronze.activity", "gold.device_totals"):
        plan = layout.checkpoint(name) / "offsets" / str(last_planned(layout.checkpoint(name)))
        plan.local.write_text("v1\n{")
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.run_without_gates()
    assert report.errors == []
    assert report.balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES
    # Whose checkpoint is a new one, and has read as much.
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")

    for folder in night:
        shutil.rmtree(folder)
        shutil.copytree(lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root), folder)
    lakehouse.land("activity", "3.json", recording("13:30:02"))
    told = r"(silver|gold)\.\w+ cannot start: silver.activity is older .* medallion refresh \1"
    errors = lakehouse.run_without_gates().errors
    assert [bool(re.search(told, error)) for error in errors] == [True, True]
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    assert lakehouse.run_without_gates().is_good
    assert lakehouse.rows("gold.device_totals") == [("other", 1), ("phone", 9)]


def test_a_state_that_is_damaged_or_gone(filled: Lakehouse) -> None:
    """Of silver, whose batches Python writes, and of gold, whose batches Spark writes."""
    lakehouse = filled
    names = ("silver.activity", "gold.device_totals")
    silver, gold = (lakehouse.config.layout.checkpoint(name) / "state" for name in names)
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze", "silver")
    before = [lakehouse.rows(name) for name in names]
    lakehouse.land("activity", "2.json", *THIRD)
    lakehouse.fill("bronze")
    for state, layer, name in ((gold, "gold", names[1]), (silver, "silver", names[0])):
        told = f"state cannot be read: medallion refresh {name} "
        for file in [*state.local.rglob("*.zip"), *state.local.rglob("*.sst")]:
            file.write_bytes(b"damaged")
        with pytest.raises(StreamError, match=told):
            lakehouse.fill(layer)
        shutil.rmtree(state)
        with pytest.raises(StreamError, match=told):
            lakehouse.fill(layer)
    assert [lakehouse.rows(name) for name in names] == before


OTHERS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


def test_settings_that_a_state_keeps_and_one_that_it_does_not(filled: Lakehouse) -> None:
    """Partitions and kind of the state are told and kept; the watermark's delay counts from now.

    Gold's older checkpoint is put back then: Delta would pass over what its next batch writes. And
    of what was handed over to bronze the last commit is lost.
    """
    lakehouse = filled
    gold = lakehouse.config.layout.checkpoint("gold.device_totals")
    shutil.copytree(gold, lakehouse.root / "copy")
    lakehouse.land("activity", "1.json", *SECOND)
    source = lakehouse.config.sources["activity"]
    sooner = replace(source, watermark=Duration.parse("30 minutes"))
    lakehouse.config = replace(lakehouse.config, sources={"activity": sooner})
    conf = lakehouse.spark.conf
    then = {key: str(conf.get(key)) for key in OTHERS}
    for key, value in OTHERS.items():
        conf.set(key, value)
    try:
        for layer in ("bronze", "silver", "gold"):
            Pipeline(lakehouse.spark, lakehouse.config, "test", print).run(layer)
    finally:
        for key, value in then.items():
            conf.set(key, value)
    silver = lakehouse.config.layout.checkpoint("silver.activity")
    minutes = (datetime(2015, 2, 23, hour, 0, tzinfo=UTC).timestamp() for hour in (12, 13))
    # The first night leaves 13:00 less an hour; the second 13:30 less half an hour.
    marks = {checkpoints.watermark(silver, n) for n in range(last_planned(silver) + 1)} - {None}
    assert marks == {1000 * at for at in minutes}
    shutil.rmtree(gold)
    (lakehouse.root / "copy").rename(gold)
    handed = lakehouse.config.layout.intake("activity")
    (handed / f"_delta_log/{delta_tables.table_version(handed):020}.json").local.unlink()
    lakehouse.land("activity", "2.json", *THIRD)
    assert lakehouse.run_without_gates().balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES
