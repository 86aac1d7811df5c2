"""Types of columns that nobody declared, from values that have come.

Not by Spark's own inference: a job whose result is a schema some hundred levels deep ends the
thread of the engine that reads it, and then no call to it returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pyspark.sql import types as T

from medallion.config.values import folded
from medallion.lakehouse.text import refuse_constant
from medallion.parsing.times import is_time
from medallion.schema.names import MOST_COLUMNS, is_plain
from medallion.spark.types import ddl as ddl
from medallion.spark.types import inner as inner

# Each level is looked at by expressions of its own, in every batch (see parsing.nested).
MOST_LEVELS = 5
_LONGS = range(-(2**63), 2**63)
_DATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def infer(lines: Iterable[str]) -> dict[str, str]:
    """Columns with their Spark types from JSON objects, sorted by name; other lines say nothing.

    Whole numbers become long, with fractions among them double, and string where that cannot hold
    one of them exactly. Texts that are all times with a whole date become timestamp. Fields with
    values of several types become string, nested ones struct and array. Left out are fields that
    are always null or empty, for they may yet be anything, and nested ones that no table can hold:
    too deep or wide, or with names that are not plain. Of names that differ in case alone, which
    are one to Spark, the one that most lines have is taken.
    """
    fields: dict[str, _Seen] = {}
    for row in _rows(lines):
        for name, value in row.items():
            fields.setdefault(name, _Seen()).add(value, 1)
    found = {name: seen.kind() for name, seen in _of_one_case(fields)}
    return {name: ddl(kind) for name, kind in found.items() if kind and is_fit(kind)}


def _rows(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            row = json.loads(line, parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            yield row


class _Seen:
    """The values of a field that have been seen."""

    __slots__ = ("count", "fields", "has_fractions", "is_exact", "is_long", "items", "kinds")

    def __init__(self) -> None:
        self.count = 0  # without nulls
        self.kinds: set[type[T.DataType]] = set()
        # Of the numbers: whether some are not whole, and whether a long or a double says the whole.
        self.has_fractions, self.is_long, self.is_exact = False, True, True
        self.items: _Seen | None = None
        self.fields: dict[str, _Seen] = {}

    def add(self, value: Any, level: int) -> None:
        """Take notice of a value that lies so many levels within a line."""
        if value is None:
            return
        self.count += 1
        if isinstance(value, list | dict):
            self._add_nested(value, level)
        elif isinstance(value, bool):
            self.kinds.add(T.BooleanType)
        elif isinstance(value, str):
            is_dated = _DATED.match(value) and is_time(value)
            self.kinds.add(T.TimestampType if is_dated else T.StringType)
        else:
            self.kinds.add(T.NumericType)
            if isinstance(value, float):
                self.has_fractions = True
            else:
                self.is_long = self.is_long and value in _LONGS
                self.is_exact = self.is_exact and _is_double(value)

    def _add_nested(self, value: list[Any] | dict[str, Any], level: int) -> None:
        if level > MOST_LEVELS:
            self.kinds.add(T.NullType)  # what is there is not looked at, and fits no column
        elif isinstance(value, list):
            self.kinds.add(T.ArrayType)
            self.items = self.items or _Seen()
            for item in value:
                self.items.add(item, level + 1)
        else:
            self.kinds.add(T.StructType)
            for name, inner_value in value.items():
                self.fields.setdefault(name, _Seen()).add(inner_value, level + 1)

    def kind(self) -> T.DataType | None:
        """The type that can say all of them; None if there were none, NullType if they go deep."""
        if not self.kinds:
            return None
        if len(self.kinds) > 1:
            nested = {T.ArrayType, T.StructType, T.NullType}
            return (
                T.NullType()
                if self.kinds <= nested and T.NullType in self.kinds
                else T.StringType()
            )
        (kind,) = self.kinds
        if kind is T.NumericType:
            return self._number()
        if kind is T.ArrayType:
            item = self.items and self.items.kind()
            return T.ArrayType(item) if item else None
        if kind is T.StructType:
            some = [(name, seen.kind()) for name, seen in _of_one_case(self.fields)]
            fields = [T.StructField(name, kind) for name, kind in some if kind]
            return T.StructType(fields) if fields else None
        return kind()

    def _number(self) -> T.DataType:
        if self.has_fractions:
            return T.DoubleType() if self.is_exact else T.StringType()
        return T.LongType() if self.is_long else T.StringType()


def _of_one_case(fields: dict[str, _Seen]) -> list[tuple[str, _Seen]]:
    """Fields by their names, without those that differ from a more frequent one in case alone."""
    found: dict[str, str] = {}
    for name in sorted(fields, key=lambda name: (-fields[name].count, name)):
        found.setdefault(folded(name), name)
    return [(name, fields[name]) for name in sorted(found.values())]


def _is_double(value: int) -> bool:
    """Whether a double can say a whole number."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


def is_fit(kind: T.DataType) -> bool:
    """Whether a column can be of this type."""
    names = 0
    below = [kind]
    while below:
        if any(isinstance(within, T.NullType) for within in below):
            return False
        below = [within for outer in below for within in inner(outer)]
        names += len(below)
    return names <= MOST_COLUMNS and all(map(is_plain, names_within(kind)))


def names_within(kind: T.DataType) -> list[str]:
    """The names of all fields within a type."""
    names = kind.names if isinstance(kind, T.StructType) else []
    return [*names, *(name for within in inner(kind) for name in names_within(within))]
