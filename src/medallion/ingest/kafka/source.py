"""Kafka topics as a source: Spark reads the messages, the ledger counts them by partition."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from medallion.config.tables import Kafka
from medallion.errors import MedallionError, UnreachableError
from medallion.ingest.kafka import broker
from medallion.ingest.source import NO_SCAN, SourceContext, SourceScan, stale_ledger_error
from medallion.spark import checkpoints
from medallion.state import topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import clock, delta_log, delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import OFFSET, PARTITION, ROW_COUNTS, TOPIC
from medallion.storage.text import counted

_TIMEOUT_SECONDS = 60.0  # for a broker that does not answer within a batch
_RETRY_SECONDS = 1.0
_TEXT = "if(is_valid_utf8({0}), cast({0} as string), decode({0}, 'ISO-8859-1'))"
_HEADERS = "transform(headers, h -> struct(h.key as key, {} as value))"
# As in files, a value that is not UTF-8 is a corrupt row. A message without a value is null.
_JSON = (  # without the header of Confluent's wire format: a zero byte and a 4-byte id
    "case when startswith(value, X'00') and substr(value, 6, 1) = X'7B' then substr(value, 6)"
    " else coalesce(value, encode('null', 'UTF-8')) end"
)
_VALUES = {
    "json": f"cast({_JSON} as string)",
    "text": "if(is_valid_utf8(value) or value is null, to_json(struct(cast(value as string) as"
    " value), map('ignoreNullFields', 'false')), cast(value as string))",
}


@dataclass
class KafkaSource(SourceContext):
    """The topics of one source; see `ingest.source.Source`."""

    def __post_init__(self) -> None:
        """Start without the ids of the topics, which `poll` asks for."""
        self.kafka = broker.kafka_settings(self.source)
        self.topic_ids: Mapping[str, str] = {}

    def poll(self, scan: SourceScan = NO_SCAN) -> None:
        """Check that no messages are lost, and record where new partitions start.

        Raises:
            MedallionError: messages are lost, or the broker does not answer.
        """
        state = broker.TopicState.load(self.config, self.source)
        table = self.config.layout.table(self.name)
        is_first_run = not state.progress and not delta_tables.row_count(table)
        starts_at_end = is_first_run and self.kafka.starting_offsets == "latest"
        new = []
        for key, part in state.partitions.items():
            before = state.progress.get(key)
            if before is None or before.is_void:
                start = part.end if starts_at_end else part.first
                known = before or PartitionProgress(
                    self.source.name, *key, first_offset=start, committed_at=clock.now_micros()
                )
                new.append(replace(known, topic_id=part.topic_id, next_offset=start))
        topics.write_progress(self.config.layout, new)
        self.topic_ids = {topic: part.topic_id for (topic, _), part in state.partitions.items()}

    def stream(self) -> DataFrame:
        """Return the stream of messages: `value` (JSON text), and the columns of their origin."""
        reader = (
            self.spark.readStream.format("kafka")
            .options(**broker.spark_source_options(self.kafka, self.config.login))
            .option("subscribe", ",".join(self.kafka.topics))
            .option("startingOffsets", json.dumps(self._next_offsets()))
            .option("maxOffsetsPerTrigger", str(self.kafka.max_messages_per_trigger))
        )
        return to_bronze_columns(reader.load(), self.kafka)

    def _next_offsets(self) -> dict[str, dict[str, int]]:
        """Return the offsets to continue from by topic and partition, as Spark takes them."""
        offsets = defaultdict[str, dict[str, int]](dict)
        for each in topics.read_progress(self.config.layout, self.source.name).values():
            if each.topic in self.kafka.topics and not each.is_void:
                offsets[each.topic][str(each.partition)] = each.next_offset
        return offsets

    def batch(self, number: int, queued: DataFrame) -> MessageBatch:
        """Return the messages of a batch.

        Raises:
            MedallionError: messages are lost, or no broker answers for a minute.
        """
        until = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            try:
                self.poll()
                return MessageBatch(self, number, queued)
            except UnreachableError:  # brokers restart one after the other
                if time.monotonic() > until:
                    raise
                time.sleep(_RETRY_SECONDS)

    def interrupted_batch(self, number: int) -> MessageBatch:
        """Return a batch without its messages: the rows in bronze have their offsets."""
        return MessageBatch(self, number, None)

    @property
    def last_in_ledger(self) -> int:
        """The last batch in the ledger; -1 if none."""
        progress = topics.read_progress(self.config.layout, self.source.name).values()
        return max((each.batch for each in progress), default=-1)

    @property
    def rows_in_ledger(self) -> int:
        """The number of ingested messages."""
        return topics.ingested_rows(self.config, self.source)

    def can_resume(self, checkpoint: StoragePath) -> bool:
        """Return whether the checkpoint has exactly the configured topics.

        Spark reports topics that were added or removed as data loss.
        """
        try:
            offsets = checkpoints.source_offsets(checkpoint, checkpoints.last_planned(checkpoint))
        except MedallionError:
            return False
        if not offsets:  # Spark may have recorded its own starting offsets
            return not (checkpoint / "sources").is_stored()
        return set(offsets[0]) == set(self.kafka.topics)

    def recreate_checkpoint(self, checkpoint: StoragePath, last: int) -> None:
        """Start from the ledger's offsets, and new topics from their first message."""
        self.poll()
        batch = max(self.last_in_ledger, last, 0)
        checkpoints.write_start(self.spark, checkpoint, batch, self._next_offsets())

    def sample_batch(self) -> MessageBatch:
        """Return no messages: the schema is inferred from the first batch."""
        return MessageBatch(self, -1, None)

    def release(self, number: int) -> None:
        """Do nothing: there are no files to archive."""

    def count_rows(self, number: int) -> int:
        """Return the rows that bronze has of a batch: its messages may be gone."""
        table = self.config.layout.table(self.name)
        return sum(each.rows for each in delta_log.batch_commits(table, range(number, number + 1)))

    def end_offsets(self, number: int) -> dict[PartitionKey, int]:
        """Return each partition's offset after a batch by the checkpoint; empty if unknown."""
        checkpoint = self.config.layout.checkpoint(self.name)
        try:
            documents: Any = checkpoints.source_offsets(checkpoint, number)
        except MedallionError:
            return {}
        return {
            (topic, int(part)): int(offset)
            for document in documents
            for topic, parts in document.items()
            for part, offset in parts.items()
        }


