"""Rows of a DataFrame as a grid to draw. Spark itself puts the values into words, as in `show`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, NumericType

from medallion.errors import UsageError
from medallion.streams.drawing import Grid

_LONGEST = 200
"""Characters of a value that are shown."""


@dataclass(frozen=True)
class Picture:
    """What is shown of a DataFrame: how many rows, and perhaps a bar of one column."""

    df: DataFrame
    rows: int
    bar: str | None = None

    def __post_init__(self) -> None:
        fields = {field.name: field.dataType for field in self.df.schema.fields}
        if self.bar is not None and not isinstance(fields.get(self.bar), NumericType):
            numbers = [name for name, kind in fields.items() if isinstance(kind, NumericType)]
            raise UsageError(
                f"bar={self.bar!r} is not a column of numbers here; "
                f"there are {', '.join(numbers) or 'none'}."
            )

    def first(self, title: str, foot: str = "") -> Grid:
        """The first rows."""
        return self._grid(self._in_words().limit(self.rows).collect(), title, foot)

    def last(self, title: str, foot: str = "") -> Grid:
        """The last ones."""
        return self._grid(self._in_words().tail(self.rows), title, foot)

    @property
    def _kinds(self) -> list[DataType]:
        return [field.dataType for field in self.df.schema.fields]

    def _in_words(self) -> DataFrame:
        # By place, for two columns may have one name.
        places = [f"c{place}" for place, _ in enumerate(self.df.columns)]
        words = [
            (F.hex(p) if isinstance(kind, BinaryType) else F.col(p).cast("string")).alias(p)
            for p, kind in zip(places, self._kinds, strict=True)
        ]
        if self.bar is not None:
            place = places[self.df.columns.index(self.bar)]
            words.append(F.col(place).cast("double").alias("bar"))
        return self.df.toDF(*places).select(*words)

    def _grid(self, found: Sequence[Row], title: str, foot: str) -> Grid:
        kinds = self._kinds
        return Grid(
            title=title,
            headers=tuple(self.df.columns),
            rows=tuple(tuple(map(_cell, row[: len(kinds)])) for row in found),
            right=frozenset(p for p, kind in enumerate(kinds) if isinstance(kind, NumericType)),
            bars=None if self.bar is None else tuple(_length(row[-1]) for row in found),
            foot=foot,
        )


def _cell(text: str | None) -> str:
    if text is None:
        return "NULL"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _length(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
