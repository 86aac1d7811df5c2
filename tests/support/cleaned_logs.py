"""Delta logs whose old commits are removed."""

from __future__ import annotations

from pathlib import Path

from deltalake import DeltaTable

from medallion.storage import delta_log
from medallion.storage.paths import StoragePath


def forget_commits(table: Path) -> int:
    """Write a checkpoint, remove all commits but the newest, and return the newest version."""
    DeltaTable(table).create_checkpoint()
    newest = max(delta_log.commit_files(StoragePath(table)))
    for version, commit in delta_log.commit_files(StoragePath(table)).items():
        if version < newest:
            commit.local.unlink()
    return newest
