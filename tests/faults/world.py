"""The landed files, and the expected tables after all of them are ingested."""

from __future__ import annotations

import gzip
import hashlib
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

Rows = tuple[tuple[str, ...], Counter[Any]]  # column names, and rows with their counts


@dataclass
class World(ABC):
    """Files of some sources that land one after the other, and the resulting tables.

    The expected place of a line depends only on the lines, the erased keys and the rules.
    """

    root: Path
    random: Random
    hashes: dict[str, str] = field(default_factory=dict)  # of each file's bytes
    rejected: set[str] = field(default_factory=set)  # names of files that must be rejected
    # Sources and keys that did not land again since.
    erased: set[tuple[str, str]] = field(default_factory=set)
    number: int = 0
    has_tags: bool = False  # the root is a directory of an S3 server
    _keys: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # of each file's lines

    sources: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()  # bronze first
    edits: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = ()  # settings and their values
    published: str = ""  # a published gold table; its first column is the key

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the configuration of the sources and tables."""

    @abstractmethod
    def expected(self) -> dict[str, Rows]:
        """Return the rows of each table, by its path below the root."""

    @abstractmethod
    def key_condition(self, source: str, key: str) -> str:
        """Return SQL for the rows of a key in silver."""

    @abstractmethod
    def keys(self, source: str) -> list[str]:
        """Return the keys of the landed lines."""

    @abstractmethod
    def _line(self, source: str, is_readable: bool) -> tuple[str, str | None]:
        """Return a line and its key; count the line only if its file is readable."""

    @abstractmethod
    def _forget(self, source: str, key: str) -> None:
        """Remove the lines of a key."""

    def suites(self) -> Mapping[str, Any]:
        """Return the current rules by table."""
        return {}

    def relax(self) -> str | None:
        """Relax a rule from now on, and return its description; None if no rule can be relaxed."""
        return None

    def land(self) -> Path:
        """Land one more file of up to twelve lines; some are compressed, some truncated."""
        source = self.random.choice(self.sources)
        return self._land(source, self.root / "landing" / source)

    def land_elsewhere(self) -> tuple[str, Path]:
        """Write a file for a backfill; return its source and its path."""
        source = self.random.choice(self.sources)
        return source, self._land(source, self.root / "elsewhere")

    def _land(self, source: str, folder: Path) -> Path:
        self.number += 1
        is_compressed = self.random.random() < 0.3
        is_truncated = is_compressed and self.random.random() < 0.3
        count = self.random.randint(1, 12)
        lines = [self._line(source, is_readable=not is_truncated) for _ in range(count)]
        content = "".join(f"{line}\n" for line, _ in lines).encode()
        if is_compressed:
            content = gzip.compress(content, mtime=0)
        name = f"{self.number:05}.json{'.gz' if is_compressed else ''}"
        keys = {(source, key) for _, key in lines if key}
        if is_truncated:
            content, keys = content[: -self.random.randint(9, len(content) // 2)], set()
            if folder.name != "elsewhere":  # a file outside of landing is not moved
                self.rejected.add(name)
        if folder.name != "elsewhere":
            self._keys[self._id(name)] = keys
        self.erased -= keys
        return self._publish(folder, name, content)

    def land_name_collision(self) -> Path | None:
        """Land a different file under an ingested file's name; it must be reported and stay."""
        source = self.random.choice(self.sources)
        landing, archive = self.root / "landing" / source, self.root / "archive" / source
        landed = {file.name for file in landing.glob("*")}
        names = (
            sorted({f.name for f in archive.glob("*.json")} - landed) if archive.is_dir() else []
        )
        if not names:
            return None
        self.number += 1
        content = f'{{"id": "namesake", "action": "open", "time": {self.number}}}\n'.encode()
        return self._publish(landing, self.random.choice(names), content)

    def _id(self, name: str) -> str:
        return f"{name}#{self.number}"

    def _publish(self, folder: Path, name: str, content: bytes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.hashes[self._id(name)] = hashlib.sha256(content).hexdigest()
        hidden, visible = folder / f".{name}", folder / name
        hidden.write_bytes(content)
        if self.has_tags:  # as the server does when it gets an object
            os.setxattr(hidden, "user.etag", f'"{hashlib.md5(content).hexdigest()}"'.encode())
        if self.random.random() < 0.2:  # a sender's clock may differ
            at = hidden.stat().st_mtime + self.random.choice((-90, -3, 2, 30)) * 86_400
            os.utime(hidden, (at, at))
        hidden.rename(visible)
        return visible

    def erase(self, source: str, key: str) -> None:
        """Remove the landed lines of a key; their files have unknown bytes from now on."""
        self._forget(source, key)
        self.erased.add((source, key))
        for file in [file for file, keys in self._keys.items() if (source, key) in keys]:
            self.hashes.pop(file, None)
