"""How the lines of a batch are written: most writers put the same fields in the same order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from medallion.config.values import folded
from medallion.ingest.parsing.times import line_fields

# Each is one more text to take out of every line; with a name that needs no quotes anywhere.
_MOST_UNKNOWN = 100
_PLAIN = re.compile("[A-Za-z][A-Za-z0-9_]{0,127}")


@dataclass(frozen=True)
class LineLayout:
    """The order of fields in lines.

    Attributes:
        order: the columns of a schema, and the fields that it does not know.
        quotes: what stands around the values of those fields: a quote or nothing.
        is_full: whether each line has all of them.
    """

    order: Sequence[str]
    quotes: Mapping[str, str] = field(default_factory=dict)
    is_full: bool = False

    @classmethod
    def of(cls, lines: Iterable[str], schema: Mapping[str, str]) -> LineLayout:
        """The layout of some lines of JSON; where they differ, that of the first ones.

        It decides how fast lines are parsed, and which of the ways that `parse` has to rescue a
        field is taken: lines that are no objects of fields, and fields with unusual names, are
        passed over.

        Args:
            lines: a few of a batch.
            schema: the columns that are known, with their types.
        """
        schema = line_fields(schema)
        order: list[str] = []
        quotes: dict[str, str] = {}
        taken = set(map(folded, schema))
        found = [pairs for line in lines if (pairs := _pairs_of(line)) is not None]
        for pairs in found:
            for name, value in pairs:
                is_new = name not in schema and name not in quotes and value is not None
                is_fit = _PLAIN.fullmatch(name) and folded(name) not in taken
                if is_new and is_fit and len(quotes) < _MOST_UNKNOWN:
                    quotes[name] = '"' if isinstance(value, str) else ""
                    taken.add(folded(name))
            _merge(order, [name for name, _ in pairs if name in schema or name in quotes])
        _merge(order, list(schema))
        is_full = all(set(order) <= {name for name, _ in pairs} for pairs in found)
        return cls(order, quotes, is_full and bool(found and order))


def _pairs_of(line: str) -> list[tuple[str, Any]] | None:
    """The fields of a line, each as often as it is there; None where it is no object."""
    try:
        found = json.loads(line, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, _Pairs) else None


class _Pairs(list[tuple[str, Any]]):
    """An object, where a list may be one of JSON as well."""


def _merge(order: list[str], names: Sequence[str]) -> None:
    """Put the names that an order lacks into it, each behind the one that it follows."""
    at = 0
    for name in names:
        if name not in order:
            order.insert(at, name)
        at = order.index(name) + 1
