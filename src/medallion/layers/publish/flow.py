"""Publish: one query an output, from a table of gold to where its changes go."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config
from medallion.config.publish import ToFiles
from medallion.config.queries import Query
from medallion.errors import UsageError
from medallion.lakehouse import tables
from medallion.lakehouse.text import counted
from medallion.layers import recovery
from medallion.layers.definition import refuse_another
from medallion.layers.flow import Flow, Say
from medallion.layers.gold.transform import groups
from medallion.layers.publish import changes
from medallion.layers.publish.sinks import Files, Output, Topic
from medallion.spark import checkpoints, query
from medallion.spark.progress import Batch
from medallion.spark.query import Run
from medallion.spark.sink import Sink

_PUBLISHED = "published"


class Publish(Flow):
    """The query of one output of a table: all of its rows first, and then each change."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Say) -> None:
        super().__init__(spark, config, query, say)
        _, name, output = query.name.split(".")
        table = config.gold[name]
        to = table.outputs[output]
        self.output: Output
        if isinstance(to, ToFiles):
            self.output = Files(self.name, config.layout.published(name), to)
        else:
            key = groups(table.made) if isinstance(table.made, Aggregate) else ()
            self.output = Topic(self.name, key, to, config.login)

    def start(self, trigger: Mapping[str, Any], recorded: int) -> Run:
        """Start the query.

        Raises:
            ConfigError: the table, or the output, is another one than what was published so far.
            UsageError: its checkpoint is gone or torn, and all would be published a second time; or
                the format cannot hold a column.
            MedallionError: no broker answers, or the topic is not there.
        """
        (gold,) = self.read_from
        checkpoint = self.config.layout.checkpoint(self.name)
        self._refuse_lost(checkpoint, recorded)
        # A table that was not published before has no feed yet.
        tables.align(gold, self.config.maintain.properties(self.config.spec(self.upstream[0])))
        rows = changes.stream(self.spark, gold)
        columns = dict(rows.dtypes)
        now = {**self.definition(), "columns": columns}
        refuse_another(self.config, self.name, checkpoints.made_by(checkpoint, now), now)
        self.output.prepare(columns)
        told = rows.observe(_PUBLISHED, F.count(F.lit(1)).alias("rows"))
        sink = Sink(self.output.write)
        self.run = query.start(told.writeStream, self.name, checkpoint, trigger, sink)
        return self.run

    def _refuse_lost(self, checkpoint: Path, recorded: int) -> None:
        """Raise UsageError where what was published is not what the checkpoint says."""
        begun, last = checkpoints.last_begun(checkpoint), self.output.last_batch
        torn = checkpoints.torn(checkpoint)
        if begun < last or (torn and torn.parent.name == "offsets" and last >= begun):
            raise UsageError(
                f"{self.name} cannot go on, for {checkpoint} does not have the batches that it has "
                f"published: medallion refresh {self.name} publishes the whole table anew."
            )
        recovery.refuse_lost(self.name, checkpoint, [], recorded)

    def settle(self, since: int) -> dict[str, Any]:
        """The rows of the feed that the batches read, and the changes that were sent."""
        batches = self.ran.batches.values()
        return {
            "rows_in": sum(batch.rows for batch in batches),
            "rows_out": sum(map(_published, batches)),
            "first_batch": since + 1,
            "last_batch": self.ran.batches_to_settle(since).stop - 1,
        }

    def definition(self) -> Mapping[str, Any]:
        """Where it goes: elsewhere, only what changes from then on would come."""
        return self.output.definition

    def told(self, batch: Batch) -> str | None:
        """How many changes it has sent."""
        return counted(_published(batch), "change") if batch.rows else None


def _published(batch: Batch) -> int:
    return int(batch.observed.get(_PUBLISHED, {"rows": 0})["rows"])
