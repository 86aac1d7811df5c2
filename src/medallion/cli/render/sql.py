"""The answer to a SQL statement."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from itertools import chain
from types import SimpleNamespace
from typing import Any

from medallion.cli.render.values import plain, table, text
from medallion.sql.engine import Names, Result


def as_json(result: Result) -> dict[str, Any]:
    """`{"columns": [...], "rows": [[...], ...]}`: NaN and the infinities are text."""
    return {"columns": list(result.columns), "rows": plain(result.rows)}


def as_text(result: Result) -> str:
    """An aligned table, or the plans of EXPLAIN with their lines; the last line is the caller's."""
    if result.columns == ("plan_type", "plan"):
        return "\n".join(f"{kind}:\n{f'{plan}'.rstrip()}" for kind, plan in result.rows)
    return "\n".join(table(result.columns, result.rows))


def csv_lines(columns: Names, rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """RFC 4180 with a header, line by line; NULL is an empty field."""
    line: Any = SimpleNamespace(write=str)  # what is written comes back from writerow
    write = csv.writer(line).writerow
    for row in chain([columns], rows):
        yield write(["" if value is None else text(value) for value in row])
