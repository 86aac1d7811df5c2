"""A source's folders without Spark: files land, and what was handed over is read back."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from medallion.config.loader import load
from medallion.config.model import Config, SourceConfig
from medallion.ingest.files.classify import is_ready
from medallion.ingest.files.discovery import Discovery
from medallion.state import ledger
from medallion.state.ledger import Entry, State
from medallion.storage.paths import Layout
from tests.support import PROJECT


def a_source(**changes: Any) -> SourceConfig:
    """The project's source `activity` with some settings changed."""
    return replace(load({}, PROJECT).sources["activity"], **changes)


class Home:
    """A lakehouse of one source."""

    def __init__(self, root: Path, **changes: Any) -> None:
        self.layout, self.source = Layout(root), a_source(**changes)
        self.said: list[str] = []

    @property
    def config(self) -> Config:
        sources = {self.source.name: self.source}
        return replace(load({}, PROJECT), layout=self.layout, sources=sources, gold={})

    @property
    def landing(self) -> Path:
        return self.layout.landing(self.source.name).local

    def change(self, **changes: Any) -> None:
        """Other settings from now on."""
        self.source = replace(self.source, **changes)

    def land(self, name: str, text: str = "{}\n", age: float = 0) -> Path:
        """A file of this text, which is so many seconds old; its name as the ledger has it."""
        file = self.landing / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return aged(file, age)

    def path(self, name: str) -> str:
        """A file's path as the ledger has it; one with all its folders is elsewhere."""
        return name if name.startswith(("/", "rejected/")) else f"landing/{self.source.name}/{name}"

    def discovery(self) -> Discovery:
        return Discovery(self.config, self.source)

    def poll(self) -> int:
        """One look at the folders by a process of its own."""
        discovery = self.discovery()
        result = discovery.scan()
        discovery.enqueue(result, self.said.append)
        return len(result.new)

    def backlog(self) -> list[Entry]:
        """Return the files that are to be ingested, enqueued or not."""
        return [entry for entry in self.discovery().entries() if is_ready(entry)]

    def commits(self) -> list[list[tuple[str, int]]]:
        """Paths (below landing/<source>) and versions, a list for each commit, the oldest first."""
        table = self.layout.intake(self.source.name)
        if not (table / "_delta_log").local.is_dir():
            return []
        found = []
        for version in range(1, DeltaTable(table).version() + 1):
            (file,) = added(table.local, version)  # several files would be as many batches to Spark
            rows = rows_of_parquet((table / file).local)
            found.append([(self._short(row["path"]), row["version"]) for row in rows])
        return found

    def handed(self) -> list[tuple[str, int]]:
        """Everything that was handed over, in its order."""
        return [row for commit in self.commits() for row in commit]

    def names(self) -> list[str]:
        return [name for name, _ in self.handed()]

    def ledger(self) -> dict[tuple[str, int], Entry]:
        """The ledger's rows by path (below landing/<source>) and version."""
        found = ledger.read_entries(self.layout, self.source.name)
        return {(self._short(entry.path), entry.version): entry for entry in found}

    def states(self) -> dict[tuple[str, int], str]:
        return {key: entry.state for key, entry in self.ledger().items()}

    def take_in(self, *names: str, batch: int = 0, at: int | None = None) -> None:
        """Put on record that bronze has the newest versions of these."""
        book = self.discovery().ledger
        entries = [book.newest(self.path(name)) for name in names]
        now = time.time_ns() // 1000 if at is None else at
        done: dict[str, Any] = {
            "state": State.INGESTED,
            "batch": batch,
            "committed_at": now,
            "rows": 1,
        }
        book.write([replace(entry, **done) for entry in entries if entry])

    def _short(self, path: str) -> str:
        return path.removeprefix(self.path(""))


def aged(file: Path, age: float) -> Path:
    """Give a file a modification time of so many seconds ago."""
    at = time.time() - age
    os.utime(file, (at, at))
    return file


def added(table: Path, version: int) -> list[str]:
    """The data files that one commit added."""
    log = table / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [action["add"]["path"] for action in actions if "add" in action]


def rows_of_parquet(file: Path) -> list[dict[str, Any]]:
    found = duckdb.read_parquet(str(file))
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def tree(root: Path) -> dict[str, tuple[int, int]]:
    """Every file below a folder with its size and time, and every folder."""
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        found[str(path.relative_to(root))] = (stat.st_size, stat.st_mtime_ns)
    return found
