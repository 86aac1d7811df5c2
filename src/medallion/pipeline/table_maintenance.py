"""One table kept in order by Delta itself: small files put together, old files and commits removed.

What is needed is told by versions, and not by times: a clock may step, and a reader may be late.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from medallion.config.model import Maintenance
from medallion.lakehouse import log, tables
from medallion.pipeline.needed_versions import Need

# Each version that is to be kept has its files looked up, some milliseconds each.
MOST_VERSIONS = 1000
# What no commit names is left by a write that was cut off, if it is older than any write takes.
_ORPHANED_HOURS = 7 * 24


@dataclass(frozen=True)
class Done:
    """What was done to a table: files put together, and files and commits removed."""

    compacted_files: int = 0
    removed_files: int = 0
    removed_commits: int = 0


def compact(table: Path, policy: Maintenance) -> int:
    """Put small files together, where there are enough; how many. No row is new for it."""
    adds = tables.open_table(table).get_add_actions(flatten=True)
    sizes = adds.column("size_bytes").to_pylist()
    if sum(size < policy.target_file_size for size in sizes) < policy.compact_from:
        return 0
    delta = tables.open_to_write(table)
    metrics = delta.optimize.compact(target_size=policy.target_file_size)
    return int(metrics["numFilesRemoved"])


def clean(
    table: Path, policy: Maintenance, need: Need | None, is_idle: bool, has_feed: bool = False
) -> Done:
    """Remove files and commits that are older than the policy says and that nobody needs.

    Args:
        need: from which commit on the rows that were added are still to be read; None where all
            have been.
        is_idle: nobody writes the table now, so that what no commit names can be told from what
            one is about to name.
        has_feed: its changes are read, some of which are in files that a version took away.
    """
    needed = range(need.version, tables.version(table) + 1) if need else range(0)
    if len(needed) > MOST_VERSIONS:
        return Done()
    within = need.version if need and need.is_within else None
    kept = [v for v in needed if has_feed or log.added_files(table, v, v) or v == within]
    feed = set(log.feed_files(table, needed.start, needed.stop - 1))
    # Delta's writer takes a feed that is to be read for what no commit names. So of a table that is
    # published, what a killed write has left stays.
    removed = _vacuum(table, policy, kept, is_idle and not feed)
    before = log.commits(table).keys()
    if _are_young(table, needed, policy.retention.seconds):
        tables.open_to_write(table).cleanup_metadata()
    removed_commits = len(before - log.commits(table).keys())
    removed += _sweep_feed(table, feed, policy.retention.seconds)
    _sweep(table)
    return Done(removed_files=removed, removed_commits=removed_commits)


def _vacuum(table: Path, policy: Maintenance, keep: list[int], is_idle: bool) -> int:
    """Remove what was replaced before the retention; the files of the versions to `keep` stay,
    whenever they were replaced."""
    seconds = policy.retention.seconds
    passes = [(math.ceil(seconds / 3600) if seconds >= 3600 else 0, False)]
    if is_idle:  # what no commit names as well, for no write is under way
        passes.append((_ORPHANED_HOURS, True))
    removed = 0
    for hours, is_full in passes:
        how: dict[str, Any] = {
            "retention_hours": hours,
            "enforce_retention_duration": False,
            "full": is_full,
            "keep_versions": keep or None,
        }
        found = tables.open_table(table).vacuum(dry_run=True, **how)
        # It would put on record once more what it has removed before.
        if there := sum((table / unquote(file)).exists() for file in found):
            tables.open_to_write(table).vacuum(dry_run=False, **how)
            removed += there
    return removed


def _sweep_feed(table: Path, kept: Set[Path], age: float) -> int:
    """Remove what commits said of their changes, once nobody needs it; the log knows nothing of
    its end."""
    removed = 0
    for file in (table / "_change_data").glob("*.parquet"):
        if file not in kept and file.stat().st_mtime < time.time() - age:
            file.unlink()
            removed += 1
    return removed


def _are_young(table: Path, versions: Iterable[int], age: float) -> bool:
    """Whether all commits of these versions are there, and none is as old as what is cleaned up."""
    oldest = time.time() - age
    try:
        return all(log.commit_file(table, version).stat().st_mtime > oldest for version in versions)
    except FileNotFoundError:
        return False


def _sweep(table: Path) -> None:
    """Remove checksums of files that are gone: Hadoop writes one beside each file, and nobody else
    knows of them."""
    settled = time.time() - timedelta(hours=1).total_seconds()
    for folder in (table, table / "_delta_log", table / "_change_data"):
        for checksum in folder.glob(".*.crc"):
            of = folder / checksum.name[1 : -len(".crc")]
            with suppress(FileNotFoundError):  # of a write that is under way
                if not of.exists() and checksum.stat().st_mtime < settled:
                    checksum.unlink()
    oldest = min(log.commits(table), default=0)
    for checksum in (table / "_delta_log").glob("*.crc"):
        if checksum.stem.isdigit() and int(checksum.stem) < oldest:
            checksum.unlink(missing_ok=True)
