"""What a streaming DataFrame is made of, as far as sinks, output modes and triggers care."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame

from medallion.spark.plans import analyzed, nodes

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
    streaming = (node for node in nodes(analyzed(df)) if node.isStreaming())
    named = [(str(node.nodeName()), node) for node in streaming]
    return StreamPlan(
        operators=frozenset(name for name, _ in named if name not in _SOURCES),
        sources=frozenset(str(node.sourceName()) for name, node in named if name in _SOURCES),
    )
