"""Corrupt and missing checkpoints, written as Spark does, without Spark."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from medallion.errors import MedallionError, UsageError
from medallion.layers import recovery
from medallion.layers.silver.writer import SilverTables
from medallion.spark import checkpoints
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from tests.support.delta_log import added_files

OFFSET = {"reservoirVersion": 5, "index": -1}


@pytest.fixture
def checkpoint(tmp_path: Path) -> StoragePath:
    """Return a checkpoint of query `one`: batches 0 to 2 are complete, 3 has started."""
    checkpoint = tmp_path / "silver.a"
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"one"}')
    for number in range(4):
        lines = ["v1", json.dumps({"batchWatermarkMs": 0, "conf": {}}), json.dumps(OFFSET)]
        (checkpoint / "offsets" / str(number)).write_text("\n".join(lines))
        if number < 3:
            (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return StoragePath(checkpoint)


def append_batch(table: Path, batch: int, query: str = "one") -> Path:
    """Append a row of a batch to a table; the query is by default the checkpoint's."""
    rows = duckdb.connect().sql("select 1 as n")
    properties = CommitProperties(app_transactions=[Transaction(query, batch)])
    write_deltalake(table, rows, mode="append", commit_properties=properties)
    return table


def test_intact_checkpoint_is_unchanged(checkpoint: StoragePath) -> None:
    assert recovery.repair_checkpoint(checkpoint, ()) is None
    assert checkpoints.last_planned(checkpoint) == 3
    assert checkpoints.corrupt_part(StoragePath(checkpoint.local.with_name("none"))) is None


def test_corrupt_plan_without_writes_is_removed(checkpoint: StoragePath) -> None:
    plan = checkpoint / "offsets/3"
    plan.local.write_text('v1\n{"batchWat')
    names = ("2.crc", "3.crc", "4.0a.tmp", ".4.0a.tmp.crc")
    hidden = [checkpoint / f"offsets/.{name}" for name in names] + [checkpoint / "commits/.3.crc"]
    for file in hidden:
        file.local.touch()
    table = append_batch(checkpoint.local.with_name("table"), 2)
    assert recovery.repair_checkpoint(checkpoint, (StoragePath(table),)) is None
    assert checkpoints.last_planned(checkpoint) == 2
    # Hadoop would not replace a file whose checksum file it did not write.
    assert [file.local.exists() for file in hidden] == [True, False, False, False, False]


def test_remnants_of_a_first_plan_are_removed(checkpoint: StoragePath) -> None:
    """Spark starts no query beside remnants; the query's id is kept if it is intact."""
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).local.iterdir():
            file.unlink()
    (checkpoint / "offsets/.0.1a.tmp").local.touch()
    (checkpoint / "state/0").local.mkdir(parents=True)
    intact = (checkpoint / "metadata").local.read_text()
    for metadata in (intact, intact[:5]):
        (checkpoint / "metadata").local.write_text(metadata)
        assert recovery.repair_checkpoint(checkpoint, ()) is None
        assert (checkpoint / "metadata").local.exists() == (metadata == intact)
        assert {file.name for file in checkpoint.local.rglob("*")} <= {
            "offsets",
            "commits",
            "metadata",
        }


def test_corrupt_plan_with_writes_is_not_repaired(checkpoint: StoragePath) -> None:
    """The new batch of that number may have other rows, which would wrongly count as written."""
    plan = checkpoint / "offsets/3"
    plan.local.write_text("")
    table = StoragePath(append_batch(checkpoint.local.with_name("table"), 3))
    assert recovery.repair_checkpoint(checkpoint, (table,)) == StoragePath(plan)
    with pytest.raises(UsageError, match=r"offsets/3 is missing or corrupt\. .*refresh silver.a"):
        recovery.refuse_lost_checkpoint("silver.a", checkpoint, (table,), recorded=2)


def test_corrupt_commit_is_removed(checkpoint: StoragePath) -> None:
    (checkpoint / "offsets/3").local.unlink()
    (checkpoint / "commits/2").local.write_text("v1")
    assert recovery.repair_checkpoint(checkpoint, ()) is None
    assert (
        checkpoints.last_planned(checkpoint),
        checkpoints.last_committed(checkpoint),
    ) == (2, 1)
    recovery.refuse_lost_checkpoint("silver.a", checkpoint, (), recorded=2)


@pytest.mark.parametrize("part", ["offsets/2", "metadata"])
def test_unrepairable_part_is_returned(checkpoint: StoragePath, part: str) -> None:
    (checkpoint / part).local.write_text("v1\n")
    assert recovery.repair_checkpoint(checkpoint, ()) == StoragePath(checkpoint / part)


def test_checkpoint_without_recorded_batches_is_refused(checkpoint: StoragePath) -> None:
    recovery.refuse_lost_checkpoint("silver.a", checkpoint, (), recorded=3)
    with pytest.raises(UsageError, match=r"silver.a cannot continue.* medallion refresh silver.a"):
        recovery.refuse_lost_checkpoint("silver.a", checkpoint, (), recorded=4)


