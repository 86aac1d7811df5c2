"""Results of commands as text and as JSON: `sql`, `files`, `schema`, `backfill` and others.

For each command one function returns the JSON document, and one the lines for a terminal.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from medallion.cli.terminal import aligned_table, cell_text, iso_utc, json_value
from medallion.storage.paths import StoragePath
from medallion.storage.text import counted, printable

if TYPE_CHECKING:  # each command imports what it needs
    from medallion.factory import Landed
    from medallion.ingest.schema.registry import SchemaVersion
    from medallion.runtime.backfill import BackfillResult
    from medallion.runtime.erase import EraseResult
    from medallion.runtime.maintenance import MaintenanceResult
    from medallion.runtime.replay import ReplayCounts
    from medallion.sql.result import Names, Result
    from medallion.state.ledger import Entry

_TIMES = ("modified_at", "first_seen_at", "committed_at", "reported_at", "dismissed_at")
_LEDGER_COLUMNS = (
    "path", "version", "state", "size", "rows", "corrupt_rows", "rescued_rows", "batch",
    "committed_at", "moved_to", "dismissed_at", "why",
)  # fmt: skip


def sql_json(result: Result) -> dict[str, Any]:
    """Return `{"columns": [...], "rows": [[...], ...]}`; NaN and infinities become strings."""
    return {"columns": list(result.columns), "rows": json_value(result.rows)}


def sql_text(result: Result) -> str:
    """Return an aligned table, or the plans of EXPLAIN with their own lines."""
    if result.columns == ("plan_type", "plan"):
        return "\n".join(f"{name}:\n{f'{plan}'.rstrip()}" for name, plan in result.rows)
    return "\n".join(aligned_table(result.columns, result.rows))


def csv_lines(columns: Names, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Yield lines of RFC 4180 CSV, the header first; NULL is an empty field."""
    line: Any = SimpleNamespace(write=str)  # writerow returns what `write` returns
    write = csv.writer(line).writerow
    for row in chain([columns], rows):
        yield write(["" if value is None else cell_text(value) for value in row])


def files_json(entries: Sequence[Entry]) -> dict[str, Any]:
    """Return the rows of the ledger, with times in ISO 8601."""
    rows = [asdict(entry) for entry in entries]
    return {"files": [{**row, **{name: iso_utc(row[name]) for name in _TIMES}} for row in rows]}


def files_text(entries: Sequence[Entry]) -> str:
    """Return the rows of the ledger as an aligned table, and their number."""
    rows = [[row[name] for name in _LEDGER_COLUMNS] for row in files_json(entries)["files"]]
    return "\n".join([*aligned_table(_LEDGER_COLUMNS, rows), f"({counted(len(rows), 'file')})"])


def schema_json(versions: Sequence[SchemaVersion]) -> dict[str, Any]:
    """Return the versions of a source's schema, each with its columns and their types."""
    return {"versions": [asdict(version) for version in versions]}


def schema_text(versions: Sequence[SchemaVersion]) -> str:
    """Return each version with its differences from the one before."""
    from medallion.ingest.schema import registry

    if not versions:
        return "no version yet: the first run of the source creates it"
    lines = []
    for version, changes in registry.changes_by_version(versions):
        lines.append(f"version {version.version}  {version.created_at}  {version.why}")
        lines += [f"  {line}" for line in changes]
    return "\n".join(map(printable, lines))


def backfill_text(result: BackfillResult) -> str:
    """Return a summary, and a line for each file that was not ingested."""
    if result.topic:
        return f"topic {result.topic}: {counted(result.rows, 'row')} ingested"
    known = result.files - result.new_files - len(result.waiting)
    waiting = f", {len(result.waiting):,} waiting" if result.waiting else ""
    summary = (
        f"{counted(result.files, 'file')}: {result.new_files:,} ingested with "
        f"{counted(result.rows, 'row')}, {known:,} known before or refused{waiting}"
    )
    left = (*result.refused, *result.waiting)
    return "\n".join([summary, *(printable(f"  {e.path}: {e.state}: {e.why}") for e in left)])


