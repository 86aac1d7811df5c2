"""What happens to files after their batch: archived, deleted, rejected or erased.

An erasure deletes each file that has one of its rows. The other rows of the file stay in bronze,
from which all tables are rebuilt.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files import content
from medallion.ingest.files.listing import current_info, path_below_source
from medallion.ingest.files.verify import ROWS_BY_FILE, Counts, sum_by_file
from medallion.state.journal import Action, ErasedOrigin
from medallion.state.ledger import Entry, Ledger, Reason, ReasonCode, State, newest_archived
from medallion.storage import clock, delta_tables, files
from medallion.storage.files import FileInfo
from medallion.storage.layout import REASON_SUFFIX, Layout
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter, counted, error_reason, printable

_DELETED = Reason(ReasonCode.DELETED, "deleted, as the source has clean_source: delete")


def archive_due_files(
    config: Config, source: SourceConfig, ledger: Ledger, batch: int, report: Reporter
) -> None:
    """Archive or delete ingested files once `clean_after` has passed, and reject unreadable ones.

    Rows of the ledger that were postponed are written, too.

    A file that cannot be moved is tried again in each run; an ingested one is reported once.

    Args:
        source: the source of the files.
        ledger: its ledger.
        batch: the last batch that is recorded in `ops.runs`.
        report: reports files that cannot be moved.
    """
    # Without `clean_after` times are not compared: files would stay if the clock was set back.
    age = source.clean_after.micros if source.clean_after else None
    latest = clock.now_micros() - (age or 0)

    def is_due(entry: Entry) -> bool:
        if entry.state != State.INGESTED or source.clean_source == "off":
            return entry.state == State.UNREADABLE
        is_recorded = (entry.batch or 0) <= batch
        return is_recorded and (age is None or (entry.committed_at or 0) <= latest)

    changed: list[Entry] = []
    due = list(filter(is_due, ledger.newest_entries()))
    if due and source.clean_source == "delete":
        files.sync_all()  # a power failure must not lose the only copy of the rows
    for entry in due:
        try:
            row = _move_or_delete(config.layout, source, entry)
        except OSError as error:  # the next run tries again
            text = f"cannot be moved: {error_reason(error)}"
            if entry.state != State.INGESTED:  # it keeps the reason of its rejection
                report(f"  {source.name}: {printable(entry.path)} {text}")
                continue
            row = entry.with_state(entry.state, Reason(ReasonCode.CANNOT_MOVE, text))
        if row and row != entry:
            changed.append(row)
    ledger.write(changed)
    stuck = Counter(entry.why for entry in changed if entry.state == State.INGESTED)
    for why, number in stuck.items():
        text = f"{counted(number, 'file')} whose rows are in bronze {why}"
        report(f"  {source.name}: {text} (medallion files --state {State.INGESTED})")


def _move_or_delete(layout: Layout, source: SourceConfig, entry: Entry) -> Entry | None:
    """Archive, delete or reject a file; return its new entry, or None if nothing changes.

    Raises:
        OSError: it cannot be moved.
    """
    is_ingested = entry.state == State.INGESTED
    below = path_below_source(layout, source, entry.path)
    if below is None:  # a backfill's file stays
        return None if is_ingested else replace(entry, state=State.REJECTED)
    file = layout.root / entry.path
    if is_ingested and source.clean_source == "delete":
        return entry.with_state(State.ARCHIVED, _DELETED) if file.delete(entry.info) else None
    top = layout.archive(source.name) if is_ingested else layout.rejected(source.name)
    # Of another file, which the next scan classifies, it returns None.
    target = file.move_to_free(top / below, entry.info)
    if target is None:
        return None
    if is_ingested:
        return replace(entry.with_state(State.ARCHIVED, None), moved_to=layout.relative(target))
    _write_reason_file(entry, target)
    return replace(entry, state=State.REJECTED, moved_to=layout.relative(target))


def _write_reason_file(entry: Entry, path: StoragePath) -> None:
    """Write the reason beside a rejected file; names have at most 255 bytes."""
    name = path.name.encode()[: 255 - len(REASON_SUFFIX)].decode(errors="ignore")
    with suppress(OSError):  # the ledger has the reason too
        reason = (path.parent / (name + REASON_SUFFIX)).first_free()
        reason.write_atomic(f"{entry.path}: {entry.why}\n".encode(errors="replace"))


MAX_COMPARED = 10_000
"""The number of archived files to compare, newest first; each takes one system call."""


def find_changed_archived_files(config: Config) -> tuple[list[Entry], int]:
    """Return the archived files whose sizes differ from the ledger's, each with the reason.

    A change after the last report, or after the acknowledgement, is a new one.

    Returns:
        The files, and the number of older archived files that were not compared.
    """
    entries, total = newest_archived(config.layout, MAX_COMPARED)
    changed = []
    for entry in entries:
        info = current_info(config.layout, str(entry.moved_to))
        if info and info.size != entry.size and entry.source in config.sources:
            changed.append(_with_reason(entry, info))
    return changed, total - len(entries)


def _with_reason(entry: Entry, info: FileInfo) -> Entry:
    rows = counted(entry.rows or 0, "row")
    reason = Reason(
        ReasonCode.CHANGED_IN_ARCHIVE,
        f"{entry.moved_to} was written after it was read, from {entry.size:,} to {info.size:,} "
        f"bytes: bronze has the {rows} read before. Write the new lines to a file in landing with "
        "a name of its own (quiet_period leaves files alone while they are written)",
    )
    reported, dismissed = entry.reported_at, entry.dismissed_at
    return replace(
        entry.with_state(entry.state, reason),
        reported_at=reported if (reported or 0) >= info.modified_at else None,
        dismissed_at=dismissed if (dismissed or 0) >= info.modified_at else None,
    )


_ERASED = Reason(ReasonCode.DELETED, "deleted by medallion erase")


def erased_origins(
    config: Config, source: SourceConfig, rows: Mapping[tuple[str, int], int]
) -> list[ErasedOrigin]:
    """Return what an erasure does with each ingested file; write nothing.

    Args:
        rows: the number of rows to erase by path and modification time, as bronze has them.

    Raises:
        OSError: a file cannot be inspected, so it may still have such rows.
    """
    layout, ledger = config.layout, Ledger(config.layout, source.name)
    origins = list[ErasedOrigin]()
    for (path, modified_at), count in rows.items():
        path = content.strip_member(path)
        versions = [
            entry
            for entry in ledger.all_versions()
            if (entry.path, entry.modified_at) == (path, modified_at) and entry.is_ingested
        ]
        if not versions:  # `audit` reports rows of a file that the ledger does not have
            continue
        entry = max(versions, key=lambda each: each.version)
        newest = ledger.newest(path)
        location, action = entry.moved_to or path, Action.DELETED
        info = (layout.root / location).info()
        # A file that no scan has seen is not the ingested one, which it has overwritten.
        is_overwritten = not entry.moved_to and (newest != entry or not entry.info.is_same(info))
        if is_overwritten or info is None:
            action = Action.GONE
        elif path_below_source(layout, source, path) is None:
            action = Action.KEPT
        origins.append(ErasedOrigin(path, count, action, entry.version, location))
    return origins


def delete_files(config: Config, source: SourceConfig, origins: Collection[ErasedOrigin]) -> None:
    """Delete the files that have such rows; safe to repeat."""
    ledger, entries = Ledger(config.layout, source.name), list[Entry]()
    for origin in (each for each in origins if each.action is Action.DELETED):
        entry = ledger.version(origin.path, origin.version)
        assert entry is not None, "the erasure has files of the ledger"
        # A file in landing may be overwritten meanwhile; only medallion writes to archive/.
        (config.layout.root / origin.location).delete(None if entry.moved_to else entry.info)
        gone = replace(entry, moved_to=None)
        is_replaced = entry.state == State.REPLACED
        entries.append(gone if is_replaced else gone.with_state(State.ARCHIVED, _ERASED))
    ledger.write(entries)


def count_rows_again(config: Config, source: SourceConfig, origins: Iterable[ErasedOrigin]) -> None:
    """Write the rows that bronze still has of these files into the ledger; safe to repeat.

    Of several versions of a file with the same time, the newest gets all rows.
    """
    ledger = Ledger(config.layout, source.name)
    table = config.layout.table(f"bronze.{source.name}")
    counts = sum_by_file(delta_tables.select_rows(table, ROWS_BY_FILE, "group by 1, 2"))
    entries = list[Entry]()
    for origin in origins:
        newest = ledger.version(origin.path, origin.version)
        assert newest is not None, "the erasure has files of the ledger"
        for entry in ledger.all_versions():
            if (entry.path, entry.modified_at) == (newest.path, newest.modified_at):
                is_newest, key = entry.version == newest.version, (entry.path, entry.modified_at)
                rows, corrupt, rescued = counts.get(key, Counts()) if is_newest else Counts()
                entries.append(
                    replace(entry, rows=rows, corrupt_rows=corrupt, rescued_rows=rescued)
                )
    ledger.write(entries)
