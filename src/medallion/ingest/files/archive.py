"""Archiving, deleting and rejecting files, and archived files that changed since."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files.listing import (
    current_file,
    path_below_source,
    stat_file,
)
from medallion.state import ledger
from medallion.state.ledger import (
    ARCHIVED,
    INGESTED,
    REJECTED,
    REPLACED,
    UNREADABLE,
    Entry,
    File,
    Ledger,
    Reason,
    ReasonCode,
)
from medallion.storage import clock, delta_tables
from medallion.storage.files import FileInfo, free_path, numbered_paths
from medallion.storage.paths import REASON_SUFFIX, Layout
from medallion.storage.text import Reporter, counted, error_reason

_DELETED = Reason(ReasonCode.DELETED, "deleted, as clean_source asks for")


def archive_due_files(
    config: Config, source: SourceConfig, ledger: Ledger, batch: int, say: Reporter
) -> None:
    """Archive or delete the files of batches up to `batch` once `clean_after` has passed, and
    reject unreadable files. A file that cannot be moved is tried each time, and reported once."""
    # Without `clean_after` no times are compared: a clock that was set back would keep files.
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
        os.sync()  # a power failure must not lose the only copy of the rows
    for entry in due:
        try:
            row = _move_or_delete(config.layout, source, entry)
        except OSError as error:  # the next run tries again
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


def reject_files(
    layout: Layout, source: SourceConfig, ledger: Ledger, unreadable: list[Entry]
) -> None:
    """Record unreadable files, and move them to `rejected/<source>/` with a file of the reason.

    The ledger comes first: after an interruption, or if a file cannot be moved, it is not read
    again, and `archive_due_files` moves it later.
    """
    ledger.write(unreadable)
    moved: list[Entry | None] = []
    for entry in unreadable:
        try:
            moved.append(_move_or_delete(layout, source, entry))
        except OSError as error:
            why = f"{entry.why}; it could not be moved at once: {error_reason(error)}"
            moved.append(replace(entry, why=why))
    ledger.write(filter(None, moved))


def _move_or_delete(layout: Layout, source: SourceConfig, entry: Entry) -> Entry | None:
    """Archive, delete or reject a file; return its new entry, or None if nothing changes.

    Raises:
        OSError: it cannot be moved.
    """
    is_taken = entry.state == INGESTED
    below = path_below_source(layout, source, layout.root / entry.path)
    if below is None:  # a backfill's file stays
        return None if is_taken else replace(entry, state=REJECTED)
    found = stat_file(layout, entry.path)
    if found not in (None, entry.file):  # another file: the next scan classifies it
        return None
    if is_taken and source.clean_source == "delete":
        is_done = found is None or (layout.root / entry.path).delete(_file_info(entry))
        return entry.with_state(ARCHIVED, _DELETED) if is_done else None
    top = layout.archive(source.name) if is_taken else layout.rejected(source.name)
    target = top / below
    if found is None:
        place = _find_interrupted_move(layout, entry, target)
    else:
        place = free_path(target)
        if not (layout.root / entry.path).move_to(place, _file_info(entry)):
            return None
    if place is None:
        return None
    if is_taken:
        return replace(entry.with_state(ARCHIVED, None), moved_to=layout.relative(place))
    _write_reason_file(entry, place)
    return replace(entry, state=REJECTED, moved_to=layout.relative(place))


def _file_info(entry: Entry) -> FileInfo:
    """Return the state of a file as the ledger has it."""
    return FileInfo(entry.size, entry.modified_at)


def _find_interrupted_move(layout: Layout, entry: Entry, target: Path) -> Path | None:
    """Return where an interrupted run has moved a file before the ledger had it."""
    for place in takewhile(os.path.lexists, numbered_paths(target)):
        moved = stat_file(layout, layout.relative(place))
        if moved is not None and entry.file == replace(moved, path=entry.path):
            return place
    return None


def _write_reason_file(entry: Entry, place: Path) -> None:
    """Write the reason beside a rejected file; names have at most 255 bytes."""
    name = place.name.encode()[: 255 - len(REASON_SUFFIX)].decode(errors="ignore")
    with suppress(OSError):  # the ledger has the reason too
        reason = free_path(place.with_name(name + REASON_SUFFIX))
        told = f"{entry.path}: {entry.why}\n"
        reason.write_text(told, encoding="utf-8", errors="replace")


MAX_COMPARED = 10_000
"""The number of archived files to compare, newest first; each takes one system call."""


def find_changed_archived_files(config: Config) -> tuple[list[Entry], int]:
    """Return the archived files that have another size than the ledger has, each with the reason,
    and how many older ones were not compared.

    A change after the last report, or after the acknowledgement, is a new one.
    """
    layout = config.layout
    where = f"where state in {(ARCHIVED, REPLACED)} and moved_to is not null"
    rows = delta_tables.select_rows(
        layout.table(ledger.TABLE),
        "source, path, version, size, moved_to",
        f"{where} order by committed_at desc limit {MAX_COMPARED}",
    )
    files: dict[tuple[str, str, int], File] = {}
    for source, path, version, size, moved_to in rows:
        if source not in config.sources or _size(f"{layout.root}/{moved_to}") in (None, size):
            continue
        if file := current_file(layout, moved_to):
            files[source, path, version] = file
    entries = (
        entry
        for source in {key[0] for key in files}
        for entry in ledger.read_entries(layout, source)
    )
    found = [
        _with_reason(entry, file)
        for entry in entries
        if (file := files.get((entry.source, entry.path, entry.version)))
    ]
    return found, _older(config, where, len(rows))


def _size(path: str) -> int | None:
    """Without a `Path`, which takes longer than the system call."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return None


def _older(config: Config, where: str, compared: int) -> int:
    if compared < MAX_COMPARED:
        return 0
    ((every,),) = delta_tables.select_rows(config.layout.table(ledger.TABLE), "count(*)", where)
    return int(every) - compared


def _with_reason(entry: Entry, file: File) -> Entry:
    rows = counted(entry.rows or 0, "row")
    reason = Reason(
        ReasonCode.CHANGED_IN_ARCHIVE,
        f"{entry.moved_to} was written after it was read, from {entry.size:,} to {file.size:,} "
        f"bytes: bronze has the {rows} read before. Write the new lines to a file in landing with "
        "a name of its own (quiet_period leaves files alone while they are written)",
    )
    return replace(
        entry.with_state(entry.state, reason),
        reported_at=_if_since(entry.reported_at, file),
        dismissed_at=_if_since(entry.dismissed_at, file),
    )


def _if_since(at: int | None, file: File) -> int | None:
    return at if at is not None and at >= file.modified_at else None
