"""Publish: one query an output, from a table of gold to where its changes go."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config, ToFiles
from medallion.config.queries import Query
from medallion.errors import UsageError
from medallion.layers import recovery
from medallion.layers.flow import Flow
from medallion.layers.publish import outputs
from medallion.layers.publish.outputs import FilesOutput, Output, TopicOutput
from medallion.spark import checkpoints, query
from medallion.spark.query import BatchProgress, Run, Sink
from medallion.state import pending_work
from medallion.storage import delta_log, delta_tables
from medallion.storage.text import Reporter, counted

_PUBLISHED, _DEFINITION = "published", "definition"
_FEED = {"delta.enableChangeDataFeed": "true"}


class Publish(Flow):
    """The query of one output of a table: all of its rows first, and then each change."""

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
            key = table.made.groups if isinstance(table.made, Aggregate) else ()
            self._output = TopicOutput(self.name, key, to, config.login)

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> Run | None:
        """Start the query.

        Raises:
            UsageError: the table, or the output, is another one than what was published so far; or
                what was published, or has changed since, is not known any more.
            MedallionError: no broker answers, the topic is not there, or the format cannot hold a
                column.
        """
        self._refuse_lost(recorded)
        rows, now = self._look()
        self._refuse_changed(now)
        if trigger is None:
            return None
        told = rows.observe(_PUBLISHED, F.count(F.lit(1)).alias("rows"))
        sink = Sink(self._output.write)
        self.run = query.start_query(told.writeStream, self.name, self.checkpoint, trigger, sink)
        return self.run

    def forget(self, recorded: int) -> None:
        """Forget what was published, so that the next start publishes the whole table anew.

        The numbers of batches go on: a reader of the files may go by them.

        Args:
            recorded: the last of its batches that is on record.

        Raises:
            MedallionError: it could not be published, and nothing is forgotten.
        """
        _, now = self._look()
        self._refuse_lower_versions(now)
        # There already where a process was killed within this.
        aside = self.checkpoint.with_name(f".{self.checkpoint.name}.old")
        begun = max(map(checkpoints.last_planned, (self.checkpoint, aside)))
        last = max(begun, self._output.last_batch, recorded)
        shutil.rmtree(aside, ignore_errors=True)
        if self.checkpoint.exists():
            self.checkpoint.rename(aside)
        self._output.empty()
        if last >= 0:
            checkpoints.write_start(self.spark, self.checkpoint, last, None)
            checkpoints.note(self.checkpoint, _DEFINITION, dict(now))
        shutil.rmtree(aside, ignore_errors=True)

    def _look(self) -> tuple[DataFrame, Mapping[str, str]]:
        """The changes, and what may not change without its being published anew."""
        if delta_tables.properties_to_set(self._gold, _FEED):
            raise UsageError(f"{self.upstream[0]} has no feed yet: run medallion run gold first.")
        rows = outputs.change_stream(self.spark, self._gold)
        columns = dict(rows.dtypes)
        told = ", ".join(f"{name} {kind}" for name, kind in columns.items() if name[0] != "_")
        return rows, {"columns": told, **self._output.look(columns)}

    def _refuse_lost(self, recorded: int) -> None:
        """Raise UsageError where nobody knows what was published, or what has changed since.

        The offsets of a batch say which changes are in it. One whose files are out already, or that
        is on record, could come to hold others without them.
        """
        begun, last = checkpoints.last_planned(self.checkpoint), self._output.last_batch
        torn = checkpoints.corrupt_part(self.checkpoint)
        is_plan = torn is not None and torn.parent.name == "offsets"
        is_lost = begun < max(last, recorded) or (is_plan and last >= begun)
        if is_lost or recovery.repair_checkpoint(self.checkpoint, []) is not None:
            self._refuse(f"{self.checkpoint} does not have all batches that were published")
        done = checkpoints.last_committed(self.checkpoint)
        if self._reads_another():
            self._refuse(f"{self.upstream[0]} was made anew, and is another table now")
        if done >= 0:
            read = pending_work.read_up_to(self.config, self.name, self._gold)
            if read.version and not delta_log.has_complete_change_feed(self._gold, read.version):
                self._refuse(f"what {self.upstream[0]} has changed since is not kept any more")

    def _refuse_changed(self, now: Mapping[str, str]) -> None:
        has_written = self._output.last_batch >= 0
        then = checkpoints.first_definition(self.checkpoint, dict(now), has_written)
        if then != now:
            was = [f"{key} {then.get(key)!r}" for key in now if then.get(key) != now[key]]
            self._refuse(f"it was published so far with {', '.join(was)}")

    def _refuse_lower_versions(self, now: Mapping[str, str]) -> None:
        """Raise UsageError if messages have higher versions than the table, which is older now, or
        another one: readers that go by versions would take new messages for old ones."""
        then = checkpoints.noted(self.checkpoint, _DEFINITION) or {}
        id_then, id_now = (each.get("topic id") for each in (then, now))
        is_lower = self._reads_another() or pending_work.has_read_more(self.checkpoint, self._gold)
        if id_now and id_then == id_now and is_lower:
            raise UsageError(
                f"{self.name}: {self.upstream[0]} is another table now, or an older one, whose "
                "_commit_version begins again below that of the messages in its topic: make the "
                "topic anew, or name another one, have its readers begin with it, and call this "
                "again."
            )

    def _reads_another(self) -> bool:
        """Whether the table is none that it has ever read."""
        if checkpoints.corrupt_part(self.checkpoint):
            return False  # nobody knows
        done = checkpoints.last_committed(self.checkpoint)
        return checkpoints.reads_other_table(self.checkpoint, done, self._gold)

    def _refuse(self, why: str) -> None:
        raise UsageError(
            f"{self.name} cannot go on, for {why}: medallion refresh {self.name} publishes the "
            "whole table anew."
        )

    def finish_batches(self, since: int) -> dict[str, Any]:
        """The rows of the feed that the batches read, and the changes that were sent."""
        batches = self.started_run.batches.values()
        return {
            "rows_in": sum(batch.rows for batch in batches),
            "rows_out": sum(map(self.sent, batches)),
            "first_batch": since + 1,
            "last_batch": self.started_run.unrecorded_batches(since).stop - 1,
        }

    def describe_batch(self, batch: BatchProgress) -> str | None:
        """How many changes it has sent."""
        return counted(self.sent(batch), "change") if batch.rows else None

    def sent(self, batch: BatchProgress) -> int:
        """The changes that a batch has sent, as the engine counted them."""
        return int(batch.observed.get(_PUBLISHED, {"rows": 0})["rows"])
