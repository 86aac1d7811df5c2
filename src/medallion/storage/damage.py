"""A table that cannot be read any more: which file is to blame, and what to do, in one sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from medallion.errors import MedallionError, sentence
from medallion.storage import log
from medallion.storage.text import counted

if TYPE_CHECKING:
    from deltalake import DeltaTable

_PARQUET = b"PAR1"  # the last bytes of every file of that format


def error_for(table: Path, error: Exception | None = None) -> MedallionError:
    """The error to raise for a table whose log, or whose data, cannot be read.

    Args:
        error: what its reader says, for damage that is not found here.
    """
    name = f"{table.parent.name}.{table.name}".removeprefix("_intake.")
    try:
        file = next(_damaged(table), None)
    except OSError as refused:
        return MedallionError(f"{name}: {sentence(refused)}")
    if file is not None:
        return MedallionError(f"{name}: {file} is damaged or cut short: {_advice(table)}")
    told = str(error).strip().splitlines()[0] if error and str(error).strip() else "no reason given"
    return MedallionError(
        f"{name}: the table at {table} cannot be read ({told}): put its files back from a copy"
        f"{f', or {again}' if (again := _rebuilt(table)) else ''}."
    )


def refuse_incomplete(table: Path, delta: DeltaTable) -> None:
    """Raise MedallionError where data files are not there as the log has them, by whose counts
    their rows are there."""
    files = delta.get_add_actions()
    paths, sizes = (files.column(name).to_pylist() for name in ("path", "size_bytes"))
    lost = [p for p, size in zip(paths, sizes, strict=True) if _size(table / unquote(p)) != size]
    if lost:
        told = f"{counted(len(lost), 'data file')} gone, or cut short, such as {min(lost)}"
        raise error_for(table, OSError(told))


def _size(file: Path) -> int | None:
    with suppress(FileNotFoundError):
        return file.stat().st_size
    return None


def is_cut_off(table: Path) -> bool:
    """Whether the newest commit is empty, which no writer leaves, and readers take for nothing."""
    commits = log.commits(table)
    return bool(commits) and not commits[max(commits)].stat().st_size


def _advice(table: Path) -> str:
    if table.parent.name == "ops":
        return "move that file away; the next run writes again what it said."
    if again := _rebuilt(table):
        return f"{again}."
    if table.parent.name == "_intake":
        return "move that file away; what bronze has not read is handed over again."
    return (
        "put the table's files back from a copy. Without one, move that file away, and medallion "
        "audit --deep names the files whose rows it had: those that land again under other names "
        "are taken in, and the audit goes on telling what is lost."
    )


def _rebuilt(table: Path) -> str | None:
    """How a table is made anew; None where that is not to be had."""
    layer, name = table.parent.name, table.name
    if layer == "gold":
        return f"move {table} away and run medallion refresh gold.{name}"
    if layer in ("silver", "quarantine"):
        return f"move {table} away and run medallion refresh silver.{name}"
    if layer == "ops":
        return (
            f"move {table} away, and the next run writes again what the other tables "
            "tell, or says what to rebuild"
        )
    return None


def _damaged(table: Path) -> Iterator[Path]:
    """Files of the log that are not whole, the newest first."""
    for _, commit in sorted(log.commits(table).items(), reverse=True):
        text = commit.read_bytes()
        try:
            whole = all(json.loads(line) for line in text.split(b"\n") if line)
        except ValueError:
            whole = False
        if not text or not whole:
            yield commit
    for checkpoint in (table / "_delta_log").glob("*.checkpoint*.parquet"):
        if not checkpoint.read_bytes().endswith(_PARQUET):
            yield checkpoint
