"""The streaming queries of a configuration: which tables each one reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medallion.config.model import Config
from medallion.storage.paths import LAYERS, PUBLISH, layer_of


@dataclass(frozen=True)
class Query:
    """One streaming query.

    Attributes:
        name: `layer.source`, `gold.table` or `publish.table.output`.
        sources: the sources of its rows; several for a gold table that joins them.
        upstream: the tables that it reads, in the order of `sources`; none for bronze.
        targets: the tables that it writes; none for a query that publishes.
    """

    name: str
    sources: tuple[str, ...]
    upstream: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def source(self) -> str:
        """Its first source."""
        return self.sources[0]

    @property
    def layer(self) -> str:
        """Its layer, or PUBLISH."""
        return layer_of(self.name)


def layers_in_use(config: Config) -> tuple[str, ...]:
    """Return LAYERS, with PUBLISH if a gold table is published."""
    return (*LAYERS, PUBLISH) if any(t.outputs for t in config.gold.values()) else LAYERS


def queries(config: Config, layers: Sequence[str] = (*LAYERS, PUBLISH)) -> list[Query]:
    """Return the queries of some layers; each comes after the queries whose tables it reads."""
    result = []
    for name in config.sources:
        result.append(Query(f"bronze.{name}", (name,), (), (f"bronze.{name}",)))
    for name in config.sources:
        targets = (f"silver.{name}", f"quarantine.{name}")
        result.append(Query(f"silver.{name}", (name,), (f"bronze.{name}",), targets))
    for table in config.gold.values():
        silver = tuple(f"silver.{source}" for source in table.sources)
        result.append(Query(f"gold.{table.name}", table.sources, silver, (f"gold.{table.name}",)))
    for table in config.gold.values():
        gold = (f"gold.{table.name}",)
        names = (f"{PUBLISH}.{table.name}.{output}" for output in table.outputs)
        result += [Query(name, table.sources, gold, ()) for name in names]
    return [query for query in result if query.layer in layers]


def query_names(config: Config, layers: Sequence[str] = LAYERS) -> list[str]:
    """Return the names of the queries, which for LAYERS are also names of tables."""
    return [query.name for query in queries(config, layers)]
