"""The first lines of some files: how their writers write."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from medallion.sources.files.codecs import FAULTS, opened

_FILES, _LINES, _BYTES = 8, 20, 1 << 16


def first_lines(paths: Sequence[Path]) -> list[str]:
    """A few whole lines of a few of the files; none where one is long, or cannot be read."""
    found: list[str] = []
    for path in paths[:: max(1, len(paths) // _FILES)][:_FILES]:
        with suppress(*FAULTS), opened(path) as file:
            head = file.read(_BYTES)
            lines = head.splitlines()[: -1 if len(head) == _BYTES else None]
            found += [line.decode("utf-8-sig", "replace") for line in lines[:_LINES]]
    return found
