"""What the data factory landed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from medallion.factory import Landed
from medallion.factory.plan import SOURCE_NAMES
from medallion.storage.text import counted


def as_json(landed: Mapping[str, Landed]) -> dict[str, Any]:
    """The figures of each source, those that programs rely on first."""
    return {source: one.figures() for source, one in landed.items()}


def as_text(landed: Mapping[str, Landed]) -> str:
    """The same figures as a table: a line a figure, a column a source."""
    columns = [_flat(document) for document in as_json(landed).values()]
    order = list(Landed().figures())
    names = {name for column in columns for name in column}
    rows = [["", *landed]]
    for name in sorted(names, key=lambda name: (order.index(name.partition(".")[0]), name)):
        # A source without such a rule has an empty place, not a nought.
        rows.append([name, *(f"{c[name]:,}" if name in c else "" for c in columns)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(_aligned(row, widths) for row in rows)


def sample_as_text(root: Path, files: Mapping[str, int], is_read: bool) -> str:
    """What came of landing the sample: files by source, or why there are none."""
    if files:
        landed = ", ".join(f"{counted(n, 'file')} of {name}" for name, n in files.items())
        return f"landed the sample under {root}: {landed}"
    if is_read:
        return f"the landing zone of {root} has been filled before: no sample landed"
    names = ", ".join(SOURCE_NAMES)
    return f"the sample is JSON lines of {names}, which no source here reads: none landed"


def _aligned(row: list[str], widths: list[int]) -> str:
    numbers = (cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([row[0].ljust(widths[0]), *numbers]).rstrip()


def _flat(document: Mapping[str, Any]) -> dict[str, int]:
    """A nested figure becomes one for each part, such as `invalid_by_rule.missing_x`."""
    flat: dict[str, int] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{part}": count for part, count in value.items()}
        else:
            flat[name] = value
    return flat
