"""What has landed, and by arithmetic what the tables must hold once all of it is ingested."""

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

Rows = tuple[tuple[str, ...], Counter[Any]]  # the names of columns, and each row with its number


@dataclass
class World(ABC):
    """The files of some sources, landed one after the other, and the tables that follow.

    Where a line must be in the end depends on nothing but the lines, the erased keys and the rules.
    """

    root: Path
    random: Random
    hashes: dict[str, str] = field(default_factory=dict)  # of the bytes of each file
    refused: set[str] = field(default_factory=set)  # names of files that must be rejected
    erased: set[tuple[str, str]] = field(default_factory=set)  # sources and keys, not landed since
    number: int = 0
    _keys: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # of each file's lines

    sources: tuple[str, ...] = ()
    queries: tuple[str, ...] = ()  # bronze's first
    edits: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = ()  # settings, and their values
    published: str = ""  # a gold table with files of its changes; its first column is its key

    @abstractmethod
    def document(self) -> dict[str, Any]:
        """Return the configuration of the sources and tables."""

    @abstractmethod
    def expected(self) -> dict[str, Rows]:
        """Return the rows of each table, by its path below the root."""

    @abstractmethod
    def key_condition(self, source: str, key: str) -> str:
        """Return SQL over a silver table for the rows of a key."""

    @abstractmethod
    def keys(self, source: str) -> list[str]:
        """Return the keys of the lines that landed."""

    @abstractmethod
    def _line(self, source: str, counts: bool) -> tuple[str, str | None]:
        """Return a line, and its key; if it counts, it is a part of a file that can be read."""

    @abstractmethod
    def _forget(self, source: str, key: str) -> None:
        """Remove the lines of a key."""

    def suites(self) -> Mapping[str, Any]:
        """Return the rules of today, by the names of tables."""
        return {}

    def loosen(self) -> str | None:
        """Let more rows pass from now on; None if there is no such rule."""
        return None

    def land(self) -> Path:
        """Land one more file, with up to twelve lines; some are packed, and some truncated."""
        source = self.random.choice(self.sources)
        return self._land(source, self.root / "landing" / source)

    def land_elsewhere(self) -> tuple[str, Path]:
        """Write a file for a backfill; return its source and its path."""
        source = self.random.choice(self.sources)
        return source, self._land(source, self.root / "elsewhere")

    def _land(self, source: str, folder: Path) -> Path:
        self.number += 1
        is_packed = self.random.random() < 0.3
        is_torn = is_packed and self.random.random() < 0.3
        count = self.random.randint(1, 12)
        lines = [self._line(source, counts=not is_torn) for _ in range(count)]
        content = "".join(f"{line}\n" for line, _ in lines).encode()
        if is_packed:
            content = gzip.compress(content, mtime=0)
        name = f"{self.number:05}.json{'.gz' if is_packed else ''}"
        keys = {(source, key) for _, key in lines if key}
        if is_torn:
            content, keys = content[: -self.random.randint(9, len(content) // 2)], set()
            if folder.name != "elsewhere":  # there it stays where its owner keeps it
                self.refused.add(name)
        if folder.name != "elsewhere":
            self._keys[self._id(name)] = keys
        self.erased -= keys
        return self._show(folder, name, content)

    def land_namesake(self) -> Path | None:
        """Land another file under an ingested one's name: it must be reported, and stay."""
        source = self.random.choice(self.sources)
        landing, archive = self.root / "landing" / source, self.root / "archive" / source
        there = {file.name for file in landing.glob("*")}
        names = sorted({f.name for f in archive.glob("*.json")} - there) if archive.is_dir() else []
        if not names:
            return None
        self.number += 1
        content = f'{{"id": "namesake", "action": "open", "time": {self.number}}}\n'.encode()
        return self._show(landing, self.random.choice(names), content)

    def _id(self, name: str) -> str:
        return f"{name}#{self.number}"

    def _show(self, folder: Path, name: str, content: bytes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.hashes[self._id(name)] = hashlib.sha256(content).hexdigest()
        hidden, shown = folder / f".{name}", folder / name
        hidden.write_bytes(content)
        if self.random.random() < 0.2:  # a sender's clock is not ours
            at = hidden.stat().st_mtime + self.random.choice((-90, -3, 2, 30)) * 86_400
            os.utime(hidden, (at, at))
        hidden.rename(shown)
        return shown

    def erase(self, source: str, key: str) -> None:
        """Remove the lines of a key that have landed; their files have other bytes from now on."""
        self._forget(source, key)
        self.erased.add((source, key))
        for file in [file for file, keys in self._keys.items() if (source, key) in keys]:
            self.hashes.pop(file, None)
