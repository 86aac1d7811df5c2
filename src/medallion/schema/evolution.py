"""A source's schema while it is being read: declared or inferred, and widened as fields come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from medallion.config.model import TYPED, Config, SourceConfig
from medallion.errors import MedallionError
from medallion.lakehouse import tables
from medallion.lakehouse.columns import RESCUED, bronze_columns, quoted
from medallion.lakehouse.text import counted
from medallion.parsing.layout import LineLayout
from medallion.parsing.parse import parse
from medallion.schema import registry
from medallion.schema.declared import declared
from medallion.schema.inference import ddl, infer
from medallion.schema.names import acceptable
from medallion.schema.own_types import own_types

_NAMES_SHOWN, _NAME_SHOWN = 10, 100  # so many, and so many characters of each
# The rows that a schema is inferred from go through one task to the driver's memory.
_LINES, _BYTES = 10_000, 8 * 2**20


class Schema:
    """The columns of one source. See the configuration's `schema_evolution`."""

    def __init__(self, config: Config, source: SourceConfig) -> None:
        self._source = source
        self._folder = config.layout.schemas(source.name)
        schema, self._hints = declared(source)
        self._take_over(config.layout.table(f"bronze.{source.name}"))
        if schema is not None:
            registry.declare(self._folder, source.name, schema)
        known = registry.read(self._folder)
        if known and self._hints:  # they may have come since the schema was inferred
            known = [registry.declare(self._folder, source.name, self._hints, "hints")]
        self.columns = known[-1].columns if known else self._hints
        self.is_known = bool(known)

    def _take_over(self, bronze: Path) -> None:
        """Add the columns of bronze's table that no version has: somebody has put back older ones.

        Else such a column would be learned once more, maybe with another type than the table has,
        and no batch could be written.
        """
        known = registry.read(self._folder)
        there = _columns_of(bronze, self._source.origin)
        new = _without(there, known[-1].columns if known else {})
        # A table that was made before the first row had any fields has the hints alone.
        if _without(new, {} if known else self._hints):
            registry.add(self._folder, new, "as bronze's table has it")

    def table_json(self) -> str:
        """Bronze's columns as Delta and Spark spell them."""
        columns = bronze_columns(self.columns, self._source.origin)
        ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        return T.DataType.fromDDL(ddl).json()

    def infer(self, rows: DataFrame, of: str) -> None:
        """Make the first version from the first rows of `2 files`: from their JSON text in `value`,
        or from the types that the files bring."""
        if self._source.format in TYPED:
            found, basis = own_types(rows), "types"
        else:
            lines = sample(rows, "value")
            found, basis = infer(lines), counted(len(lines), "row")
        found = {**found, **self._hints}
        columns = {**self._hints, **acceptable(found, self._hints, self._source.origin)}
        if columns:  # files without a single field say nothing: the next ones may
            self._add(columns, f"inferred from {basis} of {of}")

    def refuse_new(self, lines: DataFrame, layout: LineLayout) -> None:
        """In the mode failOnNewColumns, raise MedallionError where lines have unknown fields."""
        if self._source.schema_evolution != "failOnNewColumns":
            return
        new = self._unknown(parse(lines, self.columns, layout))
        if new:
            raise MedallionError(
                f"bronze.{self._source.name} stops at new fields ({', '.join(new)}), as "
                "schema_evolution failOnNewColumns asks for: declare them in the schema, or choose "
                "another mode. Nothing of this batch was written."
            )

    def add_file_columns(self, rows: DataFrame, batch: int) -> list[str]:
        """In the mode addNewColumns, add the new columns of files that bring their types.

        Args:
            rows: as the source gives them, before they are written.
        """
        if self._source.schema_evolution != "addNewColumns":
            return []
        new = acceptable(own_types(rows), self.columns, self._source.origin)
        if new:
            self._add(new, f"new columns in batch {batch}")
        return list(new)

    def learn(self, rows: DataFrame, batch: int) -> list[str]:
        """In the mode addNewColumns, make columns of the fields that a batch had to rescue."""
        if self._source.schema_evolution != "addNewColumns" or self._source.format in TYPED:
            return []
        new = acceptable(infer(sample(rows, RESCUED)), self.columns, self._source.origin)
        if new:
            self._add(new, f"new fields in batch {batch}")
        return list(new)

    def _unknown(self, rows: DataFrame) -> list[str]:
        keys = F.explode(F.expr(f"json_object_keys({RESCUED})"))
        new = rows.select(keys.alias("key")).where(~F.col("key").isin(list(self.columns)))
        named = new.select(F.left("key", F.lit(_NAME_SHOWN)).alias("key")).distinct()
        return [row.key for row in named.orderBy("key").limit(_NAMES_SHOWN).collect()]

    def _add(self, columns: Mapping[str, str], why: str) -> None:
        self.columns = registry.add(self._folder, columns, why).columns
        self.is_known = True


def sample(rows: DataFrame, column: str, most_bytes: int = _BYTES) -> list[str]:
    """The first texts of a column: 10,000 or 8 MiB, whichever is less; no longer one is among them.

    Their lengths are fetched first, and then just the texts that fit. A mere `limit` would fetch as
    many rows from each of several partitions, and only then throw away what is too much.
    """
    numbered = rows.select(
        F.col(column).alias("text"),
        F.octet_length(column).alias("length"),
        F.monotonically_increasing_id().alias("number"),
    ).where(F.col("length") <= most_bytes)
    found = numbered.select("length", "number").limit(_LINES).collect()
    totals = accumulate(row.length for row in found)
    fit = [row.number for row, total in zip(found, totals, strict=True) if total <= most_bytes]
    if not fit:
        return []
    chosen = numbered.where(F.col("number") <= fit[-1]).select("text").limit(len(fit))
    return [row.text for row in chosen.collect()]


def _columns_of(bronze: Path, origin: Mapping[str, str]) -> dict[str, str]:
    """A source's own columns in its table, with their types as versions spell them."""
    if not tables.exists(bronze):
        return {}
    found = T.StructType.fromJson(json.loads(tables.open_table(bronze).schema().to_json()))
    kinds = {field.name: ddl(field.dataType) for field in found}
    return _without(kinds, bronze_columns({}, origin))


def _without(columns: Mapping[str, str], others: Mapping[str, str]) -> dict[str, str]:
    return {name: kind for name, kind in columns.items() if name not in others}
