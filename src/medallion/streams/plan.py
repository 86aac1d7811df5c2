"""What a streaming DataFrame is made of, as far as sinks, output modes and triggers care."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

_SOURCES = ("StreamingRelation", "StreamingRelationV2")


@dataclass(frozen=True)
class StreamPlan:
    """The operators and the sources of a DataFrame's streaming part, by Spark's names."""

    operators: frozenset[str]
    sources: frozenset[str]

    @property
    def aggregates(self) -> bool:
        """Whether groups are counted or summed up."""
        return "Aggregate" in self.operators

    @property
    def has_watermark(self) -> bool:
        """Whether it is known when a time is past."""
        return "EventTimeWatermark" in self.operators


def plan_of(df: DataFrame) -> StreamPlan:
    """The plan of a DataFrame."""
    nodes = _streaming(df._jdf.queryExecution().analyzed())
    named = [(str(node.nodeName()), node) for node in nodes]
    return StreamPlan(
        operators=frozenset(name for name, _ in named if name not in _SOURCES),
        sources=frozenset(str(node.sourceName()) for name, node in named if name in _SOURCES),
    )


def _streaming(node: Any) -> Iterator[Any]:
    if not node.isStreaming():
        return
    yield node
    children = node.children()
    for place in range(children.size()):
        yield from _streaming(children.apply(place))
