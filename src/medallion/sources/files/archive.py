"""Files whose rows are committed and accounted for leave the source's folders."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.lakehouse import clock
from medallion.lakehouse.layout import Layout
from medallion.lakehouse.text import Say, counted
from medallion.ops.ledger import ARCHIVED, INGESTED, Entry, Ledger
from medallion.sources.files.listing import below_folder, free_name, look, namesakes, with_folders
from medallion.sources.files.moving import Moves

_DELETED = "deleted, as clean_source asks for"


def clean(config: Config, source: SourceConfig, ledger: Ledger, batch: int, say: Say) -> None:
    """Archive or delete what batches up to `batch` took in, once `clean_after` has passed; what
    cannot be is tried each time, and told once."""
    if source.clean_source == "off":
        return
    # Without `clean_after` no time is compared: a clock that was put back would keep files here.
    age = source.clean_after.micros if source.clean_after else None
    latest = clock.now() - (age or 0)
    changed: list[Entry] = []
    with Moves() as moves:
        for entry in ledger.all_newest():
            is_on_record = entry.state == INGESTED and (entry.batch or 0) <= batch
            if is_on_record and (age is None or (entry.committed_at or 0) <= latest):
                row = _put_away(config, source, entry, moves)
                if row and row != entry:
                    changed.append(row)
    ledger.write(changed)
    stuck = Counter(entry.why for entry in changed if entry.state == INGESTED)
    for why, files in stuck.items():
        told = f"{counted(files, 'file')} whose rows are in bronze {why}"
        say(f"  {source.name}: {told} (medallion files --state {INGESTED})")


def _put_away(config: Config, source: SourceConfig, entry: Entry, moves: Moves) -> Entry | None:
    """Archive or delete a file, and give its new row; None where it is not ours to move."""
    layout = config.layout
    below = below_folder(layout, source, layout.root / entry.path)
    if below is None:  # a backfill's file stays where its owner keeps it
        return None
    target = with_folders(layout.archive(source.name), below)
    try:
        found = look(layout, entry.path)
        if found is None:
            return _cleaned_before(layout, source, entry, target)
        if found != entry.file:  # another file has come under this name: discovery tells of it
            return None
        if source.clean_source == "delete":
            is_done = moves.delete(layout.root / entry.path, entry.file)
            return replace(entry, state=ARCHIVED, why=_DELETED) if is_done else None
        target = free_name(target)
        if not moves.move(layout.root / entry.path, target, entry.file):
            return None
    except OSError as error:  # the other files are no worse for it; the next run tries again
        return replace(entry, why=f"cannot be moved: {error.strerror or error}")
    return replace(entry, state=ARCHIVED, why=None, moved_to=layout.relative(target))


def _cleaned_before(
    layout: Layout, source: SourceConfig, entry: Entry, target: Path
) -> Entry | None:
    """The new row of a file that a run moved which was cut off before the ledger had that."""
    if source.clean_source == "delete":
        return replace(entry, state=ARCHIVED, why=_DELETED)
    for place in takewhile(os.path.lexists, namesakes(target)):
        moved = look(layout, layout.relative(place))
        if moved is not None and entry.file == replace(moved, path=entry.path):
            return replace(entry, state=ARCHIVED, why=None, moved_to=moved.path)
    return None