def to_bronze_columns(messages: DataFrame, kafka: Kafka) -> DataFrame:
    """Rename and decode Spark's columns of messages.

    Args:
        messages: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `headers`.
        kafka: the settings of the source.

    Returns:
        `value` (JSON text), then the columns of `storage.table_specs.MESSAGE_ORIGIN_COLUMNS`.
    """
    columns = {
        "value": _VALUES[kafka.value],
        "_topic": "topic",
        "_partition": "partition",
        "_offset": "offset",
        "_timestamp": "timestamp",
        "_key": _TEXT.format("key"),
        "_headers": _HEADERS.format(_TEXT.format("h.value")),
    }
    return messages.select(*(F.expr(sql).alias(name) for name, sql in columns.items()))


class MessageBatch:
    """The messages of one micro-batch; see `ingest.source.SourceBatch`."""

    paths = ()

    def __init__(self, source: KafkaSource, number: int, rows: DataFrame | None) -> None:
        self._source, self._number, self._rows = source, number, rows

    def read(self, work: Callable[[DataFrame], None], description: str) -> None:
        """Call `work` with the rows, unless they are None."""
        if self._rows is not None:
            work(self._rows)

    def first_lines(self) -> list[str]:
        """Return none: that needs a Spark job."""
        return []

    @property
    def summary(self) -> str:
        """The number of topics."""
        return counted(len(self._source.kafka.topics), "topic")

    def record_in_ledger(self, version: int | None) -> None:
        """Record in the ledger how far each partition is ingested."""
        layout, name = self._source.config.layout, self._source.source.name
        counts = _count_by_partition(layout.table(self._source.name), version)
        ends = self._source.end_offsets(self._number)
        known = topics.read_progress(layout, name)
        changed = (
            self._progress(at, known.get(at), counts.get(at, _Counts()), ends.get(at, 0))
            for at in {**ends, **counts}
        )
        topics.write_progress(layout, filter(None, changed))

    def _progress(
        self, place: PartitionKey, before: PartitionProgress | None, counts: _Counts, end: int
    ) -> PartitionProgress | None:
        """Return the ledger's row of a partition after this batch.

        Args:
            place: the partition.
            before: the ledger's current row, or None.
            counts: the rows that bronze has of this batch and partition.
            end: the first offset after the batch, by the checkpoint; 0 if unknown.

        Returns:
            The new row, or None if the ledger has the batch already.

        Raises:
            UsageError: the rows start before the ledger's next offset: the ledger is older.
        """
        if before is None:
            first = counts.first if counts.rows else end
            before = PartitionProgress(self._source.source.name, *place, first_offset=first)
        elif before.batch >= self._number:
            return None
        if counts.rows and counts.first < before.next_offset:
            raise stale_ledger_error(self._source.name)
        return replace(
            before,
            topic_id=self._source.topic_ids.get(before.topic, before.topic_id),
            next_offset=max(end, counts.end, before.next_offset),
            batch=self._number,
            committed_at=clock.now_micros(),
            rows=before.rows + counts.rows,
            corrupt_rows=before.corrupt_rows + counts.corrupt,
            rescued_rows=before.rescued_rows + counts.rescued,
        )


class _Counts(NamedTuple):
    """The rows in bronze of one partition and batch, their first offset, and the one after them."""

    rows: int = 0
    corrupt: int = 0
    rescued: int = 0
    first: int = 0
    end: int = 0


def _count_by_partition(bronze: StoragePath, version: int | None) -> dict[PartitionKey, _Counts]:
    """Count the rows that one version of bronze added, by partition."""
    what = f"{TOPIC}, {PARTITION}, {ROW_COUNTS}, min({OFFSET}), max({OFFSET}) + 1"
    rows = delta_tables.select_added_rows(bronze, version, what, f"group by {TOPIC}, {PARTITION}")
    return {(topic, partition): _Counts(*counts) for topic, partition, *counts in rows}
