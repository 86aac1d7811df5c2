"""What Spark leaves of a streaming query, made by hand."""

from __future__ import annotations

import json

from medallion.storage.paths import Layout


def planned(
    layout: Layout, query: str, batch: int, version: int, watermark: int = 0, of: str = ""
) -> None:
    """A batch that is to read a Delta table, of this id, up to the commits before `version`."""
    folder = layout.checkpoint(query) / "offsets"
    folder.local.mkdir(parents=True, exist_ok=True)
    meta = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 0, "conf": {}})
    offset = {"reservoirVersion": version, "index": -1, "isStartingVersion": False}
    position = json.dumps({"reservoirId": of, **offset})
    (folder / str(batch)).local.write_text(f"v1\n{meta}\n{position}")


def done(
    layout: Layout, query: str, batch: int, version: int, watermark: int = 0, of: str = ""
) -> None:
    """Such a batch after its end."""
    planned(layout, query, batch, version, watermark, of)
    folder = layout.checkpoint(query) / "commits"
    folder.local.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).local.write_text("v1\n{}")
