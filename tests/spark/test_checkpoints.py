"""Checkpoints in Spark's format, read without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medallion.errors import MedallionError
from medallion.spark import checkpoints
from medallion.spark.checkpoints import DeltaOffset
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from tests.support.checkpoints import write_completed, write_plan

QUERY = "silver.a"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_checkpoint_before_the_first_run(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    assert checkpoints.last_planned(folder) == checkpoints.last_committed(folder) == -1
    assert checkpoints.delta_offset(folder, -1) == DeltaOffset(0, -1)
    assert checkpoints.watermark(folder, -1) is None
    assert checkpoints.read_document(folder, "rules") is None
    assert not folder.local.exists()


def test_batches_are_ordered_by_number(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    for batch in (2, 9, 10):
        write_completed(layout, QUERY, batch, version=batch)
    write_plan(layout, QUERY, 11, version=11)
    (folder / "commits" / ".12.crc").local.touch()  # Hadoop's checksum of a missing file
    (folder / "commits" / "13.tmp").local.touch()
    assert (checkpoints.last_committed(folder), checkpoints.last_planned(folder)) == (10, 11)


def test_offset_and_watermark_of_a_batch(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    write_completed(layout, QUERY, 0, version=4, watermark=0)
    write_completed(layout, QUERY, 1, version=7, watermark=1_519_984_953_000)
    assert checkpoints.delta_offset(folder, 0) == DeltaOffset(4, -1)
    assert checkpoints.delta_offset(folder, 1) == DeltaOffset(7, -1)
    assert checkpoints.watermark(folder, 0) is None
    assert checkpoints.watermark(folder, 1) == 1_519_984_953_000
    with pytest.raises(MedallionError, match=r"offsets/2 is missing or corrupt: medallion nightly"):
        checkpoints.delta_offset(folder, 2)


@pytest.mark.parametrize(
    ("index", "is_between"), [(-1, True), (-100, True), (0, False), (3, False)]
)
def test_offset_between_or_within_versions(index: int, is_between: bool) -> None:
    assert DeltaOffset(5, index).is_between_versions == is_between


def test_first_definition_is_kept_after_a_batch(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    a, b, c = {"keys": ["a"]}, {"keys": ["b"]}, {"keys": ["c"]}
    assert checkpoints.record_first_definition(folder, a, has_written=False) == a
    # Nothing was written by it yet.
    assert checkpoints.record_first_definition(folder, b, has_written=False) == b
    assert checkpoints.record_first_definition(folder, c, has_written=True) == b, (
        "the first batch was interrupted"
    )
    write_completed(layout, QUERY, 0, version=1)
    assert checkpoints.record_first_definition(folder, c, has_written=False) == b
    assert checkpoints.read_document(folder, "definition") == {"keys": ["b"]}


def test_query_id_is_read_from_the_metadata(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    folder.local.mkdir(parents=True)
    (folder / "metadata").local.write_text(json.dumps({"id": "8d3c-1"}))
    assert checkpoints.query_id(folder) == "8d3c-1"


def test_start_generation_replaces_the_checkpoint(layout: Layout) -> None:
    first = layout.checkpoint(QUERY)
    write_completed(layout, QUERY, 0, version=1)
    for number in (1, 2):
        new = checkpoints.next_generation(layout, QUERY)
        (new / "offsets").local.mkdir(parents=True)
        assert checkpoints.next_generation(layout, QUERY) == new
        assert not new.local.exists(), "an interrupted process left it"
        (new / "offsets").local.mkdir(parents=True)
        checkpoints.start_generation(layout, QUERY)
        assert layout.checkpoint(QUERY) == new == first / str(number)
        assert first.children() == [new]
    assert checkpoints.last_planned(new) == -1


def test_start_generation_killed_before_the_removal(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_completed(layout, QUERY, 0, version=1)
    monkeypatch.setattr(StoragePath, "delete_prefix", raise_full)
    with pytest.raises(OSError, match="full"):
        checkpoints.start_generation(layout, QUERY)
    assert checkpoints.last_committed(layout.checkpoint(QUERY)) == -1
    monkeypatch.undo()
    checkpoints.remove_old_generations(layout, QUERY)
    assert layout.checkpoint_pointer(QUERY).parent.children() == [
        layout.checkpoint_pointer(QUERY).parent / QUERY,
        layout.checkpoint_pointer(QUERY),
    ]
    assert (layout.checkpoint_pointer(QUERY).parent / QUERY).children() == []


def test_remove_old_generations_of_the_first_one(layout: Layout) -> None:
    """Beside it are the checkpoints of other queries."""
    for query in (QUERY, "silver.other"):
        write_completed(layout, query, 0, version=1)
    checkpoints.remove_old_generations(layout, QUERY)
    for query in (QUERY, "silver.other"):
        assert checkpoints.last_committed(layout.checkpoint(query)) == 0


def test_corrupt_part_of_a_disk_that_does_not_answer(
    layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is known to be corrupt, so nothing may be repaired."""
    write_completed(layout, QUERY, 0, version=1)
    monkeypatch.setattr(StoragePath, "read", raise_full)
    with pytest.raises(OSError, match="full"):
        checkpoints.corrupt_part(layout.checkpoint(QUERY))


def raise_full(_: StoragePath) -> None:
    raise OSError("full")


def test_read_document(layout: Layout) -> None:
    checkpoint = layout.checkpoint(QUERY)
    assert checkpoints.read_document(checkpoint, "rules") is None
    checkpoints.write_document(checkpoint, "rules", {"a": 1})
    checkpoints.write_document(checkpoint, "replay", {"of": "b"})
    checkpoints.write_document(checkpoint, "replay", None)
    assert checkpoints.read_document(checkpoint, "rules") == {"a": 1}
    assert checkpoints.read_document(checkpoint, "replay") is None
    (checkpoint / "medallion.json").local.write_text("{")
    with pytest.raises(MedallionError, match=r"medallion\.json is damaged"):
        checkpoints.read_document(checkpoint, "rules")
