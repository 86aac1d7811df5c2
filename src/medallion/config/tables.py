"""The entries of `silver` in pipeline.yaml as frozen dataclasses; see `model`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ChildTable:
    """A silver table whose rows come from another silver table, its parent.

    Attributes:
        name: The name of the entry and of the table.
        parent: The silver table to read.
        explode: An array or map in Spark SQL over the parent's columns. Each element is a row, with
            the columns `item` and `pos`; of a map, `key`, `item` and `pos`.
        outer: `true` keeps a parent without elements as one row, with null in `item` and `pos`.
        columns: The columns of the table, each with a Spark SQL expression over the parent's
            columns and those of `explode`; without `explode` by default those of the parent.
        where: A condition in Spark SQL over the same columns; other rows are not in the table.
        keys: The columns of the table that identify a row; the first row of a key stays.
    """

    name: str
    parent: str
    explode: str | None
    outer: bool
    columns: Mapping[str, str]
    where: str | None
    keys: tuple[str, ...]