def erasure_json(result: EraseResult) -> dict[str, Any]:
    """Return the rows by table, what was done with each file, and what may have more such rows."""
    erasure = result.erasure
    return {
        "table": erasure.table,
        "dry_run": result.is_dry_run,
        "rows": dict(erasure.rows),
        "files": [
            {"path": o.location or o.path, "rows": o.rows, "action": o.action}
            for o in erasure.origins
        ],
        "rebuilt": list(erasure.rebuilt) if erasure.has_rows else [],
        "undecided_rows": erasure.undecided,
        "purged": erasure.purge and not result.is_dry_run,
        "notes": list(result.notes),
    }


def erasure_text(result: EraseResult) -> str:
    """Return a table of the rows by table and file, then the tables that were rebuilt and notes."""
    document = erasure_json(result)
    erased = "would be erased" if result.is_dry_run else "erased"
    rows = [(name, count, erased) for name, count in document["rows"].items()]
    rows += [(each["path"], each["rows"], each["action"]) for each in document["files"]]
    rows += [(name, "", "rebuilt") for name in document["rebuilt"]]
    lines = aligned_table(("table or file", "rows", "action"), rows)
    return "\n".join([*lines, *(printable(f"note: {note}") for note in result.notes)])


def landed_json(landed: Mapping[str, Landed]) -> dict[str, Any]:
    """Return the figures of each source."""
    return {source: one.figures() for source, one in landed.items()}


def landed_text(landed: Mapping[str, Landed]) -> str:
    """Return a line for each figure, but those by rule, and a column for each source."""
    figures = [*landed_json(landed).values()]
    names = (name for name, value in figures[0].items() if isinstance(value, int))
    rows = [(name, *(each[name] for each in figures)) for name in names]
    return "\n".join(aligned_table(("figure", *landed), rows))


def sample_text(root: StoragePath, files: Mapping[str, int], is_read: bool) -> str:
    """Return how many sample files landed by source, or why none did.

    Args:
        root: the root of the lakehouse.
        files: numbers of files by source.
        is_read: True if a source of the configuration reads the sample.
    """
    from medallion.factory.plan import SOURCE_NAMES

    if files:
        landed = ", ".join(f"{counted(n, 'file')} of {name}" for name, n in files.items())
        return f"landed the sample under {root}: {landed}"
    if is_read:
        return f"the landing zone of {root} already had files: no sample landed"
    names = ", ".join(SOURCE_NAMES)
    return f"the sample is JSON lines of {names}, which no source here reads: none landed"


def maintenance_text(result: MaintenanceResult) -> str:
    """Return a line for each table that changed, and the notes below them."""
    lines = [
        f"{name}: {counted(done.compacted_files, 'file')} compacted, "
        f"{counted(done.removed_files, 'file')} and {counted(done.removed_commits, 'commit')} "
        "removed"
        for name, done in result.tables.items()
    ]
    return "\n".join([*lines, *map(printable, result.notes)] or ["nothing to do"])


def replay_json(counts: ReplayCounts) -> dict[str, Any]:
    """Return the numbers of rows of a replay."""
    return {f"{name}_rows": rows for name, rows in asdict(counts).items()}


def replay_text(counts: ReplayCounts) -> str:
    """Return what a replay did, in one line."""
    left = f"{counted(counts.quarantined, 'row')} in quarantine"
    if not (counts.replayed or counts.duplicate):
        hint = "correct a malformed line, and land it in a new file"
        return f"none of {counted(counts.validated, 'row')} passes the rules; {left} ({hint})"
    return (
        f"{counted(counts.replayed, 'row')} moved to silver, "
        f"{counted(counts.duplicate, 'duplicate')} removed; {left}"
    )
