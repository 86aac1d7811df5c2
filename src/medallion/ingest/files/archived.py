"""Archived files that a writer has gone on writing to: their new lines are in no table."""

from __future__ import annotations

import os
from dataclasses import replace

from medallion.config.model import Config
from medallion.ingest.files.listing import stat
from medallion.state import ledger
from medallion.state.ledger import ARCHIVED, REPLACED, Entry, File, Reason, ReasonCode
from medallion.storage import delta_tables
from medallion.storage.text import counted

MOST_COMPARED = 10_000
"""How many archived files are compared, the newest; each takes one system call."""


def changed(config: Config) -> tuple[list[Entry], int]:
    """Return the archived files that have another size than the ledger has, each with the reason,
    and how many older ones were not compared.

    A change after the last report, or after the acknowledgement, is a new one.
    """
    layout = config.layout
    where = f"where state in {(ARCHIVED, REPLACED)} and moved_to is not null"
    rows = delta_tables.select_rows(
        layout.table(ledger.TABLE),
        "source, path, version, size, moved_to",
        f"{where} order by committed_at desc limit {MOST_COMPARED}",
    )
    files: dict[tuple[str, str, int], File] = {}
    for source, path, version, size, moved_to in rows:
        if source not in config.sources or _size(f"{layout.root}/{moved_to}") in (None, size):
            continue
        if file := stat(layout, moved_to):
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
    if compared < MOST_COMPARED:
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
