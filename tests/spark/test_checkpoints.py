"""Checkpoints as Spark writes them, read without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from medallion.errors import MedallionError
from medallion.spark import checkpoints
from medallion.spark.checkpoints import DeltaOffset
from medallion.storage.paths import Layout
from tests.support.checkpoints import done, planned

QUERY = "silver.a"


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_a_query_that_has_never_run(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    assert checkpoints.last_planned(folder) == checkpoints.last_committed(folder) == -1
    assert checkpoints.delta_offset(folder, -1) == DeltaOffset(0, -1)
    assert checkpoints.watermark(folder, -1) is None
    assert checkpoints.read_document(folder, "rules") is None
    assert not folder.exists()


def test_batches_are_ordered_by_number(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    for batch in (2, 9, 10):
        done(layout, QUERY, batch, version=batch)
    planned(layout, QUERY, 11, version=11)
    (folder / "commits" / ".12.crc").touch()  # Hadoop's checksum of one that is gone
    (folder / "commits" / "13.tmp").touch()
    assert (checkpoints.last_committed(folder), checkpoints.last_planned(folder)) == (10, 11)


def test_offset_and_watermark_of_a_batch(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    done(layout, QUERY, 0, version=4, watermark=0)
    done(layout, QUERY, 1, version=7, watermark=1_519_984_953_000)
    assert checkpoints.delta_offset(folder, 0) == DeltaOffset(4, -1)
    assert checkpoints.delta_offset(folder, 1) == DeltaOffset(7, -1)
    assert checkpoints.watermark(folder, 0) is None
    assert checkpoints.watermark(folder, 1) == 1_519_984_953_000
    with pytest.raises(
        MedallionError, match=r"offsets/2 is missing or corrupt: medallion run silver"
    ):
        checkpoints.delta_offset(folder, 2)


@pytest.mark.parametrize(("index", "is_whole"), [(-1, True), (-100, True), (0, False), (3, False)])
def test_an_offset_between_or_within_versions(index: int, is_whole: bool) -> None:
    assert DeltaOffset(5, index).is_between_versions == is_whole


def test_the_definition_is_that_of_the_first_batch(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    a, b, c = {"keys": ["a"]}, {"keys": ["b"]}, {"keys": ["c"]}
    assert checkpoints.first_definition(folder, a, has_written=False) == a
    # Nothing was made by it yet.
    assert checkpoints.first_definition(folder, b, has_written=False) == b
    assert checkpoints.first_definition(folder, c, has_written=True) == b, "it was interrupted"
    done(layout, QUERY, 0, version=1)
    assert checkpoints.first_definition(folder, c, has_written=False) == b
    assert checkpoints.read_document(folder, "definition") == {"keys": ["b"]}


def test_query_id_is_sparks(layout: Layout) -> None:
    folder = layout.checkpoint(QUERY)
    folder.mkdir(parents=True)
    (folder / "metadata").write_text(json.dumps({"id": "8d3c-1"}))
    assert checkpoints.query_id(folder) == "8d3c-1"
