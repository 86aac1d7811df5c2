"""Checkpoint files as Spark writes them, without a running query."""

from __future__ import annotations

import json

from medallion.storage.layout import Layout


def write_plan(
    layout: Layout, query: str, batch: int, version: int, watermark: int = 0, of: str = ""
) -> None:
    """Write the offsets of a batch that reads a Delta table up to the commits before `version`.

    Args:
        of: the table's id.
    """
    folder = layout.checkpoint(query) / "offsets"
    folder.local.mkdir(parents=True, exist_ok=True)
    meta = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 0, "conf": {}})
    offset = {"reservoirVersion": version, "index": -1, "isStartingVersion": False}
    position = json.dumps({"reservoirId": of, **offset})
    (folder / str(batch)).local.write_text(f"v1\n{meta}\n{position}")


def write_completed(
    layout: Layout, query: str, batch: int, version: int, watermark: int = 0, of: str = ""
) -> None:
    """Write the offsets and the commit of a completed batch."""
    write_plan(layout, query, batch, version, watermark, of)
    folder = layout.checkpoint(query) / "commits"
    folder.local.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).local.write_text("v1\n{}")
