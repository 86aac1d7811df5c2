"""The file ledger, `ops.files`: one row for each version of each file that ever landed.

The process that holds bronze's lock writes it. Each write may be repeated after an interrupted run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from medallion.storage import clock, delta_tables, records
from medallion.storage.files import FileInfo
from medallion.storage.layout import Layout
from medallion.storage.table_specs import TableSpec, record_column_sql


class ReasonCode(StrEnum):
    """The column `reason_code` of `ops.files`: the reason for a file's state."""

    # A file that is not ingested under its name, or not yet.
    LINK = "symbolic_link"
    NOT_A_FILE = "not_a_file"
    UNSUPPORTED_NAME = "unsupported_name"
    INACCESSIBLE = "inaccessible"
    BEING_WRITTEN = "being_written"
    CSV_HEADER = "csv_header"
    MULTI_LINE = "multi_line"
    # A directory whose files are unknown.
    FOLDER_MISSING = "folder_missing"
    FOLDER_UNREADABLE = "folder_unreadable"
    # A rejected file.
    UNREADABLE = "unreadable"
    NAME_TAKEN = "name_taken"
    GREW = "grew_after_reading"
    SAME_FILE = "same_file"
    # A path or a file that was ingested.
    GONE = "gone"
    NOT_INPUT = "not_input"
    REPLACED = "replaced"
    DELETED = "deleted"
    CANNOT_MOVE = "cannot_move"
    CHANGED_IN_ARCHIVE = "changed_in_archive"


class Reason(NamedTuple):
    """A reason, as a code and as a message."""

    code: ReasonCode
    text: str


TABLE = "ops.files"


class State(StrEnum):
    """The column `state` of `ops.files`."""

    PENDING = "pending"
    INGESTED = "ingested"
    UNREADABLE = "unreadable"  # and not moved to rejected/ yet
    REJECTED = "rejected"
    REPLACED = "replaced"
    VANISHED = "vanished"
    ARCHIVED = "archived"


_INGESTED = (State.INGESTED, State.ARCHIVED, State.REPLACED)
_REFUSED = (State.UNREADABLE, State.REJECTED)


@dataclass(frozen=True)
class Entry:
    """One row of the ledger. Times are microseconds since 1970, `size` is in bytes.

    `version` counts the files of one path; `moved_to` is the current path, if it is another one.
    `reason_code` is a `ReasonCode`, `why` the message. `reported_at` is when a run that ended with
    status 1 reported the file, `dismissed_at` when the user acknowledged it.
    `tag` identifies the content of an object in a bucket.
    """

    source: str
    path: str
    version: int
    size: int
    modified_at: int
    first_seen_at: int
    state: str = State.PENDING
    why: str | None = None
    batch: int | None = None
    committed_at: int | None = None
    rows: int | None = None
    corrupt_rows: int | None = None
    rescued_rows: int | None = None
    moved_to: str | None = None
    reason_code: str | None = None
    reported_at: int | None = None
    dismissed_at: int | None = None
    tag: str | None = None

    @property
    def is_ingested(self) -> bool:
        """Return whether the rows of the file are in bronze."""
        return self.state in _INGESTED

    @property
    def is_refused(self) -> bool:
        """Return whether the file is unreadable or rejected."""
        return self.state in _REFUSED

    def is_ingested_by(self, batch: int) -> bool:
        """Return whether a batch has ingested the file, which lies where it landed."""
        return self.state == State.INGESTED and self.batch == batch

    @property
    def info(self) -> FileInfo:
        """Return the state of the file when it was last listed."""
        return FileInfo(self.size, self.modified_at, self.tag)

    def with_info(self, info: FileInfo) -> Entry:
        """Return the row of the file in another state."""
        return replace(self, size=info.size, modified_at=info.modified_at, tag=info.tag)

    def as_ingested(self, batch: int, rows: int, corrupt: int, rescued: int) -> Entry:
        """Return the row of a file whose rows a batch has written to bronze."""
        return replace(
            self.with_state(State.INGESTED, None),
            batch=batch,
            committed_at=clock.now_micros(),
            rows=rows,
            corrupt_rows=corrupt,
            rescued_rows=rescued,
        )

    def with_state(self, state: str, reason: Reason | None) -> Entry:
        """Return the row in another state.

        With another reason code the file counts as not reported and not dismissed.
        """
        code, text = reason or (None, None)
        changed = replace(self, state=state, why=text, reason_code=code)
        if code == self.reason_code:
            return changed
        return replace(changed, reported_at=None, dismissed_at=None)


_COLUMNS = records.record_columns(Entry)


