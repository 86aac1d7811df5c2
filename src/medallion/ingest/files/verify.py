"""The deep audit of files: rows counted again without Spark, compared with ledger and bronze."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from medallion.config.model import TYPED_FORMATS, Config, SourceConfig
from medallion.config.values import matches_pattern
from medallion.ingest.files import typed
from medallion.ingest.files.content import READ_ERRORS, open_unpacked
from medallion.ingest.files.listing import (
    current_file,
    has_hidden_name,
    path_below_source,
    strip_number,
)
from medallion.ingest.parsing.json_text import MAX_SPLIT_LEVELS
from medallion.ingest.source import Verification
from medallion.state import ledger
from medallion.state.ledger import INGESTED, INGESTED_STATES, REJECTED, UNREADABLE, Entry, File
from medallion.storage import delta_tables
from medallion.storage.paths import Layout
from medallion.storage.table_specs import SOURCE_FILE, SOURCE_MODIFIED_AT
from medallion.storage.text import counted, error_reason, reject_nan

Key = tuple[str, int]  # a file's path and its modification time: one version of a file


def verify_files(config: Config, source: SourceConfig) -> Verification:
    """Count the rows of the files of a source, and those in bronze; name the files that differ."""
    layout = config.layout
    files = list(_moved_files(layout, source))  # before the ledger is asked
    entries, bronze = ledger.read_entries(layout, source.name), _in_bronze(layout, source.name)
    newest = ledger.newest_versions(entries)
    findings, unread = _differing(config, source, entries, newest, bronze)
    findings += _gone_from_rejected(layout, entries, newest)
    findings += _unknown(layout, source, entries, files)
    told = f"{counted(unread, 'file')} deleted or overwritten, and not counted again: the "
    notes = [f"{source.name}: {told}ledger's figures stand."] if unread else []
    return Verification([f"{source.name}: {finding}" for finding in findings], notes)


def _differing(
    config: Config,
    source: SourceConfig,
    entries: list[Entry],
    newest: Mapping[str, Entry],
    bronze: Mapping[Key, int],
) -> tuple[list[str], int]:
    """Return the files whose counts differ, and how many files cannot be counted."""
    findings, unread = [], 0
    taken: dict[Key, list[Entry]] = defaultdict(list)
    for entry in (entry for entry in entries if entry.state in INGESTED_STATES):
        # Versions of a file may share a time, and are then one to bronze.
        taken[entry.path, entry.modified_at].append(entry)
    for (path, at), versions in taken.items():
        recounted = [_count(config, source, each, newest[path].version) for each in versions]
        unread += sum(each.is_unread for each in recounted)
        problems = [f"{path}: {each.problem}" for each in recounted if each.problem]
        lines = sum(each.lines for each in recounted)
        rows, there = sum(entry.rows or 0 for entry in versions), bronze.get((path, at), 0)
        if not problems and not lines == rows == there:
            told = f"{counted(rows, 'row')} in the ledger and {there:,} in bronze."
            problems = [f"{path} has {counted(lines, 'line')}, {told}"]
        findings += problems
    more = ((path, rows) for (path, at), rows in bronze.items() if (path, at) not in taken)
    told = "which the ledger does not have as taken in."
    findings += [f"bronze has {counted(rows, 'row')} of {path}, {told}" for path, rows in more]
    return findings, unread


class _Counted(NamedTuple):
    """The rows of a file; the ledger's figure if it cannot be read."""

    lines: int
    is_unread: bool = False
    problem: str | None = None


def _count(config: Config, source: SourceConfig, entry: Entry, newest: int) -> _Counted:
    """Count the rows of an ingested file."""
    known = entry.rows or 0
    is_gone = entry.state == ledger.ARCHIVED and entry.moved_to is None  # deleted, as configured
    if is_gone or (entry.moved_to is None and newest > entry.version):  # another one lies there
        return _Counted(known, is_unread=True)
    place = entry.moved_to or entry.path
    try:
        return _Counted(count_file_rows(config.layout.root / place, source))
    except FileNotFoundError:
        if _may_be_deleted(config, source, entry):
            return _Counted(known, is_unread=True)
        problem = f"it was taken in, and {place} is not there any more."
    except READ_ERRORS as error:
        problem = f"{place} cannot be read: {error_reason(error)}."
    return _Counted(known, problem=problem)


