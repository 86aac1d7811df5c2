"""The result of a statement, as Python values, or for pandas, Polars, Arrow and DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from medallion.errors import UsageError

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow
    from arro3.core import Array, RecordBatch, Schema

Names = tuple[str, ...]
Rows = list[tuple[Any, ...]]


class Result:
    """The result of a statement: column names, and rows of plain Python values.

    Rows are converted when they are first used. A notebook shows a result as a table.
    """

    def __init__(
        self,
        columns: Names,
        rows: Rows | None = None,
        batches: tuple[Schema, Sequence[RecordBatch]] | None = None,
    ) -> None:
        self.columns, self._batches = columns, batches
        if rows is not None:
            self.rows = rows

    @cached_property
    def rows(self) -> Rows:
        """The rows."""
        _, batches = self._batches or (None, ())
        return [row for batch in batches for row in batch_rows(batch)]

    def __repr__(self) -> str:
        return f"Result({self.columns!r}, {self.rows!r})"

    def _repr_html_(self) -> str:
        return str(self.to_pandas()._repr_html_())

    def to_arrow(self) -> pyarrow.Table:
        """Return a table of PyArrow; times are UTC."""
        from arro3.core import Table

        arrow = import_module("pyarrow")
        if self._batches is None:
            columns = zip(*self.rows, strict=True) if self.rows else ([] for _ in self.columns)
            return arrow.table(dict(zip(self.columns, map(list, columns), strict=True)))
        schema, batches = self._batches
        return plain_strings(arrow.table(Table.from_batches(batches, schema=schema)))

    def to_pandas(self) -> pandas.DataFrame:
        """Return a DataFrame of pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """Return a DataFrame of Polars, which has to be installed."""
        result: polars.DataFrame = _optional("polars").from_arrow(self.to_arrow())
        return result

    def to_duckdb(self) -> duckdb.DuckDBPyRelation:
        """Return a relation of DuckDB, which has to be installed."""
        result: duckdb.DuckDBPyRelation = _optional("duckdb").from_arrow(self.to_arrow())
        return result


def _optional(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise UsageError(f"{package} is not installed: pip install {package}") from None


def plain_strings(table: pyarrow.Table) -> pyarrow.Table:
    """Return a table with strings in place of string views, which not all readers know."""
    arrow = import_module("pyarrow")
    plain = {arrow.string_view(): arrow.string(), arrow.binary_view(): arrow.binary()}
    fields = [field.with_type(plain.get(field.type, field.type)) for field in table.schema]
    return table.cast(arrow.schema(fields))


def batch_rows(batch: RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a batch as Python values."""
    yield from zip(*(_python_values(column) for column in batch.columns), strict=True)


def _python_values(column: Array) -> list[Any]:
    """Return a column as Python values, or as strings if Python has no such type."""
    from arro3.core import DataType  # imported late, for --help

    if not DataType.is_interval(column.type):
        with suppress(ValueError, OverflowError):  # a time beyond the year 9999
            values = list(column.to_pylist())
            return list(map(_maps_as_dicts, values)) if "Map(" in str(column.type) else values
    return list(column.cast(DataType.utf8()).to_pylist())


def _maps_as_dicts(value: Any) -> Any:
    """Return a value with dictionaries in place of arro3's lists of pairs."""
    if isinstance(value, dict):
        return {name: _maps_as_dicts(item) for name, item in value.items()}
    if not isinstance(value, list):
        return value
    if value and all(isinstance(item, tuple) for item in value):
        with suppress(TypeError):  # keys that are structs are dictionaries
            return {key: _maps_as_dicts(item) for key, item in value}
    return list(map(_maps_as_dicts, value))
