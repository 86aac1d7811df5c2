"""Erasure of rows from ingested files: each file that has one of them is deleted.

Its other rows stay in bronze, from which all tables are rebuilt.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from medallion.ingest.files import content
from medallion.ingest.files.batch import BatchContext
from medallion.ingest.files.listing import path_below_source
from medallion.ingest.files.verify import ROWS_BY_FILE, Counts, sum_by_file
from medallion.state.journal import Action, ErasedOrigin
from medallion.state.ledger import Entry, Reason, ReasonCode, State
from medallion.storage import delta_tables

_DELETED = Reason(ReasonCode.DELETED, "deleted by medallion erase")


def erased_origins(
    context: BatchContext, rows: Mapping[tuple[str, int], int]
) -> list[ErasedOrigin]:
    """Return what an erasure does with each ingested file; write nothing.

    Args:
        rows: the number of rows to erase by path and modification time, as bronze has them.

    Raises:
        OSError: a file cannot be inspected, so it may still have such rows.
    """
    layout, ledger, origins = context.config.layout, context.ledger, list[ErasedOrigin]()
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
        elif path_below_source(layout, context.source, path) is None:
            action = Action.KEPT
        origins.append(ErasedOrigin(path, count, action, entry.version, location))
    return origins


def delete_files(context: BatchContext, origins: Collection[ErasedOrigin]) -> None:
    """Delete the files that have such rows; safe to repeat."""
    layout, ledger, entries = context.config.layout, context.ledger, list[Entry]()
    for origin in (each for each in origins if each.action is Action.DELETED):
        entry = ledger.version(origin.path, origin.version)
        assert entry is not None, "the erasure has files of the ledger"
        # A file in landing may be overwritten meanwhile; only medallion writes to archive/.
        (layout.root / origin.location).delete(None if entry.moved_to else entry.info)
        gone = replace(entry, moved_to=None)
        is_replaced = entry.state == State.REPLACED
        entries.append(gone if is_replaced else gone.with_state(State.ARCHIVED, _DELETED))
    ledger.write(entries)


def count_rows_again(context: BatchContext, origins: Iterable[ErasedOrigin]) -> None:
    """Write the rows that bronze still has of these files into the ledger; safe to repeat.

    Of several versions of a file with the same time, the newest gets all rows.
    """
    table = context.config.layout.table(context.name)
    counts = sum_by_file(delta_tables.select_rows(table, ROWS_BY_FILE, "group by 1, 2"))
    entries = list[Entry]()
    for origin in origins:
        newest = context.ledger.version(origin.path, origin.version)
        assert newest is not None, "the erasure has files of the ledger"
        for entry in context.ledger.all_versions():
            if (entry.path, entry.modified_at) == (newest.path, newest.modified_at):
                is_newest, key = entry.version == newest.version, (entry.path, entry.modified_at)
                rows, corrupt, rescued = counts.get(key, Counts()) if is_newest else Counts()
                entries.append(
                    replace(entry, rows=rows, corrupt_rows=corrupt, rescued_rows=rescued)
                )
    context.ledger.write(entries)
