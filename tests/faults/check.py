"""The tables against the arithmetic of what landed, read by an engine that is not medallion's."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from tests.faults.world import World

TIMES = ("event_at", "window_start")


def differences(world: World) -> list[str]:
    """Return what is wrong after all that landed was ingested; empty if all is well."""
    found = list[str]()
    for table, (names, expected) in world.expected().items():
        columns = [f"epoch_us({name})" if name in TIMES else name for name in names]
        there = rows(world.root, table, ", ".join(columns) or "1")
        times = [name in TIMES for name in names]
        found += _unlike(table, Counter(_with_times(row, times) for row in there), expected)
    names, expected = world.expected()[f"gold/{world.published}"]
    published = Counter(_published(world.root / "publish" / world.published, names))
    found += _unlike(f"publish/{world.published}", published, expected)
    return found + _files(world)


def _with_times(row: Sequence[Any], times: Sequence[bool]) -> tuple[Any, ...]:
    values = zip(row, times, strict=False)  # a row without columns is a 1
    return tuple(_at(value) if is_time else value for value, is_time in values)


def _published(folder: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a gold table as a reader of all published changes has it."""
    manifests = folder.glob("*/_files.json")
    files = [m.parent / name for m in manifests for name in json.loads(m.read_text())["files"]]
    changes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows: dict[str, tuple[Any, ...]] = {}
    for change in sorted(
        changes, key=lambda one: (one["_commit_version"], one["_change_type"] != "delete")
    ):
        key = change[names[0]]
        if change["_change_type"] == "delete":
            del rows[key]
        else:
            rows[key] = tuple(change[name] for name in names)
    return list(rows.values())


def rows(root: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Rows of the newest version, by the list of files in Delta's log."""
    files = DeltaTable(root / table).file_uris() if (root / table / "_delta_log").is_dir() else []
    if not files:
        return []
    listed = ", ".join(f"'{file}'" for file in files)
    with duckdb.connect() as engine:
        return engine.sql(f"select {columns} from read_parquet([{listed}])").fetchall()


def _at(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def _unlike(what: str, found: Counter[Any], expected: Counter[Any]) -> list[str]:
    missing, more = expected - found, found - expected
    output = []
    for name, some in (("missing", missing), ("too many", more)):
        if some:
            examples: list[tuple[Hashable, int]] = sorted(some.items(), key=repr)[:3]
            output.append(f"{what}: {some.total()} {name}, such as {examples}")
    return output


def _files(world: World) -> list[str]:
    """Every file that landed is still stored, byte for byte, unless lines were erased from it."""
    places = ("landing", "archive", "rejected", "elsewhere")
    files = [f for place in places for f in (world.root / place).rglob("*") if f.is_file()]
    there = Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    gone = [name for name, digest in world.hashes.items() if not there[digest]]
    found = [f"files gone: {', '.join(gone[:5])}"] if gone else []
    names = {file.name for file in files if "rejected" in file.parts}
    kept = [name for name in world.refused if not any(name in other for other in names)]
    found += [f"torn files not rejected: {', '.join(kept[:5])}"] if kept else []
    return found + [
        f"{key} was erased, and is in {file.name}"
        for source, key in world.erased
        for file in (world.root / "archive" / source).rglob("*")
        if f'"{key}"'.encode() in _unpacked(file)
    ]


def _unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content
