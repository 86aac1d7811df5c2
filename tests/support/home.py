"""One file source of a lakehouse without Spark, and readers of its queue and ledger."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files.archive import archive_due_files
from medallion.ingest.files.discovery import Discovery, is_ready
from medallion.state import ledger
from medallion.state.ledger import Entry, Ledger, State
from medallion.storage.layout import Layout
from tests.support.delta_log import added_files, rows_of_parquet
from tests.support.lakehouse import Lakehouse, activity_source


class Home:
    """One file source of a lakehouse; `messages` collects the messages of polls."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.lakehouse = Lakehouse(None, root)
        self.lakehouse.set_source(activity_source(**changes))
        self.messages: list[str] = []

    @property
    def config(self) -> Config:
        return self.lakehouse.config

    @property
    def project_config(self) -> Config:
        """The configuration of this root with all of the project's sources and gold tables."""
        return Lakehouse(None, self.lakehouse.root).config

    @property
    def layout(self) -> Layout:
        return self.config.layout

    @property
    def source(self) -> SourceConfig:
        (source,) = self.config.sources.values()
        return source

    @property
    def landing(self) -> Path:
        return self.layout.landing(self.source.name).local

    def change(self, **changes: Any) -> None:
        """Change settings of the source."""
        self.lakehouse.set_source(replace(self.source, **changes))

    def land(self, name: str, text: str = "{}\n", age: float = 0) -> Path:
        """Write a file with this content and an age in seconds; return its path."""
        return set_age(self.lakehouse.land_text(self.source.name, name, text), age)

    def path(self, name: str) -> str:
        """Return the ledger's path of a file; absolute and rejected paths are unchanged."""
        return (
            name
            if name.startswith(("/", "s3:", "rejected/"))
            else f"landing/{self.source.name}/{name}"
        )

    def discovery(self) -> Discovery:
        return Discovery(self.config, self.source)

    def poll(self) -> int:
        """Poll the directories with a new `Discovery`, as a new process does."""
        discovery = self.discovery()
        result = discovery.scan()
        discovery.enqueue(result, self.messages.append)
        discovery.ledger.write([])  # as the batch would
        return len(result.new)

    def reject(self, ledger: Ledger, unreadable: list[Entry]) -> None:
        """Record unreadable files, as a batch does, and move them, as its release does."""
        ledger.write(unreadable)
        archive_due_files(self.config, self.source, ledger, -1, self.messages.append)

    def backlog(self) -> list[Entry]:
        """Return the files that are to be ingested, enqueued or not."""
        return [entry for entry in self.discovery().entries() if is_ready(entry)]

    def commits(self) -> list[list[tuple[str, int]]]:
        """Return names and versions of the files of each commit of the queue, the oldest first."""
        table = self.layout.queue(self.source.name)
        if not (table / "_delta_log").local.is_dir():
            return []
        commits = []
        for version in range(1, DeltaTable(table).version() + 1):
            # Spark would read several files as several batches.
            (add,) = added_files(table.local, version)
            rows = rows_of_parquet((table / add["path"]).local)
            commits.append([(self._short(row["path"]), row["version"]) for row in rows])
        return commits

    def queued(self) -> list[tuple[str, int]]:
        """Return all queued files, in order."""
        return [row for commit in self.commits() for row in commit]

    def names(self) -> list[str]:
        return [name for name, _ in self.queued()]

    def ledger(self) -> dict[tuple[str, int], Entry]:
        """Return the ledger's entries by path (below landing/<source>) and version."""
        entries = ledger.read_entries(self.layout, self.source.name)
        return {(self._short(entry.path), entry.version): entry for entry in entries}

    def states(self) -> dict[tuple[str, int], str]:
        return {key: entry.state for key, entry in self.ledger().items()}

    def ingest(self, *names: str, batch: int = 0, at: int | None = None) -> None:
        """Record the newest versions of these files as ingested."""
        source_ledger = self.discovery().ledger
        entries = [source_ledger.newest(self.path(name)) for name in names]
        now = time.time_ns() // 1000 if at is None else at
        changes: dict[str, Any] = {
            "state": State.INGESTED,
            "batch": batch,
            "committed_at": now,
            "rows": 1,
        }
        source_ledger.write([replace(entry, **changes) for entry in entries if entry])

    def _short(self, path: str) -> str:
        return path.removeprefix(self.path(""))


def set_age(file: Path, age: float) -> Path:
    """Set a file's modification time to `age` seconds ago."""
    at = time.time() - age
    os.utime(file, (at, at))
    return file


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Return size and modification time of every file and directory below a root."""
    stats = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        stats[str(path.relative_to(root))] = (stat.st_size, stat.st_mtime_ns)
    return stats
