"""Small files that are there whole or not at all, whenever the process is cut off."""

from __future__ import annotations

from pathlib import Path


def write(file: Path, text: str) -> None:
    """Write a file beside its place, and put it there; one of that name is replaced."""
    unfinished = file.with_name(f".{file.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(file)
