"""Which query reads which table and writes which: derived from the configuration, here alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from medallion.config.model import Config
from medallion.storage.paths import LAYERS, PUBLISH, layer_of


@dataclass(frozen=True)
class Query:
    """The names of one streaming query: its own, and those of its sources and its tables.

    `upstream` are the tables that it reads, in the order of `sources`; none for bronze, whose
    source hands files over to it.
    `targets` are the tables that it writes: the one of its own name, and silver's quarantine; none
    for one that publishes a table of gold.
    """

    name: str
    sources: tuple[str, ...]
    upstream: tuple[str, ...]
    targets: tuple[str, ...]

    @property
    def source(self) -> str:
        """The source of its rows; the first, where a table of gold is made of several."""
        return self.sources[0]

    @property
    def layer(self) -> str:
        """The first part of its name."""
        return layer_of(self.name)


def layers_in_use(config: Config) -> tuple[str, ...]:
    """LAYERS, and PUBLISH where a table of gold is published."""
    return (*LAYERS, PUBLISH) if any(t.outputs for t in config.gold.values()) else LAYERS


def queries(config: Config, layers: Sequence[str] = (*LAYERS, PUBLISH)) -> list[Query]:
    """The queries of some layers, in their order; `publish.TABLE.OUTPUT` comes after gold's."""
    found = []
    for name in config.sources:
        found.append(Query(f"bronze.{name}", (name,), (), (f"bronze.{name}",)))
    for name in config.sources:
        targets = (f"silver.{name}", f"quarantine.{name}")
        found.append(Query(f"silver.{name}", (name,), (f"bronze.{name}",), targets))
    for table in config.gold.values():
        silver = tuple(f"silver.{source}" for source in table.sources)
        found.append(Query(f"gold.{table.name}", table.sources, silver, (f"gold.{table.name}",)))
    for table in config.gold.values():
        gold = (f"gold.{table.name}",)
        names = (f"{PUBLISH}.{table.name}.{output}" for output in table.outputs)
        found += [Query(name, table.sources, gold, ()) for name in names]
    return [query for query in found if query.layer in layers]


def query_names(config: Config, layers: Sequence[str] = LAYERS) -> list[str]:
    """Their names, which are also those of the tables that LAYERS write."""
    return [query.name for query in queries(config, layers)]
