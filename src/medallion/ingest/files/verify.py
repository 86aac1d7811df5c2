"""The deep audit of files: rows counted again without Spark, compared with ledger and bronze."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.ingest.files import decode, typed_files
from medallion.ingest.files.content import READ_ERRORS, ContentError, strip_member
from medallion.ingest.files.listing import path_below_source
from medallion.ingest.files.record_path import OBJECT_IN_LINE, split_objects
from medallion.ingest.source import Verification
from medallion.state import erasures, ledger
from medallion.state.ledger import Entry
from medallion.storage import delta_tables
from medallion.storage.table_specs import ROW_COUNTS, SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.storage.text import counted, error_reason

_VersionKey = tuple[str, int]  # a file's path and its modification time


def verify_files(config: Config, source: SourceConfig) -> Verification:
    """Count the rows of a source's files again, and report differences from ledger and bronze."""
    layout, name = config.layout, source.name
    entries, table = ledger.read_entries(layout, name), layout.table(f"bronze.{name}")
    by_file = sum_by_file(delta_tables.select_rows(table, ROWS_BY_FILE, "group by 1, 2"))
    bronze = {version: counts.rows for version, counts in by_file.items()}
    versions: dict[_VersionKey, list[Entry]] = defaultdict(list)
    for entry in (entry for entry in entries if entry.is_ingested):
        # Bronze cannot distinguish versions of a file with the same time.
        versions[entry.path, entry.modified_at].append(entry)
    newest = ledger.newest_versions(entries)
    findings, unread = [], 0
    for (path, at), same_time in versions.items():
        counts = [_count_entry(config, source, each, newest[path].version) for each in same_time]
        unread += sum(count.is_unread for count in counts)
        problems = [f"{path}: {count.problem}" for count in counts if count.problem]
        lines = sum(count.lines for count in counts)
        recorded, stored = sum(e.rows or 0 for e in same_time), bronze.get((path, at), 0)
        if not problems and not lines == recorded == stored:
            text = f"{counted(recorded, 'row')} in the ledger and {stored:,} in bronze."
            problems = [f"{path} has {counted(lines, 'line')}, {text}"]
        findings += problems
    findings += [
        f"bronze has {counted(rows, 'row')} of {path}, which the ledger does not have as ingested."
        for (path, at), rows in bronze.items()
        if (path, at) not in versions
    ]
    text = f"{counted(unread, 'file')} deleted or overwritten, and not counted again: the "
    notes = [f"{name}: {text}ledger's figures stand."] if unread else []
    return Verification([f"{name}: {finding}" for finding in findings], notes)


class Counts(NamedTuple):
    """The rows that bronze has of one file: all, corrupt ones, and those with rescued fields."""

    rows: int = 0
    corrupt: int = 0
    rescued: int = 0


class _Count(NamedTuple):
    """The rows of a file; the ledger's figure if it cannot be read."""

    lines: int
    is_unread: bool = False
    problem: str | None = None


def _count_entry(config: Config, source: SourceConfig, entry: Entry, newest: int) -> _Count:
    """Count the rows of an ingested file.

    Args:
        source: the source of the file.
        entry: the file.
        newest: the newest version of its path.
    """
    recorded, path = entry.rows or 0, entry.moved_to or entry.path
    is_backfill = path_below_source(config.layout, source, entry.path) is None
    is_deleted = entry.state == ledger.State.ARCHIVED and entry.moved_to is None  # as configured
    if is_deleted or (entry.moved_to is None and newest > entry.version):  # or overwritten
        return _Count(recorded, is_unread=True)
    try:
        with (config.layout.root / path).as_local() as file:
            lines = count_file_rows(file, source)
    except FileNotFoundError:
        # Users may delete their own files: those of a backfill, and all if nothing is archived.
        if entry.moved_to is None and (source.clean_source == "off" or is_backfill):
            return _Count(recorded, is_unread=True)
        problem = f"it was ingested, and {path} does not exist any more."
    except ContentError as error:
        problem = f"{path} is invalid: {error}."
    except READ_ERRORS as error:
        problem = f"{path} cannot be read: {error_reason(error)}."
    else:
        # An erasure does not change files of a backfill; the user may have removed the rows.
        if is_backfill and lines > recorded:
            erased = erasures.erased_rows(config.layout, source.name, entry.path)
            lines = recorded if lines == recorded + erased else lines
        return _Count(lines)
    return _Count(recorded, problem=problem)


ROWS_BY_FILE = f"{SOURCE_FILE}, arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'), {ROW_COUNTS}"
"""SQL of the rows of bronze by file, with `group by 1, 2`: see `sum_by_file`."""


def sum_by_file(rows: Iterable[Sequence[Any]]) -> dict[_VersionKey, Counts]:
    """Return the rows of each file, by path and modification time.

    Args:
        rows: rows as of `ROWS_BY_FILE`. The members of a zip archive are counted together.
    """
    counts: dict[_VersionKey, Counts] = {}
    for source_file, modified_at, *added in rows:
        # Rows that were not ingested from a file have no `_source_file`.
        key = source_file and strip_member(source_file), modified_at
        pairs = zip(counts.get(key, Counts()), added, strict=True)
        counts[key] = Counts(*(before + more for before, more in pairs))
    return counts


def count_file_rows(path: Path, source: SourceConfig) -> int:
    """Return the number of rows that bronze should have of a file.

    Raises:
        OSError, EOFError, zlib.error: the file is missing, truncated or corrupt.
    """
    if source.format in TYPED_FORMATS:
        return typed_files.inspect_typed(path, source.format).rows
    batches = decode.decode_file(path, source)
    return sum(
        len(b.corrupt) + sum(_count_decoded_rows(v, source) for v in b.values) for b in batches
    )


def _count_decoded_rows(value: str, source: SourceConfig) -> int:
    """Return the number of rows that a decoded value becomes."""
    is_line = source.format == "json" and not decode.has_documents(source)
    has_objects = is_line and ("}{" in value or "} {" in value)
    return len(split_objects(value, OBJECT_IN_LINE)) if has_objects else 1
