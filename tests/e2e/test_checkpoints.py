"""Checkpoints that are missing, truncated or damaged, and settings that they keep."""

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
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.planner import end_if_idle
from medallion.spark import checkpoints
from medallion.spark.checkpoints import last_planned
from medallion.spark.errors import StreamError
from medallion.state import ledger
from medallion.storage import delta_tables
from tests.support.lakehouse import Lakehouse
from tests.support.lines import recording
from tests.support.three_nights import BY_HAND, DEVICES, FIRST, SECOND, THIRD


def test_missing_checkpoints(filled: Lakehouse) -> None:
    """Bronze continues from its ledger, silver is not written twice, and gold is recomputed.

    Gold is also recomputed if its table is missing, without other work. An older ledger is
    repaired while bronze's log has the missing batches. If bronze's table is missing or older,
    nothing is ingested.
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
    entries = ledger.read_entries(layout, "activity")
    assert [(Path(e.path).name, e.state, e.rows) for e in entries] == [
        ("0.json", ledger.State.ARCHIVED, len(FIRST)),
        ("1.json", ledger.State.ARCHIVED, len(SECOND)),
        ("2.json", ledger.State.ARCHIVED, len(THIRD)),
    ]
    keys = Counter(lakehouse.rows("silver.activity", "device", "user_id", "recorded_at"))
    assert keys == Counter(dict.fromkeys(keys, 1))
    assert len(keys) == 9  # as in BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES
    shutil.rmtree(layout.table("gold.device_totals"))
    assert run_audit(lakehouse.config, everything=True).findings == (
        "gold.device_totals: the table is missing; `medallion run gold` reports what to do.",
    )
    assert end_if_idle(lakehouse.config, "nightly", print) is None
    # The machine stopped.
    (layout.checkpoint("gold.device_totals") / "metadata").local.write_text("")
    lakehouse.fill("gold")
    assert lakehouse.rows("gold.device_totals") == DEVICES
    # The process was killed while it wrote its first plan; Spark starts no query beside the
    # remnants.
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
    message = r"bronze.activity cannot start: bronze.activity is older .* from one backup\.$"
    assert [error for error in lakehouse.run_without_gates().errors if re.search(message, error)]
    assert delta_tables.row_count(layout.table("bronze.activity")) == len(FIRST)
    shutil.rmtree(layout.table("bronze.activity"))
    (lakehouse.root / "away").rename(layout.table("bronze.activity"))
    balance = lakehouse.run_without_gates().balances["activity"]
    assert balance.is_balanced
    assert balance.landed_lines == 18


def test_corrupt_last_files_of_checkpoints(filled: Lakehouse) -> None:
    """A missing commit is written again; a corrupt plan is created again or reported.

    Then silver and the records are restored from the run before, but gold is not.
    """
    lakehouse = filled
    layout = lakehouse.config.layout
    names = ("bronze.activity", "silver.activity", "gold.device_totals")
    for name in names:
        commits = layout.checkpoint(name) / "commits"
        max(
            commits.local.iterdir(), key=lambda file: int(file.name) if file.name.isdigit() else -1
        ).unlink()
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill()
    assert run_audit(lakehouse.config).is_balanced
    silver_tables = ("silver.activity", "quarantine.activity", "ops.runs", "ops.files")
    backup = [*map(layout.table, silver_tables), layout.checkpoint("silver.activity")]
    for folder in backup:
        shutil.copytree(folder, lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root))
    for name in ("bronze.activity", "gold.device_totals"):
        plan = layout.checkpoint(name) / "offsets" / str(last_planned(layout.checkpoint(name)))
        plan.local.write_text("v1\n{")
    lakehouse.land("activity", "2.json", *THIRD)
    report = lakehouse.run_without_gates()
    assert report.errors == []
    assert report.balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES
    # Its new checkpoint has read as much.
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")

    for folder in backup:
        shutil.rmtree(folder)
        shutil.copytree(lakehouse.root / "copy" / folder.local.relative_to(lakehouse.root), folder)
    lakehouse.land("activity", "3.json", recording("13:30:02"))
    message = r"(silver|gold)\.\w+ cannot start: silver.activity is older .* medallion refresh \1"
    errors = lakehouse.run_without_gates().errors
    assert [bool(re.search(message, error)) for error in errors] == [True, True]
    refresh.refresh_table(lakehouse.pipeline(), "gold.device_totals")
    assert lakehouse.run_without_gates().is_good
    assert lakehouse.rows("gold.device_totals") == [("other", 1), ("phone", 9)]


def test_damaged_or_missing_state(filled: Lakehouse) -> None:
    """Python writes silver's batches, and Spark writes gold's."""
    lakehouse = filled
    names = ("silver.activity", "gold.device_totals")
    silver, gold = (lakehouse.config.layout.checkpoint(name) / "state" for name in names)
    lakehouse.land("activity", "1.json", *SECOND)
    lakehouse.fill("bronze", "silver")
    before = [lakehouse.rows(name) for name in names]
    lakehouse.land("activity", "2.json", *THIRD)
    lakehouse.fill("bronze")
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


def test_settings_that_a_state_keeps(filled: Lakehouse) -> None:
    """The state keeps its partitions and type; the watermark's delay applies at once.

    Then gold's older checkpoint is restored, whose next batch Delta would skip as already written,
    and the last commit of bronze's queue is removed.
    """
    lakehouse = filled
    gold = lakehouse.config.layout.checkpoint("gold.device_totals")
    shutil.copytree(gold, lakehouse.root / "copy")
    lakehouse.land("activity", "1.json", *SECOND)
    source = lakehouse.config.sources["activity"]
    shorter = replace(source, watermark=Duration.parse("30 minutes"))
    lakehouse.config = replace(lakehouse.config, sources={"activity": shorter})
    conf = lakehouse.spark.conf
    original = {key: str(conf.get(key)) for key in OTHER_SETTINGS}
    for key, value in OTHER_SETTINGS.items():
        conf.set(key, value)
    try:
        for layer in ("bronze", "silver", "gold"):
            Pipeline(lakehouse.spark, lakehouse.config, "test", print).run(layer)
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
    shutil.rmtree(gold)
    (lakehouse.root / "copy").rename(gold)
    queue = lakehouse.config.layout.queue("activity")
    (queue / f"_delta_log/{delta_tables.table_version(queue):020}.json").local.unlink()
    lakehouse.land("activity", "2.json", *THIRD)
    assert lakehouse.run_without_gates().balances["activity"] == BY_HAND
    assert lakehouse.rows("gold.device_totals") == DEVICES