class Ledger:
    """The rows of one source, in memory and on disk."""

    def __init__(self, layout: Layout, source: str) -> None:
        self._layout, self.source = layout, source
        self._versions: dict[str, dict[int, Entry]] = {}
        self._postponed: list[Entry] = []
        for entry in read_entries(layout, source):
            self._remember(entry)

    def newest(self, path: str) -> Entry | None:
        """Return the newest version of a path."""
        versions = self._versions.get(path)
        return versions[max(versions)] if versions else None

    def version(self, path: str, version: int) -> Entry | None:
        """Return one version of a path."""
        return self._versions.get(path, {}).get(version)

    def versions(self, path: str) -> list[Entry]:
        """Return every version of a path."""
        return list(self._versions.get(path, {}).values())  # other threads may add to it

    def previous_ingested(self, entry: Entry) -> Entry | None:
        """Return the last earlier version of the same path whose rows are in bronze."""
        older = [
            e for e in self.versions(entry.path) if e.is_ingested and e.version < entry.version
        ]
        return max(older, key=lambda each: each.version, default=None)

    def all_versions(self) -> list[Entry]:
        """Return every version of every path."""
        return [e for versions in list(self._versions.values()) for e in list(versions.values())]

    def newest_entries(self) -> list[Entry]:
        """Return the newest version of every path."""
        return [versions[max(versions)] for versions in list(self._versions.values())]

    def write(self, entries: Iterable[Entry]) -> None:
        """Insert rows, or replace those of the same path and version."""
        self.postpone(entries)
        write_entries(self._layout, self._postponed)
        self._postponed.clear()

    def postpone(self, entries: Iterable[Entry]) -> None:
        """Insert rows in memory; the next write includes them, unless it replaces them."""
        for entry in entries:
            self._remember(entry)
            self._postponed.append(entry)

    def _remember(self, entry: Entry) -> None:
        self._versions.setdefault(entry.path, {})[entry.version] = entry


def write_entries(layout: Layout, entries: Iterable[Entry]) -> None:
    """Insert rows, or replace those of the same source, path and version, in one commit."""
    # The merge refuses two rows for one key: the last one counts.
    listed = {(e.source, e.path, e.version): asdict(e) for e in entries}
    if listed:
        spec, keys = TableSpec(_COLUMNS), ("source", "path", "version")
        records.upsert_records(layout.table(TABLE), spec, list(listed.values()), keys)


def ingested_rows(entries: Iterable[Entry]) -> int:
    """Return the number of rows in bronze according to the ledger."""
    return sum(entry.rows or 0 for entry in entries if entry.is_ingested)


def in_queue_order(entries: Iterable[Entry]) -> list[Entry]:
    """Return entries in the order in which their files are read: the oldest first."""
    return sorted(entries, key=lambda entry: (entry.modified_at, entry.path))


def newest_versions(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Return the newest version of each path, by its number."""
    return {entry.path: entry for entry in sorted(entries, key=lambda each: each.version)}


def read_entries(
    layout: Layout, source: str | None = None, state: str | None = None
) -> list[Entry]:
    """Return rows of the ledger in the order in which the files were first seen; no JVM."""
    filters: Mapping[str, str | None] = {"source": source, "state": state}
    conditions = [f"{name} = '{value}'" for name, value in filters.items() if value is not None]
    return _read(layout, f"where {' and '.join(conditions)}" if conditions else "")


def entries_not_ingested(layout: Layout) -> list[Entry]:
    """Return the newest versions that are pending, unreadable or rejected, oldest first."""
    states = (State.PENDING, *_REFUSED)
    paths = f"select path from rows where state in {_sql_list(states)}"
    entries = sorted(_read(layout, f"where path in ({paths})"), key=lambda each: each.version)
    newest = {(entry.source, entry.path): entry for entry in entries}
    return [entry for entry in newest.values() if entry.state in states]


def malformed_entries(layout: Layout) -> list[Entry]:
    """Return the ingested files of which every line is malformed."""
    states = _sql_list((State.INGESTED, State.ARCHIVED))
    return _read(layout, f"where rows > 0 and corrupt_rows = rows and state in {states}")


def ingested_of_size(layout: Layout, source: str, size: int) -> list[Entry]:
    """Return the ingested files of a source that have this size in bytes, except empty ones."""
    states = _sql_list((State.INGESTED, State.ARCHIVED))
    where = f"where source = '{source}' and size = {size} and size > 0 and state in {states}"
    return _read(layout, where)


def last_arrivals(layout: Layout) -> dict[str, int]:
    """Return when the newest ingested file with rows arrived, by source.

    That is when it was last modified, but not later than it was first seen: the clock of its writer
    may be ahead.
    """
    times = ", ".join(record_column_sql(_COLUMNS, at) for at in ("modified_at", "first_seen_at"))
    where = f"where rows > 0 and state in {_sql_list(_INGESTED)} group by source"
    what = f"source, max(least({times}))"
    return dict(delta_tables.select_rows(layout.table(TABLE), what, where))


def newest_archived(layout: Layout, limit: int) -> tuple[list[Entry], int]:
    """Return the newest archived files, at most `limit`, and the number of all of them."""
    where = f"where state in {_sql_list((State.ARCHIVED, State.REPLACED))} and moved_to is not null"
    entries = _read(layout, where, f"committed_at desc limit {limit}")
    if len(entries) < limit:
        return entries, len(entries)
    ((total,),) = delta_tables.select_rows(layout.table(TABLE), "count(*)", where)
    return entries, int(total)


def _sql_list(states: Iterable[State]) -> str:
    quoted = (f"'{state}'" for state in states)
    return f"({', '.join(quoted)})"


def _read(
    layout: Layout, where: str, order: str = "first_seen_at, source, path, version"
) -> list[Entry]:
    return records.read_records(layout.table(TABLE), _COLUMNS, Entry, f"{where} order by {order}")
