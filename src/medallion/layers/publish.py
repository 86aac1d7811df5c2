"""Publish: one query per output, from a gold table to files or a Kafka topic.

A batch's files are written in place, in `<batch>/`. The manifest `<batch>/_files.json` is written
last, and names the files that are valid; readers must ignore others. A batch that runs again is
skipped if it has a manifest; otherwise its files are removed and written again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Aggregate, Config
from medallion.config.operations import Login
from medallion.config.queries import Query
from medallion.config.tables import ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.kafka import broker
from medallion.ingest.parsing.times import EXACT_FORMATS
from medallion.layers import recovery
from medallion.layers.flow import Flow
from medallion.spark import checkpoints, delta
from medallion.spark.query import BatchProgress, RunningQuery, Sink
from medallion.state import pending_work
from medallion.storage import delta_log, delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter, counted

MANIFEST = "_files.json"
CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"

# By default Spark removes blanks around a string, and puts a backslash before a quote.
_EXACT_CSV = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_WRITER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"ignoreNullFields": "false", **EXACT_FORMATS},
    "csv": {"header": "true", **_EXACT_CSV, **EXACT_FORMATS},
    "parquet": {},
}
_BATCH_NAME = re.compile(r"\d{8,}")
_PUBLISHED, _DEFINITION = "published", "definition"
_CHANGE_FEED = {"delta.enableChangeDataFeed": "true"}
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def change_messages(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return changes as messages: the columns `key` and `value`, JSON objects.

    Messages of one key are in one partition and in order: by version, and within a version
    deletions first.

    Args:
        changes: rows of a table's change feed.
        key: the key columns of the table; if empty, messages have no key.
    """
    options = {**EXACT_FORMATS, "ignoreNullFields": "false"}
    keys = F.to_json(F.struct(*key), options) if key else F.lit(None).cast("string")
    messages = changes.select(
        keys.alias("key"),
        F.to_json(F.struct("*"), options).alias("value"),
        COMMIT_VERSION,
        (F.col(CHANGE_TYPE) != "delete").alias("is_present"),
    )
    partitioned = messages.repartition("key") if key else messages.coalesce(1)
    return partitioned.sortWithinPartitions(COMMIT_VERSION, "is_present").select("key", "value")


class FilesOutput:
    """Directories `<batch>/` of files and a manifest; each change is in exactly one manifest.

    Args:
        directory: the parent of the batches' directories.
        to: the file format.
    """

    def __init__(self, directory: StoragePath, to: ToFiles) -> None:
        self._directory, self._format = directory, to.format

    @property
    def last_batch(self) -> int:
        """The last complete batch; -1 if there is none."""
        names = self._directory.names()
        batches = sorted((int(n) for n in names if _BATCH_NAME.fullmatch(n)), reverse=True)
        return next((b for b in batches if _is_complete(self._batch_directory(b))), -1)

    def definition(self) -> Mapping[str, str]:
        """Return the format."""
        return {"format": self._format}

    def write(self, changes: DataFrame, batch: int) -> None:
        """Write a batch's files and then its manifest, unless it is complete already.

        A batch without rows gets no directory. Rows are counted while they are written: a separate
        count would run the query twice, and double its metrics.
        """
        directory = self._batch_directory(batch)
        if _is_complete(directory):  # the run was interrupted after the manifest
            return
        observation = Observation()
        observed = changes.observe(observation, F.count(F.lit(1)).alias("rows"))
        options = {**_WRITER_OPTIONS[self._format], **_NO_SUCCESS_FILE}
        # Overwriting removes the files of an interrupted attempt.
        writer = observed.write.format(self._format).mode("overwrite").options(**options)
        writer.save(str(directory))
        rows = int(observation.get["rows"])
        if not rows:
            directory.delete_prefix()
            return
        directory.sync()
        names = [name for name in directory.names() if name.startswith("part-")]
        (directory / MANIFEST).write_atomic(json.dumps({"files": names, "rows": rows}))

    def remove_all(self) -> None:
        """Remove all batches, manifests first, so that no reader takes a partial batch as valid."""
        for batch in self._directory.children():
            (batch / MANIFEST).delete()
        self._directory.delete_prefix()

    def _batch_directory(self, batch: int) -> StoragePath:
        return self._directory / f"{batch:08}"


