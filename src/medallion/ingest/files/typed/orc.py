"""ORC without Spark, by its own library: Spark takes an empty file for one without rows."""

from __future__ import annotations

from pathlib import Path


def count(path: Path) -> int:
    """By the footer."""
    import pyorc

    with path.open("rb") as file:
        return len(pyorc.Reader(file))


def columns(path: Path) -> str:
    """Their names and types, and which library wrote the file, for that decides on its calendar."""
    import pyorc

    with path.open("rb") as file:
        read = pyorc.Reader(file)
        return f"{read.writer_id} {read.schema}"
