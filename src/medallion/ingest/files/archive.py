"""Files that are done with leave the source's folders: those whose rows are committed and accounted
for, and those that cannot be read."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files.listing import (
    below_folder,
    look,
    with_folders,
)
from medallion.state.ledger import (
    ARCHIVED,
    INGESTED,
    REJECTED,
    UNREADABLE,
    Entry,
    Ledger,
    Reason,
    ReasonCode,
)
from medallion.storage import clock
from medallion.storage.files import FileInfo, free_path, numbered_paths
from medallion.storage.paths import REASON_SUFFIX, Layout
from medallion.storage.text import Reporter, counted, error_reason

_DELETED = Reason(ReasonCode.DELETED, "deleted, as clean_source asks for")


def clean(config: Config, source: SourceConfig, ledger: Ledger, batch: int, say: Reporter) -> None:
    """Archive or delete what batches up to `batch` took in, once `clean_after` has passed, and move
    to `rejected/` what is still to be; what cannot be is tried each time, and told once."""
    # Without `clean_after` no time is compared: a clock that was put back would keep files here.
    age = source.clean_after.micros if source.clean_after else None
    latest = clock.now_micros() - (age or 0)

    def is_due(entry: Entry) -> bool:
        if entry.state != INGESTED or source.clean_source == "off":
            return entry.state == UNREADABLE
        is_on_record = (entry.batch or 0) <= batch
        return is_on_record and (age is None or (entry.committed_at or 0) <= latest)

    changed: list[Entry] = []
    due = list(filter(is_due, ledger.newest_entries()))
    if due and source.clean_source == "delete":
        os.sync()  # should the power fail, the rows would be nowhere else
    for entry in due:
        try:
            row = _put_away(config.layout, source, entry)
        except OSError as error:  # the others are no worse for it; the next run tries again
            told = f"cannot be moved: {error_reason(error)}"
            reason = Reason(ReasonCode.CANNOT_MOVE, told)
            row = entry.with_state(INGESTED, reason) if entry.state == INGESTED else None
        if row and row != entry:
            changed.append(row)
    ledger.write(changed)
    stuck = Counter(entry.why for entry in changed if entry.state == INGESTED)
    for why, files in stuck.items():
        told = f"{counted(files, 'file')} whose rows are in bronze {why}"
        say(f"  {source.name}: {told} (medallion files --state {INGESTED})")


def put_aside(
    layout: Layout, source: SourceConfig, ledger: Ledger, unreadable: list[Entry]
) -> None:
    """Enter files that cannot be read, and move them to `rejected/<source>/`, with reasons beside
    them.

    The ledger comes first: cut off in between, a file is still where it landed, and is not read
    again. So is one that cannot be moved, and its row says why: `clean` tries again.
    """
    ledger.write(unreadable)
    moved: list[Entry | None] = []
    for entry in unreadable:
        try:
            moved.append(_put_away(layout, source, entry))
        except OSError as error:
            why = f"{entry.why}; it could not be moved at once: {error_reason(error)}"
            moved.append(replace(entry, why=why))
    ledger.write(filter(None, moved))


def _put_away(layout: Layout, source: SourceConfig, entry: Entry) -> Entry | None:
    """Archive, delete or reject a file, and give its new row; None where nothing is to be done.

    Raises:
        OSError: it stays where it is.
    """
    is_taken = entry.state == INGESTED
    below = below_folder(layout, source, layout.root / entry.path)
    if below is None:  # a backfill's file stays where its owner keeps it
        return None if is_taken else replace(entry, state=REJECTED)
    found = look(layout, entry.path)
    if found not in (None, entry.file):  # another file has come under this name: discovery tells
        return None
    if is_taken and source.clean_source == "delete":
        is_done = found is None or (layout.root / entry.path).delete(_file_info(entry))
        return entry.with_state(ARCHIVED, _DELETED) if is_done else None
    top = layout.archive(source.name) if is_taken else layout.rejected(source.name)
    target = with_folders(top, below)
    if found is None:
        place = _moved_before(layout, entry, target)
    else:
        place = free_path(target)
        if not (layout.root / entry.path).move_to(place, _file_info(entry)):
            return None
    if place is None:
        return None
    if is_taken:
        return replace(entry.with_state(ARCHIVED, None), moved_to=layout.relative(place))
    _give_reason(entry, place)
    return replace(entry, state=REJECTED, moved_to=layout.relative(place))


def _file_info(entry: Entry) -> FileInfo:
    """Return the state of a file as the ledger has it."""
    return FileInfo(entry.size, entry.modified_at)


def _moved_before(layout: Layout, entry: Entry, target: Path) -> Path | None:
    """Where a run has moved a file to that was cut off before the ledger had that."""
    for place in takewhile(os.path.lexists, numbered_paths(target)):
        moved = look(layout, layout.relative(place))
        if moved is not None and entry.file == replace(moved, path=entry.path):
            return place
    return None


def _give_reason(entry: Entry, place: Path) -> None:
    """Say beside a rejected file why it is one; names are no longer than 255 bytes."""
    name = place.name.encode()[: 255 - len(REASON_SUFFIX)].decode(errors="ignore")
    with suppress(OSError):  # the ledger has the reason too
        reason = free_path(place.with_name(name + REASON_SUFFIX))
        told = f"{entry.path}: {entry.why}\n"
        reason.write_text(told, encoding="utf-8", errors="replace")
