"""Types of undeclared columns, inferred from JSON values; the few that do not fit are rescued.

Spark's own inference is not used: a schema some hundred levels deep kills the JVM thread that reads
it, and every later call hangs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from pyspark.sql import types as T

from medallion.config.values import fold_case
from medallion.ingest.parsing.times import is_inferred_time
from medallion.ingest.schema.columns import MAX_COLUMNS, MAX_LEVELS, invalid_type_reason
from medallion.ingest.schema.growth import Hints, with_hints
from medallion.spark.plans import type_ddl
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import json_object, printable

_LONGS = range(-(2**63), 2**63)


@dataclass(frozen=True)
class InferredSchema:
    """The columns inferred from a sample of rows.

    Attributes:
        columns: names with Spark types, in the order of their first appearance.
        invalid: the fields that cannot be columns, with the reason.
    """

    columns: dict[str, str]
    invalid: dict[str, str] = field(default_factory=dict)


def infer_schema(lines: Iterable[str], hints: Hints | None = None) -> InferredSchema:
    """Infer columns from lines of JSON; lines that are not objects are skipped.

    Whole numbers become long, or double if the field also has fractions, or string if that would
    round a number. Strings become timestamp if all are times with a complete date. Nested values
    become struct and array. A field with several types gets the one that nearly all values fit
    (`_is_few`), else string.

    Fields that are always null or empty are left out, as are nested ones that no table can have.
    Names that differ only in case are one column, in the most frequent spelling.

    Args:
        lines: the lines.
        hints: the declared types of fields, which are not inferred.
    """
    fields = _Fields()
    for number, line in enumerate(lines, 1):
        if (row := json_object(line)) is not None:
            fields.add(row, 1, number)
    inferred = InferredSchema({})
    for name, values in fields.by_name():
        dtype = values.type_of()
        if dtype is None:
            continue
        if hints:
            dtype = with_hints(dtype, name, hints)
        if reason := invalid_type_reason(dtype):
            inferred.invalid[name] = reason
        else:
            inferred.columns[name] = type_ddl(dtype)
    return inferred


def _is_few(rows: int, total: int) -> bool:
    """Return whether the rows with other values are too few to decide the type of a field.

    Up to 5 % are too few; in small samples, so is one row of at least five.
    """
    return rows * 20 <= total or (rows == 1 and total >= 5)


class _Fields:
    """The fields of objects, in the order of their first appearance; case does not matter."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values = defaultdict[str, _Values](_Values)

    def add(self, row: Mapping[str, Any], level: int, number: int) -> None:
        """Add an object at a nesting level of a row."""
        for name, value in row.items():
            values = self._values[_folded(name)]
            values.spellings[name] += value is not None
            values.add(value, level, number)

    def by_name(self) -> Iterator[tuple[str, _Values]]:
        """Yield each field once, in its most frequent spelling."""
        for values in self._values.values():
            yield max(values.spellings, key=values.spellings.__getitem__), values


class _Values:
    """The values of a field."""

    __slots__ = (
        *("_fields", "_has_fractions", "_is_exact", "_is_long", "_items", "_last", "_rows"),
        "spellings",
    )

    def __init__(self) -> None:
        self.spellings: Counter[str] = Counter()
        # The rows with values of each type, and of any (`DataType`); the last of them.
        self._rows, self._last = Counter[type[T.DataType]](), dict[type[T.DataType], int]()
        # Numbers: whether any has a fraction; whether a long, or a double, holds all exactly.
        self._has_fractions, self._is_long, self._is_exact = False, True, True
        self._items: _Values | None = None
        self._fields = _Fields()

    def add(self, value: Any, level: int, row: int) -> None:
        """Add a value at a nesting level of a row."""
        for each in (T.DataType, self._type_of(value, level, row)) if value is not None else ():
            if self._last.get(each) != row:  # an array has several values in one row
                self._rows[each] += 1
                self._last[each] = row

    def _type_of(self, value: Any, level: int, row: int) -> type[T.DataType]:
        if isinstance(value, list | dict):
            return self._nested_type_of(value, level, row)
        if isinstance(value, bool):
            return T.BooleanType
        if isinstance(value, str):
            return T.TimestampType if is_inferred_time(value) else T.StringType
        if isinstance(value, float):
            self._has_fractions = True
        else:
            self._is_long = self._is_long and value in _LONGS
            self._is_exact = self._is_exact and _is_double(value)
        return T.NumericType

    def _nested_type_of(
        self, value: list[Any] | dict[str, Any], level: int, row: int
    ) -> type[T.DataType]:
        if level > MAX_LEVELS:
            return T.NullType  # not inspected: no column can hold it
        if isinstance(value, dict):
            self._fields.add(value, level + 1, row)
            return T.StructType
        self._items = self._items or _Values()
        for item in value:
            self._items.add(item, level + 1, row)
        return T.ArrayType

    def type_of(self) -> T.DataType | None:
        """Return the type of the values: the one that nearly all have, or that holds all.

        Returns:
            None if there are no values, NullType if they are nested too deeply for a column.
        """
        rows = {each: count for each, count in self._rows.items() if each is not T.DataType}
        if not rows:
            return None
        main = max(rows, key=rows.__getitem__)
        others = sum(rows.values()) - rows[main]
        if not others:
            return self._as_type(main)
        if main not in (T.StringType, T.NullType) and _is_few(others, self._rows[T.DataType]):
            dtype = self._as_type(main)
            if dtype and not isinstance(dtype, T.StringType):
                return dtype
        too_deep = T.NullType in rows and rows.keys() <= {T.ArrayType, T.StructType, T.NullType}
        return T.NullType() if too_deep else T.StringType()

    def _as_type(self, main: type[T.DataType]) -> T.DataType | None:
        if main is T.NumericType:
            return self._number()
        if main is T.ArrayType:
            item = self._items and self._items.type_of()
            return T.ArrayType(item) if item else None
        if main is T.StructType:
            fields = [(name, each.type_of()) for name, each in self._fields.by_name()]
            known = [T.StructField(name, dtype) for name, dtype in fields if dtype]
            return T.StructType(known) if known else None
        return main()

    def _number(self) -> T.DataType:
        if self._has_fractions:
            return T.DoubleType() if self._is_exact else T.StringType()
        return T.LongType() if self._is_long else T.StringType()


_folded = lru_cache(maxsize=100_000)(fold_case)


def _is_double(value: int) -> bool:
    """Return whether a double holds a whole number exactly."""
    try:
        return int(float(value)) == value
    except OverflowError:
        return False


_MAX_NOTES = 10


def inference_notes(
    inferred: InferredSchema, columns: Collection[str], hints: Collection[str]
) -> list[str]:
    """Return notes for the user on fields that stay in `_rescued_data`.

    Args:
        inferred: the inferred schema.
        columns: the columns of the source's schema.
        hints: the columns whose types the configuration declares.
    """
    notes = []
    if len({*inferred.columns, *hints}) > MAX_COLUMNS:
        notes.append(
            f"{len(inferred.columns):,} fields: {len(columns):,} of them became columns, the "
            f"others stay in {RESCUED}"
        )
    invalid = list(inferred.invalid.items())
    shown = invalid[:_MAX_NOTES]
    notes += [f"{printable(name)} stays in {RESCUED}: {reason}" for name, reason in shown]
    if more := len(invalid[_MAX_NOTES:]):
        notes.append(f"{more:,} more fields stay in {RESCUED}")
    return notes
