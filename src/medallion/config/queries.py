"""The streaming queries of a configuration: which tables each one reads and writes."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import chain

from medallion.config.model import Config
from medallion.storage.layout import LAYERS, PUBLISH, layer_of, short_name


class QueryType(Enum):
    """What a query computes; it decides which flow runs it, and which checks apply to its table."""

    BRONZE = auto()
    SILVER = auto()  # the rows of a source, or its log of changes
    CHANGES = auto()  # the table that such a log gives
    CHILD = auto()
    GOLD = auto()
    PUBLISH = auto()


@dataclass(frozen=True)
class Query:
    """One streaming query.

    Attributes:
        type: what it computes.
        name: `layer.table`, or `publish.table.output`.
        sources: the sources of its rows; several for a gold table that joins them.
        upstream: the tables that it reads; none for bronze.
        targets: the tables that it writes; none for a query that publishes.
    """

    type: QueryType
    name: str
    sources: tuple[str, ...]
    upstream: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def source(self) -> str:
        """Its first source."""
        return self.sources[0]

    @property
    def table(self) -> str:
        """The name of its table without the layer: a source, or an entry of `silver` or `gold`."""
        return short_name(self.name)

    @property
    def entry(self) -> str:
        """The name of its entry: a source, also if its table is a log of changes."""
        return self.source if self.type is QueryType.SILVER else self.table

    @property
    def layer(self) -> str:
        """Its layer, or PUBLISH."""
        return layer_of(self.name)


def layers_in_use(config: Config) -> tuple[str, ...]:
    """Return LAYERS, with PUBLISH if a gold table is published."""
    return (*LAYERS, PUBLISH) if any(t.outputs for t in config.gold.values()) else LAYERS


def queries(config: Config, layers: Sequence[str] = (*LAYERS, PUBLISH)) -> list[Query]:
    """Return the queries of some layers; each comes after the queries whose tables it reads."""
    result = list[Query]()
    for name, source in config.sources.items():
        bronze, rows, silver = f"bronze.{name}", source.rows_table, f"silver.{name}"
        targets = (rows, f"quarantine.{name}")
        result.append(Query(QueryType.BRONZE, bronze, (name,), (), (bronze,)))
        result.append(Query(QueryType.SILVER, rows, (name,), (bronze,), targets))
        if source.cdc:
            result.append(Query(QueryType.CHANGES, silver, (name,), (rows,), (silver,)))
    for name, child in config.silver.items():
        root, parent, silver = config.root(name), f"silver.{child.parent}", f"silver.{name}"
        targets = (silver, f"quarantine.{name}")
        result.append(Query(QueryType.CHILD, silver, (root,), (parent,), targets))
    sources = {target: query.sources for query in result for target in query.targets}
    for table in config.gold.values():
        target, read = f"gold.{table.name}", chain(*(sources[name] for name in table.tables))
        sources[target] = tuple(dict.fromkeys(read))
        result.append(Query(QueryType.GOLD, target, sources[target], table.tables, (target,)))
        names = (f"{PUBLISH}.{table.name}.{output}" for output in table.outputs)
        result += [Query(QueryType.PUBLISH, n, sources[target], (target,), ()) for n in names]
    result.sort(key=lambda query: (*LAYERS, PUBLISH).index(query.layer))
    return [query for query in result if query.layer in layers]


def readers(config: Config, tables: Collection[str]) -> list[Query]:
    """Return the queries that read any of these tables, directly or through others, in order."""
    result, reached = list[Query](), set(tables)
    for query in queries(config):
        if reached & {*query.upstream}:
            result.append(query)
            reached |= {*query.targets}
    return result


def query_names(config: Config, layers: Sequence[str] = LAYERS) -> list[str]:
    """Return the names of the queries, which for LAYERS are also names of tables."""
    return [query.name for query in queries(config, layers)]
