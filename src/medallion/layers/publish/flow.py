"""Publish: one query per output, from a gold table to files or a Kafka topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config
from medallion.config.queries import Query
from medallion.config.tables import ToFiles
from medallion.errors import UsageError
from medallion.layers import recovery
from medallion.layers.flow import Flow
from medallion.layers.publish.outputs import FilesOutput, Output, TopicOutput, change_stream
from medallion.spark import checkpoints
from medallion.spark.query import BatchProgress, Run, Sink
from medallion.state import pending_work
from medallion.storage import delta_log, delta_tables
from medallion.storage.text import Reporter, counted

_PUBLISHED, _DEFINITION = "published", "definition"
_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}


class Publish(Flow):
    """The query of one output of a gold table: all rows first, then each change."""

    def __init__(self, spark: SparkSession, config: Config, query: Query, say: Reporter) -> None:
        super().__init__(spark, config, query, say)
        _, name, output = query.name.split(".")
        table = config.gold[name]
        to = table.outputs[output]
        (self._gold,) = self.upstream_paths
        self._output: Output
        if isinstance(to, ToFiles):
            self._output = FilesOutput(self.name, config.layout.published(name), to)
        else:
            key = table.definition.groups if isinstance(table.definition, Aggregate) else ()
            self._output = TopicOutput(self.name, key, to, config.login)

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Start the query.

        Raises:
            UsageError: the table or the output has changed since the last batch, or it is unknown
                what was published or what has changed since.
            MedallionError: no broker answers, the topic does not exist, or the format cannot
                represent a column.
        """
        self._refuse_lost(recorded)
        changes, definition = self._changes()
        self._refuse_changed(definition)
        if trigger is None:
            return None
        observed = changes.observe(_PUBLISHED, F.count(F.lit(1)).alias("rows"))
        return self.start_query(observed.writeStream, trigger, Sink(self._output.write))

    def reset(self, recorded: int) -> None:
        """Forget what was published, so that the next start publishes the whole table again.

        Batch numbers continue, because readers of the files may depend on them.

        Args:
            recorded: the last batch in `ops.runs`, -1 if none.

        Raises:
            MedallionError: the table cannot be published; nothing is forgotten.
        """
        _, definition = self._changes()
        self._refuse_lower_versions(definition)
        planned = checkpoints.last_planned(self.checkpoint)
        last = max(planned, self._output.last_batch, recorded)
        new = checkpoints.next_generation(self.config.layout, self.name)
        if last >= 0:
            checkpoints.write_start(self.spark, new, last, None)
            checkpoints.write_document(new, _DEFINITION, dict(definition))
        # The query refuses to start without it: a process may die before the next two lines.
        (self.checkpoint / "metadata").delete()
        self._output.remove_all()
        checkpoints.start_generation(self.config.layout, self.name)

    def _changes(self) -> tuple[DataFrame, Mapping[str, str]]:
        """Return the stream of changes, and its definition: columns and output."""
        if delta_tables.properties_to_set(self._gold, _CHANGE_FEED):
            raise UsageError(
                f"{self.upstream[0]} has no change feed yet: run `medallion run gold` first."
            )
        changes = change_stream(self.spark, self._gold)
        types = dict(changes.dtypes)
        columns = ", ".join(f"{name} {type_}" for name, type_ in types.items() if name[0] != "_")
        return changes, {"columns": columns, **self._output.definition(types)}

    def _refuse_lost(self, recorded: int) -> None:
        """Raise UsageError if it is unknown what was published, or what has changed since.

        A batch's offsets say which changes it has. Without them, a batch that is published or
        recorded could be planned again with other changes.
        """
        planned, last = checkpoints.last_planned(self.checkpoint), self._output.last_batch
        corrupt = checkpoints.corrupt_part(self.checkpoint)
        is_offsets = corrupt is not None and corrupt.parent.name == "offsets"
        is_lost = planned < max(last, recorded) or (is_offsets and last >= planned)
        if is_lost or recovery.repair_checkpoint(self.checkpoint, []) is not None:
            raise self._cannot_resume(f"{self.checkpoint} lacks batches that were published")
        if self._reads_other_table():
            raise self._cannot_resume(f"{self.upstream[0]} was replaced by another table")
        if checkpoints.last_committed(self.checkpoint) >= 0:
            read = pending_work.read_up_to(self.config, self.name, self._gold)
            if read.version and not delta_log.has_complete_change_feed(self._gold, read.version):
                raise self._cannot_resume(
                    f"changes of {self.upstream[0]} since the last batch are not available any more"
                )

    def _refuse_changed(self, now: Mapping[str, str]) -> None:
        has_written = self._output.last_batch >= 0
        then = checkpoints.first_definition(self.checkpoint, dict(now), has_written)
        if then != now:
            changed = ", ".join(f"{k} {then.get(k)!r}" for k in now if then.get(k) != now[k])
            raise self._cannot_resume(f"it was published with {changed} so far")

    def _refuse_lower_versions(self, now: Mapping[str, str]) -> None:
        """Raise UsageError if the topic's messages have higher versions than the table.

        Then the table was replaced or restored, and readers would skip new messages as old ones.
        """
        then = checkpoints.read_document(self.checkpoint, _DEFINITION) or {}
        id_then, id_now = (each.get("topic id") for each in (then, now))
        is_lower = self._reads_other_table() or pending_work.has_read_more(
            self.checkpoint, self._gold
        )
        if id_now and id_then == id_now and is_lower:
            raise UsageError(
                f"{self.name}: {self.upstream[0]} was replaced, and its _commit_version restarts "
                "below that of the messages in the topic. Recreate the topic or configure another "
                "one, restart its readers, and run this again."
            )

    def _reads_other_table(self) -> bool:
        """Return whether the batches so far have read another table than the current one."""
        if checkpoints.corrupt_part(self.checkpoint):
            return False  # unknown
        done = checkpoints.last_committed(self.checkpoint)
        return checkpoints.reads_other_table(self.checkpoint, done, self._gold)

    def _cannot_resume(self, reason: str) -> UsageError:
        return UsageError(
            f"{self.name} cannot resume: {reason}. `medallion refresh {self.name}` publishes the "
            "whole table again."
        )

    def batch_metrics(self, batches: range) -> dict[str, Any]:
        """Return the rows that the batches read from the change feed, and the changes they sent."""
        sent = sum(map(self.sent, self.started_run.batches.values()))
        return {**super().batch_metrics(batches), "rows_out": sent}

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """Return the number of changes that a batch has sent, for users."""
        return counted(self.sent(batch), "change") if batch.rows else None

    def sent(self, batch: BatchProgress) -> int:
        """Return the number of changes that a batch has sent, as Spark counted them."""
        return int(batch.observed.get(_PUBLISHED, {"rows": 0})["rows"])
