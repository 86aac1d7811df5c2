"""The tables against the arithmetic of what landed, read by an engine that is not medallion's."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from tests.faults.world import World


def differences(world: World) -> list[str]:
    """What is not as it must be after all that landed was taken in; nothing where all is well."""
    root = world.root
    found = [
        *_differ("bronze", len(rows(root, "bronze/event", "1")), world.lines),
        *_differ("quarantine", len(rows(root, "quarantine/event", "1")), world.broken),
    ]
    silver = rows(root, "silver/event", "epoch_us(event_at), device, action")
    found += _unlike(
        "silver", Counter((_at(micros), *rest) for micros, *rest in silver), world.silver()
    )
    windows = rows(root, "gold/by_window", "epoch_us(window_start), action, total")
    counted = Counter({(_at(micros), action): n for micros, action, n in windows})
    found += _differ("rows of gold.by_window", len(windows), len(world.windows()))
    found += _unlike("gold.by_window", counted, world.windows())
    actions = rows(root, "gold/by_action", "action, total")
    found += _differ("rows of gold.by_action", len(actions), len(world.actions()))
    found += _unlike("gold.by_action", Counter(dict(actions)), world.actions())
    found += _unlike("publish/by_action", Counter(_published(root)), world.actions())
    return found + _files(world)


def _published(root: Path) -> dict[str, int]:
    """Return gold.by_action as a reader of all published changes has it."""
    manifests = (root / "publish/by_action").glob("*/_files.json")
    files = [m.parent / name for m in manifests for name in json.loads(m.read_text())["files"]]
    changes = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    rows: dict[str, int] = {}
    for change in sorted(
        changes, key=lambda one: (one["_commit_version"], one["_change_type"] != "delete")
    ):
        if change["_change_type"] == "delete":
            del rows[change["action"]]
        else:
            rows[change["action"]] = change["total"]
    return rows


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


def _differ(what: str, found: int, expected: int) -> list[str]:
    return [] if found == expected else [f"{what}: {found} where {expected} belong"]


def _unlike(what: str, found: Counter[Any], expected: Counter[Any]) -> list[str]:
    missing, more = expected - found, found - expected
    output = []
    for name, some in (("missing", missing), ("too many", more)):
        if some:
            examples: list[tuple[Hashable, int]] = sorted(some.items(), key=repr)[:3]
            output.append(f"{what}: {some.total()} {name}, such as {examples}")
    return output


def _files(world: World) -> list[str]:
    """Every file that landed is still somewhere, byte for byte."""
    places = ("landing/event", "archive/event", "rejected/event", "elsewhere")
    files = [f for place in places for f in (world.root / place).rglob("*") if f.is_file()]
    there = Counter(hashlib.sha256(file.read_bytes()).hexdigest() for file in files)
    gone = [name for name, digest in world.hashes.items() if not there[digest]]
    found = [f"files gone: {', '.join(gone[:5])}"] if gone else []
    names = {file.name for file in files if "rejected" in file.parts}
    kept = [name for name in world.refused if not any(name in other for other in names)]
    return found + ([f"torn files not set aside: {', '.join(kept[:5])}"] if kept else [])
