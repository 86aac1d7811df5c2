"""Gold: one query a table, from a silver table to `gold.<table>`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from medallion.config.model import Config
from medallion.config.queries import Query
from medallion.lakehouse import specs, tables
from medallion.layers import recovery
from medallion.layers.definition import refuse_another
from medallion.layers.flow import Flow, Say
from medallion.layers.gold.transform import aggregated, groups, windowed
from medallion.layers.gold.writer import Merge
from medallion.spark import checkpoints, query
from medallion.spark.query import Run
from medallion.spark.sink import Sink


class Gold(Flow):
    """The query of one table, in the table's output mode."""

    is_gated = True

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Say) -> None:
        super().__init__(spark, config, query, say)
        self.table = config.gold[query.name.partition(".")[2]]

    def start(self, trigger: Mapping[str, Any], recorded: int) -> Run:
        """Start the query.

        Raises:
            ConfigError: the table was made by another definition, which would be mixed with this
                one.
        """
        layout, table = self.config.layout, self.table
        checkpoint = layout.checkpoint(self.name)
        now = dict(self.definition())
        refuse_another(self.config, self.name, checkpoints.made_by(checkpoint, now), now)
        target = layout.table(self.name)
        if recovery.forget_torn(checkpoint, [target]):
            self.say(f"  {self.name}: its checkpoint is torn: all of silver is counted anew")
            checkpoints.note(checkpoint, "definition", now)
        self.tell_kept_settings()
        silver = self.spark.readStream.format("delta").load(str(self.read_from))
        stream = windowed(silver, self.source.event_time, table.window, table.slide)
        result = aggregated(stream, groups(table.window, table.group_by), table.measure)
        if checkpoints.last_begun(checkpoint) < 0:
            tables.forget_empty(target, result.schema.json())
        tables.create(target, result.schema.json(), specs.GOLD)
        if table.output_mode == "complete":
            writer = result.writeStream.outputMode("complete")
            self.run = query.start(writer, self.name, checkpoint, trigger, target)
        else:
            merge = Sink(Merge(self.spark, self.config, table))
            self.run = query.start(stream.writeStream, self.name, checkpoint, trigger, merge)
        return self.run

    def settle(self, since: int) -> dict[str, Any]:
        """The rows that the batches read; nobody balances them, so those of a run that was cut off
        are left out."""
        return {
            "rows_in": sum(batch.rows for batch in self.ran.batches.values()),
            "first_batch": since + 1,
            "last_batch": self.ran.batches_to_settle(since).stop - 1,
        }

    def rows_to_judge(self, since: int, until: int) -> DataFrame:
        """All of them: complete mode writes the whole table, and a merge rewrites files."""
        return self.rows()

    def definition(self) -> Mapping[str, Any]:
        """All that the configuration says of the table."""
        return {
            "source": self.table.source,
            "window": self.table.window.text if self.table.window else None,
            "slide": self.table.slide.text if self.table.slide else None,
            "group_by": list(self.table.group_by),
            "measure": dict(self.table.measure),
            "output_mode": self.table.output_mode,
        }