def test_batch_is_unrecorded_once_it_has_written(checkpoint: StoragePath) -> None:
    table = checkpoint.local.with_name("table")

    def has_unrecorded() -> list[bool]:
        tables = (StoragePath(table),)
        return [recovery.has_unrecorded(checkpoint, tables, recorded) for recorded in (1, 2, 3)]

    assert has_unrecorded() == [True, False, False]
    append_batch(table, 3)
    assert has_unrecorded() == [True, True, False]
    shutil.rmtree(table)
    (checkpoint / "offsets/3").local.write_text("v1")  # corrupt, so this is unknown
    assert has_unrecorded() == [True, True, False]


def test_first_batch_has_started_writing(checkpoint: StoragePath) -> None:
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).local.glob("[1-3]"):
            file.unlink()
    table = StoragePath(checkpoint.local.with_name("table"))
    assert not recovery.has_started_writing(checkpoint, [table])
    append_batch(table.local, 0)
    assert recovery.has_started_writing(checkpoint, [table])


def test_batch_whose_rows_are_removed_is_refused(checkpoint: StoragePath) -> None:
    """Their files were compacted, and the record of their batch was lost."""
    bronze = StoragePath(checkpoint.local.with_name("bronze"))
    for batch in range(5):
        append_batch(bronze.local, batch)
    for number in range(4):
        plan = checkpoint / f"offsets/{number}"
        plan.local.write_text(plan.local.read_text().replace(": 5", f": {number + 2}"))
    files = [bronze / added_files(bronze.local, version)[0]["path"] for version in range(5)]
    no_session: Any = None
    for number, removed in ((0, files[1]), (2, files[3])):
        removed.local.unlink()
        with pytest.raises(UsageError, match=rf"silver.a: batch {number} .* refresh silver.a"):
            SilverTables(
                bronze,
                StoragePath(bronze.local.with_name("a")),
                bronze,
                checkpoint,
            ).batch_rows(no_session, number)


def test_batch_without_its_offsets_is_refused(checkpoint: StoragePath) -> None:
    """Spark keeps the offsets of a hundred batches."""
    table = checkpoint.local.with_name("bronze")
    tables = SilverTables(
        StoragePath(table), StoragePath(table.with_name("a")), StoragePath(table), checkpoint
    )
    (checkpoint / "offsets/1").local.unlink()
    for batch in (1, 2):
        with pytest.raises(UsageError, match=rf"silver.a: batch {batch} .* refresh silver.a"):
            tables.versions_read(batch)


def test_table_without_its_checkpoint_is_refused(checkpoint: StoragePath) -> None:
    table = append_batch(checkpoint.local.with_name("table"), 2)
    shutil.rmtree(checkpoint)
    recovery.refuse_lost_checkpoint(
        "silver.a", checkpoint, (StoragePath(table.with_name("none")),), recorded=-1
    )
    with pytest.raises(UsageError, match=r"medallion refresh silver\.a"):
        recovery.refuse_lost_checkpoint("silver.a", checkpoint, (StoragePath(table),), recorded=-1)


def test_checkpoint_of_another_table_is_refused(checkpoint: StoragePath) -> None:
    """The table was moved away, or an older copy of the checkpoint was restored."""
    table = StoragePath(append_batch(checkpoint.local.with_name("table"), 3))
    assert recovery.repair_and_compare(checkpoint, (table,)) is None
    none = checkpoint.local.with_name("none")
    with pytest.raises(UsageError, match=r"none is missing\. .*medallion refresh silver\.a"):
        recovery.refuse_lost_checkpoint(
            "silver.a", checkpoint, (table, StoragePath(none)), recorded=3
        )
    append_batch(table.local, 4)
    with pytest.raises(UsageError, match="is older than what its batches have written"):
        recovery.refuse_lost_checkpoint("silver.a", checkpoint, (table,), recorded=3)
    foreign = append_batch(checkpoint.local.with_name("foreign"), 9, query="another")
    DeltaTable(foreign).delete()
    recovery.refuse_lost_checkpoint("silver.a", checkpoint, (StoragePath(foreign),), recorded=3)
    other_query = append_batch(checkpoint.local.with_name("another"), 9, query="another")
    with pytest.raises(UsageError, match="lacks the batches that have written its rows"):
        recovery.refuse_lost_checkpoint(
            "silver.a", checkpoint, (StoragePath(other_query),), recorded=3
        )
    assert "is older" in (recovery.repair_and_compare(checkpoint, (table,)) or "")


def test_drop_checkpoint_keeps_the_definition(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    (layout.checkpoint("gold.a") / "state").local.mkdir(parents=True)
    for name in ("definition", "settings"):
        checkpoints.write_document(layout.checkpoint("gold.a"), name, {"keys": ["a"]})
    recovery.drop_checkpoint(layout, "gold.a")
    checkpoint = layout.checkpoint("gold.a")
    assert checkpoints.read_document(checkpoint, "definition") == {"keys": ["a"]}
    assert checkpoints.read_document(checkpoint, "settings") is None
    assert [path.name for path in checkpoint.parent.local.iterdir()] == ["1"]


def test_delta_offset_reports_a_corrupt_part(checkpoint: StoragePath) -> None:
    (checkpoint / "offsets/2").local.write_text("v1\n{")
    with pytest.raises(MedallionError, match=r"offsets/2 is missing or corrupt: medallion nightly"):
        checkpoints.delta_offset(checkpoint, 2)