def _is_complete(directory: StoragePath) -> bool:
    return (directory / MANIFEST).is_stored()


class TopicOutput:
    """Messages of a Kafka topic, at least once: an interrupted batch is sent again.

    Args:
        name: the query, for messages.
        key: the table's key columns.
        to: servers and topic.
        login: the credentials.
    """

    last_batch = -1  # which messages were sent is unknown

    def __init__(self, name: str, key: Sequence[str], to: ToKafka, login: Login) -> None:
        self._name, self._key, self._to, self._login = name, key, to, login
        self._definition: Mapping[str, str] = {}  # at the start of the query

    def definition(self) -> Mapping[str, str]:
        """Return the topic and its id.

        Raises:
            MedallionError: no broker answers, or the topic does not exist.
        """
        self._definition = self._describe()
        return self._definition

    def _describe(self) -> Mapping[str, str]:
        name = self._to.topic
        _, topics = broker.describe_topics(self._name, self._to.servers, [name], self._login)
        return {"topic": name, "topic id": str(topics[name].topic_id)}

    def write(self, changes: DataFrame, batch: int) -> None:
        """Send a batch.

        Raises:
            MedallionError: no broker answers, or the topic was recreated, which lost the messages
                sent before.
        """
        if self._describe() != self._definition:
            raise MedallionError(
                f"{self._name}: topic {self._to.topic} was recreated while this query published "
                "to it. Start it again; it then reports what to do."
            )
        writer = change_messages(changes, self._key).write.format("kafka")
        settings = broker.spark_sink_options(self._to.servers, self._login)
        try:
            writer.options(**settings).option("topic", self._to.topic).save()
        except Exception:
            self._describe()  # raises its own error if no broker answers any more
            raise

    def remove_all(self) -> None:
        """Do nothing: the broker keeps its messages."""


Output = FilesOutput | TopicOutput


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
            self._output = FilesOutput(config.layout.published(name), to)
        else:
            key = table.definition.groups if isinstance(table.definition, Aggregate) else ()
            self._output = TopicOutput(self.name, key, to, config.login)

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query.

        Raises:
            UsageError: the table or the output has changed since the last batch, or it is unknown
                what was published or what has changed since.
            MedallionError: no broker answers, or the topic does not exist.
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
        last = max(checkpoints.last_planned(self.checkpoint), self._output.last_batch, recorded)
        new = checkpoints.next_generation(self.config.layout, self.name)
        if last >= 0:
            checkpoints.write_start(self.spark, new, last, None)
            checkpoints.write_document(new, _DEFINITION, dict(definition))
        # The query refuses to start without it: a process may die before the next two lines.
        (self.checkpoint / "metadata").delete()
        self._output.remove_all()
        checkpoints.start_generation(self.config.layout, self.name)

    def _changes(self) -> tuple[DataFrame, Mapping[str, str]]:
        """Return the stream of all rows, then of each change, and its definition.

        It has the table's columns, `_change_type` (insert, update_postimage or delete),
        `_commit_version` and `_commit_timestamp`.
        """
        if delta_tables.properties_to_set(self._gold, _CHANGE_FEED):
            raise UsageError(
                f"{self.upstream[0]} has no change feed yet: run `medallion run gold` first."
            )
        feed = delta.stream_table(self.spark, self._gold, readChangeFeed="true")
        changes = feed.where(F.col(CHANGE_TYPE) != "update_preimage")
        columns = ", ".join(f"{name} {type_}" for name, type_ in changes.dtypes if name[0] != "_")
        return changes, {"columns": columns, **self._output.definition()}

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
        then = checkpoints.record_first_definition(self.checkpoint, dict(now), has_written)
        if then != now:
            changed = ", ".join(f"{k} {then.get(k)!r}" for k in now if then.get(k) != now[k])
            raise self._cannot_resume(f"it was published with {changed} so far")

    def _refuse_lower_versions(self, now: Mapping[str, str]) -> None:
        """Raise UsageError if the topic's messages have higher versions than the table.

        Then the table was replaced or restored, and readers would skip new messages as old ones.
        """
        checkpoint = self.checkpoint
        then = checkpoints.read_document(checkpoint, _DEFINITION) or {}
        id_then, id_now = (each.get("topic id") for each in (then, now))
        is_lower = self._reads_other_table() or pending_work.has_read_more(checkpoint, self._gold)
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