def _may_be_deleted(config: Config, source: SourceConfig, entry: Entry) -> bool:
    """Return whether the user may delete an ingested file: one of a backfill, or if `clean_source`
    is `off`."""
    if entry.moved_to is not None:
        return False
    is_a_backfill_s = (
        path_below_source(config.layout, source, config.layout.root / entry.path) is None
    )
    return source.clean_source == "off" or is_a_backfill_s


def _gone_from_rejected(
    layout: Layout, entries: list[Entry], newest: Mapping[str, Entry]
) -> list[str]:
    """Report rejected files that are gone and did not land again."""
    moved = ((e.path, e.moved_to) for e in entries if e.state == REJECTED and newest[e.path] is e)
    return [
        f"{path} was rejected, and {place} is not there any more."
        for path, place in moved
        if place and not os.path.lexists(layout.root / place)
    ]


def _unknown(
    layout: Layout, source: SourceConfig, entries: list[Entry], files: list[File]
) -> list[str]:
    """Report files in `archive/` and `rejected/` that the ledger does not have there.

    A file that was moved just before its run was interrupted is left out: the next run enters it.
    One that is moved to its folder is compared with the ledger, so it is not ingested twice.
    """
    known = {entry.moved_to for entry in entries}
    moving = {
        (_landed_below(layout, source, entry.path), entry.size, entry.modified_at)
        for entry in entries
        if entry.state in (INGESTED, UNREADABLE)
    }
    findings = []
    for file in sorted(files, key=lambda file: file.modified_at):  # as they came
        if file.path in known:
            continue
        names = _names_before(layout, source, file)
        landed = next((each for each in names if matches_pattern(each.name, source.pattern)), None)
        is_moving = any((each, file.size, file.modified_at) in moving for each in names)
        if landed and not is_moving:
            to = " or ".join(layout.relative(place / landed) for place in source.folders_in(layout))
            findings.append(
                f"{file.path} lies there, and the ledger has no such file: move it (mv -n) to {to}"
                " to have it ingested, unless its rows are there."
            )
    return findings


def _moved_files(layout: Layout, source: SourceConfig) -> Iterator[File]:
    """Return the files in `archive/` and `rejected/` of a source, without those of reasons."""
    for top in (layout.archive(source.name), layout.rejected(source.name)):
        for folder, below, names in os.walk(top):
            below[:] = sorted(name for name in below if not has_hidden_name(name))
            paths = (Path(folder, name) for name in sorted(names) if not has_hidden_name(name))
            there = (
                current_file(layout, layout.relative(p))
                for p in paths
                if not layout.is_reason_file(p)
            )
            yield from filter(None, there)


def _landed_below(layout: Layout, source: SourceConfig, path: str) -> Path:
    """Return where a file landed below its folder; its name alone if that is none of these."""
    return path_below_source(layout, source, layout.root / path) or Path(Path(path).name)


def _names_before(layout: Layout, source: SourceConfig, file: File) -> tuple[Path, Path]:
    """Return where a moved file can have landed: its number may be one that it was given."""
    tops = (layout.archive(source.name), layout.rejected(source.name))
    path = layout.root / file.path
    below = next(path.relative_to(top) for top in tops if path.is_relative_to(top))
    return strip_number(below), below


def _in_bronze(layout: Layout, source: str) -> dict[Key, int]:
    """Return the number of rows that bronze has of each file."""
    what = f"{SOURCE_FILE}, arrow_cast({SOURCE_MODIFIED_AT}, 'Int64'), count(*)"
    table, each = layout.table(f"bronze.{source}"), f"{SOURCE_FILE}, {SOURCE_MODIFIED_AT}"
    rows = delta_tables.select_rows(table, what, f"group by {each}")
    return {(path, at): int(count) for path, at, count in rows}


# A line of these alone is blank, as in `reader`; Python's `strip` takes away more.
_BLANK = " \t\r\n\v\f"
_BOM = "\ufeff".encode().decode("latin-1")
csv.field_size_limit(sys.maxsize)
_MOST_LEVELS = 999  # Spark's parser goes into no more of them
_SIGNS = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[{\]}"]', re.DOTALL)
_NEXT_IN_LINE, _NEXT_IN_DOCUMENT = re.compile(r" ?\{"), re.compile(r"[ \t\r\n]*\{")


