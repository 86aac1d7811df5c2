"""What Spark leaves of a streaming query, made by hand."""

from __future__ import annotations

import json

from medallion.lakehouse.layout import Layout


def planned(layout: Layout, query: str, batch: int, version: int, watermark: int = 0) -> None:
    """A batch that is to read a Delta table up to the commits before `version`."""
    folder = layout.checkpoint(query) / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    meta = json.dumps({"batchWatermarkMs": watermark, "batchTimestampMs": 0, "conf": {}})
    offset = json.dumps({"reservoirVersion": version, "index": -1, "isStartingVersion": False})
    (folder / str(batch)).write_text(f"v1\n{meta}\n{offset}")


def done(layout: Layout, query: str, batch: int, version: int, watermark: int = 0) -> None:
    """Such a batch after its end."""
    planned(layout, query, batch, version, watermark)
    folder = layout.checkpoint(query) / "commits"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).write_text("v1\n{}")
