"""Kafka topics as a source: Spark reads the messages, the ledger counts them by partition."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, Kafka, SourceConfig
from medallion.errors import MedallionError, UnreachableError
from medallion.ingest.kafka import broker
from medallion.ingest.schema.evolution import Schema
from medallion.ingest.source import SparkBatch, stale_ledger_error
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, missing_jars
from medallion.state import topics
from medallion.state.topics import PartitionKey, PartitionProgress
from medallion.storage import clock, delta_log, delta_tables
from medallion.storage.table_specs import OFFSET, PARTITION, ROW_COUNTS, TOPIC
from medallion.storage.text import Reporter, counted

_PATIENCE = 60.0  # seconds, for a broker that does not answer within a batch
_PAUSE = 1.0
_TEXT = "if(is_valid_utf8({0}), cast({0} as string), decode({0}, 'ISO-8859-1'))"
_HEADERS = "transform(headers, h -> struct(h.key as key, {} as value))"
# As of a file's line: bytes that are not UTF-8 are no JSON, and kept. A message of nothing is null.
_VALUES = {
    "json": "cast(coalesce(value, encode('null', 'UTF-8')) as string)",
    "text": "if(is_valid_utf8(value) or value is null, to_json(struct(cast(value as string) as"
    " value), map('ignoreNullFields', 'false')), cast(value as string))",
}


class _Counts(NamedTuple):
    """The rows that bronze has of one partition, the first offset, and the first after them."""

    rows: int = 0
    corrupt: int = 0
    rescued: int = 0
    first: int = 0
    end: int = 0


class MessageBatch(SparkBatch):
    """What one batch was handed; see `ingest.source.SourceBatch`."""

    def __init__(self, source: KafkaSource, number: int, handed: DataFrame | None) -> None:
        super().__init__(handed)
        self._source, self._number = source, number

    @property
    def summary(self) -> str:
        """Which topics are read."""
        return counted(len(self._source.kafka.topics), "topic")

    def record_in_ledger(self, version: int | None) -> None:
        """Write down how far each partition is ingested."""
        layout, name = self._source.config.layout, self._source.name
        found = _by_partition(layout.table(f"bronze.{name}"), version)
        ends = self._source.read_up_to(self._number)
        known = topics.read_progress(layout, name)
        now = [
            self._after(place, known.get(place), found.get(place, _Counts()), ends.get(place, 0))
            for place in {**ends, **found}
        ]
        topics.write_progress(layout, [taken for taken in now if taken])

    def _after(
        self, place: PartitionKey, before: PartitionProgress | None, counts: _Counts, end: int
    ) -> PartitionProgress | None:
        """The ledger's row of a partition after this batch; None where it has it already.

        Raises:
            UsageError: the ledger is older than another topic that took the name since.
        """
        topic, partition = place
        if before is None:
            first = counts.first if counts.rows else end
            before = PartitionProgress(
                self._source.name, topic, partition, None, first, 0, batch=-1, committed_at=0
            )
        elif before.batch >= self._number:
            return None
        if counts.rows and counts.first < before.next_offset:  # it does not know of another topic
            raise stale_ledger_error(f"bronze.{self._source.name}")
        return replace(
            before,
            topic_id=self._source.topic_ids.get(topic, before.topic_id),
            next_offset=max(end, counts.end, before.next_offset),
            batch=self._number,
            committed_at=clock.now_micros(),
            rows=before.rows + counts.rows,
            corrupt_rows=before.corrupt_rows + counts.corrupt,
            rescued_rows=before.rescued_rows + counts.rescued,
        )


def _by_partition(bronze: Path, version: int | None) -> dict[PartitionKey, _Counts]:
    """The rows that one version of bronze added, read back and counted by their partitions."""
    what = f"{TOPIC}, {PARTITION}, {ROW_COUNTS}, min({OFFSET}), max({OFFSET}) + 1"
    found = delta_tables.select_added_rows(bronze, version, what, f"group by {TOPIC}, {PARTITION}")
    return {(topic, partition): _Counts(*counts) for topic, partition, *counts in found}


class KafkaSource:
    """The topics of one source; see `ingest.source.Source`."""

    def __init__(
        self,
        spark: SparkSession,
        config: Config,
        source: SourceConfig,
        schema: Schema,
        say: Reporter,
    ) -> None:
        self.spark, self.config, self.name = spark, config, source.name
        self.settings, self.kafka = source, broker.kafka_settings(source)
        self._checkpoint = config.layout.checkpoint(f"bronze.{source.name}")
        self.topic_ids: Mapping[str, str] = {}

    def poll(self) -> None:
        """Look whether what comes next is there, and put down where what is new begins.

        Raises:
            MedallionError: it is not, or the broker cannot be asked.
        """
        there = broker.list_partitions(self.settings, self.config.login)
        taken = topics.read_progress(self.config.layout, self.name)
        broker.refuse_lost(self.settings, taken, there)
        bronze = self.config.layout.table(f"bronze.{self.name}")
        is_first_run = not taken and not delta_tables.row_count(bronze)
        begins_at_end = is_first_run and self.kafka.starting_offsets == "latest"
        new = []
        for place, part in there.items():
            before = taken.get(place)
            if before is None or before.is_void:
                start = part.end if begins_at_end else part.first
                known = before or PartitionProgress(
                    self.name, *place, None, start, 0, -1, clock.now_micros()
                )
                new.append(replace(known, topic_id=part.topic_id, next_offset=start))
        topics.write_progress(self.config.layout, new)
        self.topic_ids = {topic: part.topic_id for (topic, _), part in there.items()}

    def stream(self) -> DataFrame:
        """The messages: `value` (JSON text), and the columns that say where each came from."""
        reader = (
            self.spark.readStream.format("kafka")
            .options(**broker.spark_source_options(self.kafka, self.config.login))
            .option("subscribe", ",".join(self.kafka.topics))
            .option("startingOffsets", json.dumps(_by_topic(self._starts())))
            .option("maxOffsetsPerTrigger", str(self.kafka.max_messages_per_trigger))
        )
        try:
            return to_bronze_columns(reader.load(), self.kafka)
        except AnalysisException as error:
            if missing := missing_jars(error):
                raise MedallionError(f"bronze.{self.name}: {missing}") from None
            raise

    def _starts(self) -> dict[PartitionKey, int]:
        """The next offset of each partition, by the ledger."""
        taken = topics.read_progress(self.config.layout, self.name)
        there = (e for e in taken.values() if e.topic in self.kafka.topics and not e.is_void)
        return {each.place: each.next_offset for each in there}

    def batch(self, number: int, queued: DataFrame) -> MessageBatch:
        """The messages that Spark has planned for a batch, if the topics are what they were.

        Raises:
            MedallionError: they are not, or nobody answers for a minute.
        """
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                self.poll()
                return MessageBatch(self, number, queued)
            except UnreachableError:  # brokers are started anew, one after the other
                if time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)

    def interrupted_batch(self, number: int) -> MessageBatch:
        """A batch whose rows are in bronze: they say what it has read."""
        return MessageBatch(self, number, None)

    @property
    def last_in_ledger(self) -> int:
        """The last batch in the ledger; -1 if none."""
        taken = topics.read_progress(self.config.layout, self.name).values()
        return max((each.batch for each in taken), default=-1)

    @property
    def rows_in_ledger(self) -> int:
        """The rows of the messages that were ingested."""
        return topics.ingested_rows(self.config.layout, self.name)

    def can_resume(self, checkpoint: Path) -> bool:
        """Whether it has just the topics that are read: Spark takes others for lost."""
        try:
            found = checkpoints.source_offsets(checkpoint, checkpoints.last_planned(checkpoint))
        except MedallionError:
            return False
        if not found:  # Spark may have put down by itself where each topic begins
            return not (checkpoint / "sources").exists()
        return set(found[0]) == set(self.kafka.topics)

    def recreate_checkpoint(self, checkpoint: Path, last: int) -> None:
        """Go on from where the ledger has it, and with the first message of a topic that is new."""
        self.poll()
        batch = max(self.last_in_ledger, last, 0)
        checkpoints.write_start(self.spark, checkpoint, batch, _by_topic(self._starts()))

    def sample_batch(self) -> MessageBatch:
        """Nothing: the first batch itself tells the schema."""
        return MessageBatch(self, -1, None)

    def count_rows(self, number: int) -> int:
        """The messages of one batch, read again; the rows that bronze has, if they are gone, or
        nobody knows where it began."""
        bronze = self.config.layout.table(f"bronze.{self.name}")
        written = delta_log.rows_by_transaction(bronze, None, number).get(number, 0)
        start, end = self.read_up_to(number - 1), self.read_up_to(number)
        if end and start != end and end.keys() <= start.keys():
            try:  # since then the broker may have compacted the topic, and nobody added to it
                return max(self._between(start, end), written)
            except SPARK_ERRORS:  # they are gone, or the broker is
                pass
        return written

    def release(self, number: int) -> None:
        """Nothing: how long messages stay, the broker decides."""

    def read_up_to(self, number: int) -> dict[PartitionKey, int]:
        """The first offsets after a batch, by its checkpoint; none where that does not say."""
        try:
            found: Any = checkpoints.source_offsets(self._checkpoint, number)
        except MedallionError:
            return {}
        return {
            (topic, int(part)): int(offset)
            for document in found
            for topic, parts in document.items()
            for part, offset in parts.items()
        }

    def _between(self, start: Mapping[PartitionKey, int], end: Mapping[PartitionKey, int]) -> int:
        """The messages of a range of offsets."""
        parts: dict[str, list[int]] = {}
        for topic, part in end:
            parts.setdefault(topic, []).append(part)
        reader = (
            self.spark.read.format("kafka")
            .options(**broker.spark_source_options(self.kafka, self.config.login))
            .option("assign", json.dumps(parts))
            .option("startingOffsets", json.dumps(_by_topic({p: start[p] for p in end})))
            .option("endingOffsets", json.dumps(_by_topic(end)))
        )
        return reader.load().count()


def _by_topic(offsets: Mapping[PartitionKey, int]) -> dict[str, dict[str, int]]:
    """Offsets as Spark's source spells them."""
    found: dict[str, dict[str, int]] = {}
    for (topic, part), offset in offsets.items():
        found.setdefault(topic, {})[str(part)] = offset
    return found


def to_bronze_columns(messages: DataFrame, kafka: Kafka) -> DataFrame:
    """Spark's columns of messages as those of bronze's lines.

    Args:
        messages: `key`, `value`, `topic`, `partition`, `offset`, `timestamp`, `headers`.

    Returns:
        `value` (JSON text), then the columns of `lakehouse.columns.OF_MESSAGES`.
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