def count_file_rows(path: Path, source: SourceConfig) -> int:
    """Rows that bronze should have of a file.

    Raises:
        OSError, EOFError, zlib.error: the file is not there, torn, or spoilt.
    """
    if source.format in TYPED_FORMATS:
        return typed.count_typed_rows(path, source.format)
    if source.format == "csv" and not source.multi_line:
        return _csv_rows(path, source)
    # Latin-1 gives a text for any bytes, and only \n, \r\n and \r end a line, as they do for Spark.
    with io.TextIOWrapper(open_unpacked(path), "latin-1") as lines:
        if source.multi_line:
            return _items(lines.read())
        rows = (line for line in _without_bom(lines) if line.strip(_BLANK))
        return sum(
            _objects(line, _NEXT_IN_LINE)
            if source.format == "json" and ("}{" in line or "} {" in line)
            else 1
            for line in rows
        )


def _csv_rows(path: Path, source: SourceConfig) -> int:
    """Return the number of rows without the header.

    They end with \\r if the first one does, else with \\n, \\r\\n or \\r\\r\\n.
    """
    options = source.options
    with io.TextIOWrapper(open_unpacked(path), "latin-1", newline="") as lines:
        last = [""]

        def read(line: str) -> str:
            last[0] = line
            return line

        # Up to the first row.
        found = any(csv.reader(map(read, _without_bom(lines)), delimiter=options.delimiter))
        is_cr = found and last[0].endswith("\r") and lines.readline() != "\r\n"
        end = "\r" if is_cr else "\n"
    with io.TextIOWrapper(open_unpacked(path), "latin-1", newline=end) as lines:
        read_rows = csv.reader(_one_end(_without_bom(lines), end), delimiter=options.delimiter)
        return max(sum(1 for row in read_rows if row) - (options.header is not False), 0)


def _one_end(lines: Iterator[str], end: str) -> Iterator[str]:
    """Lines in which only their ends are line ends to the csv module."""
    for line in lines:
        if end == "\n":
            text = line.removesuffix("\n").removesuffix("\r").removesuffix("\r")
            yield text.replace("\r", " ") + "\n"
        else:
            yield line.replace("\n", " ")


def _without_bom(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield line.removeprefix(_BOM) if number == 0 else line


def _objects(text: str, is_next: re.Pattern[str]) -> int:
    """Return how many rows a text has: its objects, of which a broken one takes all the rest.

    Args:
        text: a line or document, decoded as Latin-1.
        is_next: what has to follow an object for the next one to be a row of its own.
    """
    rows, at = 1, 0
    while (start := is_next.match(text, at)) and (end := _end_of_object(text, start.end() - 1)):
        if not is_next.match(text, end):
            break
        rows, at = rows + 1, end
    return rows if rows == 1 or _is_utf8(text) else 1


def _end_of_object(text: str, at: int) -> int | None:
    """Return where the object that starts here ends; None if its brackets or quotes do not match"""
    level = 0
    for sign in _SIGNS.finditer(text, at):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        if sign[0] == '"' or level > MAX_SPLIT_LEVELS:
            return None
        if level == 0:
            return sign.end() if sign[0] == "}" else None
    return None


def _is_utf8(text: str) -> bool:
    try:
        text.encode("latin-1").decode()
    except UnicodeDecodeError:
        return False
    return True


def _items(text: str) -> int:
    text = text.removeprefix(_BOM)
    if not text.strip(_BLANK):
        return 0
    if (levels := _levels(text)) > _MOST_LEVELS:
        return _objects(text, _NEXT_IN_DOCUMENT)  # an array is kept as one line that is not JSON
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + _MOST_LEVELS)
    try:
        decoded = text.encode("latin-1").decode()
        # A number stays text: Python reads none of more than 4,300 digits.
        document = json.loads(decoded, parse_int=str, parse_float=str, parse_constant=reject_nan)
    except ValueError:
        return _objects(text, _NEXT_IN_DOCUMENT)
    finally:
        sys.setrecursionlimit(limit)
    # The array itself is one level more.
    is_split = isinstance(document, list) and levels <= MAX_SPLIT_LEVELS + 1
    return len(document) if is_split else 1


def _levels(text: str) -> int:
    """Return the nesting depth of a document."""
    level = most = 0
    for sign in _SIGNS.finditer(text):
        level += {"[": 1, "{": 1, "]": -1, "}": -1}.get(sign[0], 0)
        most = max(most, level)
    return most
