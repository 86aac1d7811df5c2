"""Everything counted again by Python and DataFusion, neither of which is Spark."""

from __future__ import annotations

import os
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from medallion.config.loader import Config, GoldTable, Source
from medallion.errors import UsageError
from medallion.lakehouse import tables
from medallion.lakehouse.columns import WINDOW
from medallion.lakehouse.text import counted
from medallion.ops import ledger
from medallion.ops.ledger import REJECTED, TAKEN, Entry
from medallion.sources.files.recount import rows_of
from medallion.spark import checkpoints
from medallion.sql import engine

_SHOWN = 20
Key = tuple[str, int]  # a file's path and its modification time: one version of a file


@dataclass
class Recount:
    """What was found, and what could not be looked at, a line each."""

    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recount(config: Config, source: Source) -> Recount:
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
    config: Config, source: Source, entry: Entry, newest: int
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
    except (OSError, EOFError, zlib.error) as error:
        return None, f"{place} cannot be read: {getattr(error, 'strerror', None) or error}."


def _gone_from_rejected(
    config: Config, source: Source, entries: list[Entry], newest: dict[str, int]
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


def _beyond_bronze(config: Config, source: Source, in_bronze: Counter[Key]) -> list[str]:
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


def _twice_in_silver(config: Config, source: Source) -> list[str]:
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
    if tables.version(config.layout.table(table)) < 0:
        return []
    return engine.query(str(config.layout.root), f"select {what} from {table} {rest}").rows


def recount_gold(config: Config) -> Recount:
    """Aggregate silver anew, and compare each gold table that has read all of it."""
    found = Recount()
    for table in config.gold.values():
        name, silver = f"gold.{table.name}", config.layout.table(f"silver.{table.source}")
        if tables.version(config.layout.table(name)) < 0:
            continue
        checkpoint = config.layout.checkpoint(name)
        read = checkpoints.delta_offset(checkpoint, checkpoints.last_committed(checkpoint))
        if read.version <= tables.version(silver) and tables.version(silver) > 0:
            found.notes.append(f"{name}: not compared, for it has not read all of silver yet.")
            continue
        try:
            differing = _gold_differences(config, table)
        except UsageError as error:
            found.notes.append(f"{name}: not compared ({error}).")
            continue
        if differing:
            groups = counted(differing, "group")
            found.findings.append(f"{name}: it differs from silver's rows in {groups}.")
    return found


def _gold_differences(config: Config, table: GoldTable) -> int:
    """Groups that only one of the two has, or has twice, or with other measures."""
    groups = ["one", *(f'"{c}"' for c in (*(WINDOW if table.window else ()), *table.group_by))]
    listed = ", ".join([*groups[1:], *(f'"{name}"' for name in table.measure)])
    differ = " or ".join(_differs(name, kind) for name, kind in _measures(config, table).items())
    sql = (
        f"select count(*) from (select 1 from (select 1 as one, 1 as side, {listed} from"
        f" gold.{table.name} union all select 1 as one, -1 as side, {listed} from"
        f" ({_aggregate(config, table)}) again) compared group by {', '.join(groups)}"
        f" having count(*) <> 2 or sum(side) <> 0 or {differ}) differing"
    )
    return int(engine.query(str(config.layout.root), sql).rows[0][0])


def _measures(config: Config, table: GoldTable) -> dict[str, str]:
    from deltalake import DeltaTable

    found = DeltaTable(config.layout.table(f"gold.{table.name}")).schema().fields
    return {field.name: str(field.type.type) for field in found if field.name in table.measure}


def _differs(name: str, kind: str) -> str:
    """SQL: whether the two values of a group are not the same; sums depend on their order."""
    column, high, low = f'"{name}"', f'max("{name}")', f'min("{name}")'
    other = f"{high} <> {low}"
    if kind in ("double", "float"):
        other += f" and not {high} - {low} <= {_NEAR} * greatest(abs({high}), abs({low}))"
    return f"count({column}) = 1 or ({other})"


_NEAR = "1e-9"


def _aggregate(config: Config, table: GoldTable) -> str:
    """The table's aggregate as DataFusion would write it; a slide is as many shifted windows."""
    measures = [f'{_quotients(sql)} as "{name}"' for name, sql in table.measure.items()]
    groups = [f'"{column}"' for column in table.group_by]
    source = f"silver.{table.source}"
    if table.window:
        width, step = table.window.seconds, (table.slide or table.window).seconds
        time = f'"{config.sources[table.source].event_time}"'
        shifts = ", ".join(f"({at})" for at in range(0, width, step))
        # Not date_bin: it goes by nanoseconds, and those end in 1677 and 2262.
        micros, size = f"arrow_cast({time}, 'Int64')", step * 1_000_000
        start = f"({micros} - ({micros} % {size} + {size}) % {size} - shift * 1000000)"
        source = (
            f"(select *, {_time(start)} as window_start,"
            f" {_time(f'({start} + {width} * 1000000)')} as window_end"
            f" from {source} cross join (values {shifts}) shifts(shift)) windowed"
            f" where {time} < window_end"
        )
        groups = [*WINDOW, *groups]
    by = f" group by {', '.join(groups)}" if groups else " having count(*) > 0"
    return f"select {', '.join([*groups, *measures])} from {source}{by}"


_QUOTED_OR_DIVIDED = re.compile(r"'(?:[^'\\]|\\.)*'|\"[^\"]*\"|`[^`]*`|/")


def _quotients(sql: str) -> str:
    """DataFusion divides whole numbers by whole numbers into whole numbers, and Spark does not."""
    return _QUOTED_OR_DIVIDED.sub(lambda m: "* 1.0 /" if m[0] == "/" else m[0], sql)


def _time(micros: str) -> str:
    return f"arrow_cast({micros}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
