"""Values of rows as JSON and as text, and rows as an aligned table."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from types import NoneType
from typing import Any

from medallion.storage.text import printable

_NUMBERS = {int, float, Decimal, NoneType}


def plain(value: Any) -> Any:
    """A value as strict JSON has it; the engine's times without a zone are UTC as well."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            utc = value.astimezone(UTC) if value.tzinfo else value
            return f"{utc.replace(tzinfo=None).isoformat()}Z"
        case Decimal():
            return format(value, "f")  # as text, with every digit
        case bytes():
            return value.hex()
        case dict():
            return {str(key): plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return str(value)  # dates, times, durations


def text(value: Any) -> str:
    """A value as a cell of a table has it."""
    simple = value if isinstance(value, str) else plain(value)
    return simple if isinstance(simple, str) else json.dumps(simple, ensure_ascii=False)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The lines of an aligned table, numbers to the right; a row is a line, whatever is in it."""
    rows = list(rows)
    padded = []
    for at, name in enumerate(columns):
        values = [row[at] for row in rows]
        cells = [name, *("NULL" if value is None else text(value) for value in values)]
        cells = [printable(cell) for cell in cells]
        width = max(map(len, cells))
        numbers = values and all(type(value) in _NUMBERS for value in values)
        cells = [cell.rjust(width) if numbers else cell.ljust(width) for cell in cells]
        padded.append([cells[0], "-" * width, *cells[1:]])
    lines = enumerate(zip(*padded, strict=True))
    return [("-+-" if at == 1 else " | ").join(line).rstrip() for at, line in lines]


def moment(micros: int | None) -> str | None:
    """Microseconds since 1970 as ISO 8601 in UTC."""
    return None if micros is None else str(plain(datetime.fromtimestamp(micros / 1e6, UTC)))
