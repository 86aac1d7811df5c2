"""Comparison of the tables with the landed lines, by an engine that medallion does not use."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
from deltalake import DeltaTable

from tests.faults.world import World

TIMES = ("event_at", "window_start")


def differences(world: World) -> list[str]:
    """Return the differences after all landed files were ingested; empty if there are none."""
    output = list[str]()
    for table, (names, expected) in world.expected().items():
        columns = [f"epoch_us({name})" if name in TIMES else name for name in names]
        actual = rows(world.root, table, ", ".join(columns) or "1")
        times = [name in TIMES for name in names]
        output += _compare(table, Counter(_with_times(row, times) for row in actual), expected)
    names, expected = world.expected()[f"gold/{world.published}"]
    published = Counter(_published(world.root / "publish" / world.published, names))
    output += _compare(f"publish/{world.published}", published, expected)
    return output + _files(world)


def _with_times(row: Sequence[Any], times: Sequence[bool]) -> tuple[Any, ...]:
    values = zip(row, times, strict=False)  # a table without checked columns is read as 1s
    return tuple(_at(value) if is_time else value for value, is_time in values)


def _published(folder: Path, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return a gold table as a reader of all published changes sees it."""
    manifests = folder.glob("*/_files.json")
    files = [m.parent / name for m in manifests for name in json.loads(m.read_text())["files"]]
    changes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows: dict[str, tuple[Any, ...]] = {}
    for change in sorted(
        changes, key=lambda change: (change["_commit_version"], change["_change_type"] != "delete")
    ):
        key = change[names[0]]
        if change["_change_type"] == "delete":
            del rows[key]
        else:
            rows[key] = tuple(change[name] for name in names)
    return list(rows.values())


def rows(root: Path, table: str, columns: str) -> list[tuple[Any, ...]]:
    """Return the rows of the newest version, from the files that Delta's log lists."""
    files = DeltaTable(root / table).file_uris() if (root / table / "_delta_log").is_dir() else []
    if not files:
        return []
    file_list = ", ".join(f"'{unquote(file)}'" for file in files)
    with duckdb.connect() as engine:
        return engine.sql(f"select {columns} from read_parquet([{file_list}])").fetchall()


def _at(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)


def _compare(table: str, actual: Counter[Any], expected: Counter[Any]) -> list[str]:
    missing, surplus = expected - actual, actual - expected
    output = []
    for name, rows_ in (("missing", missing), ("too many", surplus)):
        if rows_:
            examples: list[tuple[Hashable, int]] = sorted(rows_.items(), key=repr)[:3]
            output.append(f"{table}: {rows_.total()} {name}, such as {examples}")
    return output


def _files(world: World) -> list[str]:
    """Report landed files that are not stored byte for byte, unless lines were erased from them."""
    folders = ("landing", "archive", "rejected", "elsewhere")
    files = [f for folder in folders for f in (world.root / folder).rglob("*") if f.is_file()]
    stored = Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    lost = [name for name, digest in world.hashes.items() if not stored[digest]]
    output = [f"files gone: {', '.join(lost[:5])}"] if lost else []
    names = {file.name for file in files if "rejected" in file.parts}
    not_rejected = [name for name in world.rejected if not any(name in other for other in names)]
    output += (
        [f"truncated files not rejected: {', '.join(not_rejected[:5])}"] if not_rejected else []
    )
    return output + [
        f"{key} was erased, and is in {file.name}"
        for source, key in world.erased
        for file in (world.root / "archive" / source).rglob("*")
        if f'"{key}"'.encode() in _unpacked(file)
    ]


def _unpacked(file: Path) -> bytes:
    content = file.read_bytes()
    return gzip.decompress(content) if file.suffix == ".gz" else content
