"""Files whose rows are committed and accounted for leave the source's folders."""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

from medallion.config import Config, Source, seconds
from medallion.ingest.files import below_folder, free_name, stat
from medallion.ingest.ledger import ARCHIVED, INGESTED, Entry, Ledger

_DELETED = "deleted, as clean_source asks for"


def clean(config: Config, source: Source, ledger: Ledger, batch: int) -> None:
    """Archive or delete what batches up to `batch` took in, once `clean_after` has passed."""
    if source.clean_source == "off":
        return
    age = seconds(source.clean_after) * 1_000_000 if source.clean_after else 0
    latest = time.time_ns() // 1000 - age
    done = [
        cleaned
        for entry in ledger.all_newest()
        if entry.state == INGESTED
        and (entry.batch or 0) <= batch
        and (entry.committed_at or 0) <= latest
        and (cleaned := _cleaned(config, source, entry))
    ]
    ledger.write(done)


def _cleaned(config: Config, source: Source, entry: Entry) -> Entry | None:
    """The new row of a file that has been moved; None where it is not ours to move."""
    layout = config.layout
    below = below_folder(layout, source, layout.root / entry.path)
    if below is None:  # a backfill's file stays where its owner keeps it
        return None
    found = stat(layout, entry.path)
    target = layout.archive(source.name) / below
    if found is None:
        # A run may have been cut off between the move and its record.
        moved = stat(layout, layout.relative(target))
        is_there = moved is not None and entry.file == replace(moved, path=entry.path)
        return replace(entry, state=ARCHIVED, moved_to=moved.path) if moved and is_there else None
    if found != entry.file:  # another file has come under this name: discovery tells of it
        return None
    if source.clean_source == "delete":
        (layout.root / entry.path).unlink()
        return replace(entry, state=ARCHIVED, why=_DELETED)
    target = free_name(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(layout.root / entry.path, target)
    return replace(entry, state=ARCHIVED, moved_to=layout.relative(target))
