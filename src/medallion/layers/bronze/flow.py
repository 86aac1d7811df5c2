"""Bronze: one query a source, from landing files to `bronze.<source>`.

The query streams the paths that `Discovery` hands over, and reads the files batch by batch. So one
file that cannot be read holds up no other, and the schema may be another one from batch to batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.loader import Config, Source
from medallion.lakehouse.text import counted
from medallion.layers.flow import Flow, Say
from medallion.ops.ledger import Ledger
from medallion.schema.evolution import Schema
from medallion.sources.files import handover, reader
from medallion.sources.files.listing import stat
from medallion.sources.files.source import Batches
from medallion.spark import query
from medallion.spark.query import Batch, Run, Sink


class Bronze(Flow):
    """The query of one source."""

    inputs = ()

    def __init__(self, spark: SparkSession, config: Config, source: Source, say: Say) -> None:
        super().__init__(spark, config, f"bronze.{source.name}", source, say)
        self._batches: Batches | None = None

    def start(self, trigger: Mapping[str, Any], recorded: int) -> Run:
        """List the source's folders, and start the query that takes the files in.

        Raises:
            ConfigError: the declared schema is none, or not that of the table.
        """
        layout, source = self.config.layout, self.source
        layout.landing(source.name).mkdir(parents=True, exist_ok=True)
        handed = layout.intake(source.name)
        handover.prepare(handed)
        self._batches = Batches(self.spark, self.config, source, self.say)
        self._batches.prepare()
        rows = (
            self.spark.readStream.format("delta")
            .option("startingVersion", "0")
            .option("maxFilesPerTrigger", "1")  # one commit is what one batch may take
            .load(str(handed))
        )
        sink = Sink(self._batches.take_in)
        checkpoint = layout.checkpoint(self.name)
        self.run = query.start(rows.writeStream, self.name, checkpoint, trigger, sink)
        return self.run

    def settle(self, since: int) -> dict[str, Any]:
        """The lines that landed in the batches after `since`."""
        lines = 0
        batches = self.ran.batches_to_settle(since)
        for batch in batches:
            counted = self._batches.lines.get(batch) if self._batches else None
            # The record of a run that was cut off is lost.
            lines += self._lines_of(batch) if counted is None else counted
        return {"rows_in": lines, "first_batch": since + 1, "last_batch": batches.stop - 1}

    def definition(self) -> Mapping[str, Any]:
        """Nothing: its columns may grow, and the registry of schemas watches over them."""
        return {}

    def is_waiting(self) -> bool:
        """Never: files may land at any time."""
        return False

    def poll(self) -> None:
        """Hand over the files that are new."""
        if self.run and self._batches and self.run.query.isActive:
            self._batches.poll()

    def release(self, batch: int) -> None:
        """Put away the files of the batches up to this one, whose rows are on record.

        Not before that, for their rows might have to be counted again.
        """
        if self._batches:
            self._batches.clean(batch)

    def told(self, batch: Batch) -> str | None:
        """The query itself streams paths, and reads their rows inside of its batches."""
        lines = self._batches.lines.get(batch.id, 0) if self._batches else 0
        return f"{counted(batch.rows, 'file')}, {counted(lines, 'row')}" if batch.rows else None

    def _lines_of(self, batch: int) -> int:
        """Count again the rows in the files of one batch, as the ledger lists them."""
        there: list[str] = []
        lines = 0
        for entry in Ledger(self.config.layout, self.source.name).of_batch(batch):
            place = entry.moved_to or entry.path
            if stat(self.config.layout, place) == replace(entry.file, path=place):
                there.append(place)
            else:  # gone or overwritten since: what was counted of it stands
                lines += entry.rows or 0
        if there:
            columns = Schema(self.spark, self.config, self.source).columns
            lines += reader.rows(self.spark, self.config, self.source, there, columns).count()
        return lines
