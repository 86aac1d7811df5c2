"""Delta logs and data files, read and changed without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
from deltalake import DeltaTable

from medallion.storage import delta_log
from medallion.storage.paths import StoragePath


def added_files(table: Path, version: int) -> list[dict[str, Any]]:
    """Return the `add` actions of a commit: one for each data file."""
    log = table / "_delta_log" / f"{version:020}.json"
    actions = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    return [action["add"] for action in actions if "add" in action]


def rows_of_parquet(file: Path) -> list[dict[str, Any]]:
    relation = duckdb.read_parquet(str(file))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def forget_commits(table: Path) -> int:
    """Write a checkpoint, remove all commits but the newest, and return the newest version."""
    DeltaTable(table).create_checkpoint()
    *older, newest = delta_log.commit_versions(StoragePath(table))
    for version in older:
        delta_log.commit_file(StoragePath(table), version).local.unlink()
    return newest
