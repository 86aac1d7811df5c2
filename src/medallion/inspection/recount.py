"""Files and rows counted again by Python and DataFusion, neither of which is Spark."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.lakehouse import tables
from medallion.lakehouse.text import counted
from medallion.ops import ledger
from medallion.ops.ledger import REJECTED, TAKEN, Entry
from medallion.sources.files.codecs import FAULTS
from medallion.sources.files.recount import rows_of

_SHOWN = 20
Key = tuple[str, int]  # a file's path and its modification time: one version of a file


@dataclass
class Recount:
    """What was found, and what could not be looked at, a line each."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recount(config: Config, source: SourceConfig) -> Recount:
    """Count the files of a source and their rows in every table; name those that differ."""
    found = Recount()
    entries = ledger.read(config.layout, source.name)
    in_bronze = _rows_by_file(config, f"bronze.{source.name}")
    newest = {entry.path: entry.version for entry in entries}
    known: dict[Key, list[Entry]] = {}
    for entry in (entry for entry in entries if entry.state in TAKEN):
        # Versions of a file may share a time, and are then one to bronze.
        known.setdefault((entry.path, entry.modified_at), []).append(entry)
    unread = 0
    for key, versions in known.items():
        recounted = [_lines(config, source, entry, newest[entry.path]) for entry in versions]
        unread += sum(lines is None and problem is None for lines, problem in recounted)
        problems = [problem for _, problem in recounted if problem]
        found.findings += [f"{source.name}: {key[0]}: {problem}" for problem in problems]
        rows = sum(entry.rows or 0 for entry in versions)
        lines = sum(
            (entry.rows or 0) if lines is None else lines
            for entry, (lines, _) in zip(versions, recounted, strict=True)
        )
        if not problems and not lines == rows == in_bronze[key]:
            found.findings.append(
                f"{source.name}: {key[0]} has {counted(lines, 'line')}, "
                f"{counted(rows, 'row')} in the ledger and {in_bronze[key]:,} in bronze."
            )
    found.findings += [
        f"{source.name}: bronze has {counted(in_bronze[key], 'row')} of {key[0]}, which the "
        "ledger does not have as taken in."
        for key in in_bronze
        if key not in known
    ]
    found.findings += _gone_from_rejected(config, source, entries, newest)
    found.findings += _beyond_bronze(config, source, in_bronze)
    found.findings += _twice_in_silver(config, source)
    if unread:
        found.notes.append(
            f"{source.name}: {unread:,} files are deleted or overwritten, and cannot be counted "
            "again: the ledger's figures stand for them."
        )
    if len(found.findings) > _SHOWN:
        more = len(found.findings) - _SHOWN
        found.findings[_SHOWN:] = [f"{source.name}: and {more:,} more."]
    return found


def _lines(
    config: Config, source: SourceConfig, entry: Entry, newest: int
) -> tuple[int | None, str | None]:
    """Rows in a file that was taken in, and what is wrong with it."""
    is_gone = entry.state == ledger.ARCHIVED and entry.moved_to is None  # deleted, as configured
    if is_gone or (entry.moved_to is None and newest > entry.version):  # another one lies there
        return None, None
    place = entry.moved_to or entry.path
    try:
        return rows_of(config.layout.root / place, source), None
    except FileNotFoundError:
        return None, f"it was taken in, and {place} is not there any more."
    except FAULTS as error:
        return None, f"{place} cannot be read: {getattr(error, 'strerror', None) or error}."


def _gone_from_rejected(
    config: Config, source: SourceConfig, entries: list[Entry], newest: dict[str, int]
) -> list[str]:
    """Rejected files may be repaired and land anew; gone without that, they are lost."""
    return [
        f"{source.name}: {entry.path} was rejected, and {entry.moved_to} is not there any more."
        for entry in entries
        if entry.state == REJECTED
        and entry.moved_to
        and newest[entry.path] == entry.version
        and not os.path.lexists(config.layout.root / entry.moved_to)
    ]


def _beyond_bronze(config: Config, source: SourceConfig, in_bronze: Counter[Key]) -> list[str]:
    """Files with more rows in silver and quarantine than in bronze."""
    bronze: Counter[str] = Counter()
    for (path, _), rows in in_bronze.items():
        bronze[path] += rows
    carried: Counter[str] = Counter()
    for table in (f"silver.{source.name}", f"quarantine.{source.name}"):
        for path, rows in _rows(config, table, "_source_file, count(*)", "group by 1"):
            carried[path] += rows
    return [
        f"{source.name}: {path} has {counted(bronze[path], 'row')} in bronze, and {rows:,} in "
        "silver and quarantine."
        for path, rows in carried.items()
        if rows > bronze[path]
    ]


def _twice_in_silver(config: Config, source: SourceConfig) -> list[str]:
    keys = ", ".join(f'"{key}"' for key in source.keys)
    known = " and ".join(f'"{key}" is not null' for key in source.keys)
    sql = f"where {known} group by {keys} having count(*) > 1 limit {_SHOWN}"
    return [
        f"{source.name}: silver has {row[-1]} rows of {dict(zip(source.keys, row, strict=False))}."
        for row in _rows(config, f"silver.{source.name}", f"{keys}, count(*)", sql)
    ]


def _rows_by_file(config: Config, table: str) -> Counter[Key]:
    what = "_source_file, arrow_cast(_source_modified_at, 'Int64'), count(*)"
    rows = _rows(config, table, what, "group by _source_file, _source_modified_at")
    return Counter({(path, at): int(count) for path, at, count in rows})


def _rows(config: Config, table: str, what: str, rest: str) -> list[tuple[Any, ...]]:
    return tables.Opened(config.layout.table(table)).select(what, rest)
