"""Timestamps of nanoseconds in Parquet, which Spark would cut: then two rows may be the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medallion.lakehouse.columns import quoted

if TYPE_CHECKING:
    from deltalake import QueryBuilder

_NANOSECONDS = "Timestamp(ns"


def add_table(engine: QueryBuilder, name: str, path: Path, option: str) -> None:
    """Make a Parquet file a table to DataFusion, with an option of its reader."""
    engine.execute(
        f"create external table {name} stored as parquet location '{path.as_uri()}'"
        f" options ({option})"
    )


def in_parquet(engine: QueryBuilder, fields: Iterable[Any], path: Path) -> str | None:
    """The first column of a Parquet file that has some, as INT96: other ones Spark refuses itself.

    Years before 1677 or after 2262 wrap around in 64 bits, and so do their microseconds times a
    thousand: sums of both tell what is beyond microseconds all the same.

    Args:
        engine: with the file as table `exact`.
        fields: its columns, as Arrow has them.
    """
    some: list[str] = [field.name for field in fields if _NANOSECONDS in str(field.type)]
    if some:
        add_table(engine, "cut", path, "coerce_int96 'us'")
    for column in some:
        both = [f"select {quoted(column)} as x from {table}" for table in ("exact", "cut")]
        try:
            for exact, cut in _timestamps(engine, both):
                if (_sum(engine, exact) - 1000 * _sum(engine, cut)) % 2**64:
                    return column
        except LookupError:  # nobody knows how to look into it
            return column
    return None


def _timestamps(engine: QueryBuilder, both: list[str]) -> Iterator[list[str]]:
    """Queries of the timestamps of nanoseconds within values `x`, at any depth."""

    def within(value: str) -> Iterator[list[str]]:
        return _timestamps(engine, [f"select {value} as x from ({query})" for query in both])

    kind: Any = engine.execute(f"{both[0]} limit 0").read_all().schema.field(0).type
    if kind.is_struct(kind):
        for field in kind.fields:
            yield from within("x['" + field.name.replace("'", "''") + "']")
    elif kind.is_map(kind):  # its keys are text, or refused
        yield from within("unnest(map_values(x))")
    elif kind.is_list(kind) or kind.is_large_list(kind):
        yield from within("unnest(x)")
    elif kind.is_timestamp(kind) and kind.time_unit == "ns":
        yield both
    elif _NANOSECONDS in str(kind):  # a list of a fixed length, say, or a dictionary
        raise LookupError(str(kind))


def _sum(engine: QueryBuilder, query: str) -> int:
    found = engine.execute(f"select sum(arrow_cast(x, 'Int64')) from ({query})").read_all()
    return int(found.column(0)[0].as_py() or 0)
