"""The fields of bronze that the configuration names: a field that no row has had yet is a null.

Names are followed from gold, child tables and rules to bronze as long as each column between them
is a plain one: `item.price` of `explode: items` over `items: order.items` is a field of
`order.items[]`. Any other expression has its own type, and gives null for what it lacks.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from medallion.config.model import Config, SourceConfig, Statement
from medallion.config.tables import ChildTable
from medallion.config.values import fold_case
from medallion.ingest.schema.columns import reserved_names
from medallion.ingest.schema.growth import ITEM, FieldPath
from medallion.layers.silver.envelope import envelope_path
from medallion.quality.rules import load_rules
from medallion.spark.plans import column_path, fields_in
from medallion.storage.layout import short_name

Paths = Mapping[str, FieldPath]
"""The path in the source's rows that each plain column of a table has, by lower-case name."""


@dataclass(frozen=True)
class NamedFields:
    """The fields that the configuration names of one source.

    Attributes:
        spark: the session that parses expressions.
        config: the configuration.
        source: the source.
    """

    spark: SparkSession
    config: Config
    source: SourceConfig

    def __call__(self, columns: Mapping[str, str]) -> set[FieldPath]:
        """Return their paths in bronze, whether bronze has them or not.

        Args:
            columns: the source's columns of bronze with Spark types, which say where Debezium's
                envelope has the row.
        """
        source, name = self.source, self.source.name
        silver = self._paths(source.silver, None)
        row = self._named(source.silver.values())
        if cdc := source.cdc:
            sql = (cdc.sequence_by, cdc.apply_as_deletes or "", cdc.apply_as_truncates or "")
            order = self._named(sql)
            row |= {path for path in order if path[0].lower() not in map(str.lower, source.silver)}
        for table in {source.rows_table, f"silver.{name}"}:
            row |= {*self._below(table, silver)}
        if source.is_debezium:
            reserved = reserved_names(source.origin_columns)
            own = (path for path in row if fold_case(path[0]) not in reserved)
            row = {path for each in own if (path := envelope_path(each, columns))}
        return row | self._named(self._rules(f"bronze.{name}"))

    def _below(self, table: str, columns: Paths) -> Iterator[FieldPath]:
        """Yield the fields within the columns of a silver table that something names."""
        yield from self._within(self._rules(table), columns)
        for child in self.config.silver.values():
            if f"silver.{child.parent}" == table:
                yield from self._of_child(child, columns)
        for gold in self.config.gold.values():
            # The fields of a statement may be those of any of its tables.
            if table in gold.tables and not isinstance(gold.definition, Statement):
                sql, alias = gold.definition.expressions.values(), short_name(table)
                yield from self._within(sql, columns, alias)

    def _of_child(self, child: ChildTable, parent: Paths) -> Iterator[FieldPath]:
        columns = dict(parent)
        if child.explode and (path := self._path(child.explode, parent)):
            is_map = ("key",) in self._named(child.columns.values())
            columns["item"] = (*path, ITEM)
            if not is_map:
                yield columns["item"]
        yield from self._within(child.expressions.values(), columns)
        yield from self._below(f"silver.{child.name}", self._paths(child.columns, columns))

    def _within(self, sql: Iterable[str], columns: Paths, alias: str = "") -> Iterator[FieldPath]:
        for name in self._named(sql):
            first, *rest = name[1:] if name[0] == alias and len(name) > 1 else name
            if rest and (path := columns.get(first.lower())):
                yield (*path, *rest)

    def _paths(self, columns: Mapping[str, str], parent: Paths | None) -> Paths:
        paths = {name.lower(): self._path(sql, parent) for name, sql in columns.items()}
        return {name: path for name, path in paths.items() if path}

    def _path(self, sql: str, parent: Paths | None) -> FieldPath | None:
        """Return the path of an expression over a table's columns; None if it is no plain one."""
        with suppress(ParseException):  # the query that has the expression reports it
            path = column_path(self.spark, sql)
            if path is None or parent is None:
                return path
            inner = parent.get(path[0].lower())
            return (*inner, *path[1:]) if inner else None
        return None

    def _named(self, expressions: Iterable[str]) -> set[FieldPath]:
        names = set[FieldPath]()
        for sql in filter(None, expressions):
            with suppress(ParseException):
                names |= fields_in(self.spark, [sql])
        return names

    def _rules(self, table: str) -> list[str]:
        """Return the SQL of the rules of a table's suite."""
        return [rule.broken for rule in load_rules(self.config.conf_dir, table)]
