"""Outputs for the changes of a gold table: a directory of files per batch, or Kafka messages.

A batch's files are written in place, in `<batch>/`. The manifest `<batch>/_files.json` is written
last, and names the files that are valid; readers must ignore others. A batch that runs again is
skipped if it has a manifest; otherwise its files are removed and written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.operations import Login
from medallion.config.tables import ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.kafka import broker
from medallion.spark.errors import missing_jars
from medallion.storage.paths import StoragePath

MANIFEST = "_files.json"
CHANGE_TYPE, COMMIT_VERSION = "_change_type", "_commit_version"
# Spark's defaults drop microseconds.
_LOCAL_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_TIME_FORMATS = {"timestampFormat": f"{_LOCAL_TIME}XXX", "timestampNTZFormat": _LOCAL_TIME}
# By default Spark removes blanks around a string, and puts a backslash before a quote.
_EXACT_CSV = {
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_WRITER_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"ignoreNullFields": "false", **_TIME_FORMATS},
    "csv": {"header": "true", **_EXACT_CSV, **_TIME_FORMATS},
    "parquet": {},
}
_NESTED_TYPES = ("array<", "map<", "struct<", "variant")  # as Spark spells them
_BATCH_NAME = re.compile(r"\d{8,}")
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}


def change_stream(spark: SparkSession, table: StoragePath) -> DataFrame:
    """Return a stream of a table's current rows, then of each change, from Delta's change feed.

    Returns:
        The table's columns, `_change_type` (insert, update_postimage or delete), `_commit_version`
        and `_commit_timestamp`.
    """
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").load(str(table))
    return feed.where(F.col(CHANGE_TYPE) != "update_preimage")


def change_messages(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return changes as messages: the columns `key` and `value`, JSON objects.

    Messages of one key are in one partition and in order: by version, and within a version
    deletions first.

    Args:
        changes: rows of `change_stream`.
        key: the key columns of the table; if empty, messages have no key.
    """
    options = {**_TIME_FORMATS, "ignoreNullFields": "false"}
    keys = F.to_json(F.struct(*key), options) if key else F.lit(None).cast("string")
    messages = changes.select(
        keys.alias("key"),
        F.to_json(F.struct("*"), options).alias("value"),
        COMMIT_VERSION,
        (F.col(CHANGE_TYPE) != "delete").alias("is_present"),
    )
    partitioned = messages.repartition("key") if key else messages.coalesce(1)
    ordered = partitioned.sortWithinPartitions(COMMIT_VERSION, "is_present")
    return ordered.select("key", "value")


class FilesOutput:
    """Directories `<batch>/` of files and a manifest; each change is in exactly one manifest.

    Args:
        name: the query, for messages.
        directory: the parent of the batches' directories.
        to: the file format.
    """

    def __init__(self, name: str, directory: StoragePath, to: ToFiles) -> None:
        self._name, self._directory, self._format = name, directory, to.format

    @property
    def last_batch(self) -> int:
        """The last complete batch; -1 if there is none."""
        names = [path.name for path in self._directory.children()]
        batches = sorted((int(n) for n in names if _BATCH_NAME.fullmatch(n)), reverse=True)
        return next((b for b in batches if _is_complete(self._batch_directory(b))), -1)

    def definition(self, columns: Mapping[str, str]) -> Mapping[str, str]:
        """Return the format.

        Args:
            columns: name and Spark type of each column.

        Raises:
            UsageError: CSV cannot represent a column.
        """
        nested = [name for name, type_ in columns.items() if type_.startswith(_NESTED_TYPES)]
        if nested and self._format == "csv":
            raise UsageError(
                f"{self._name}: CSV cannot represent the nested columns {', '.join(nested)}. "
                "Publish as json or parquet, or remove them from the table."
            )
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
        observed.write.format(self._format).mode("overwrite").options(**options).save(
            str(directory)
        )
        rows = int(observation.get["rows"])
        if not rows:
            directory.delete_prefix()
            return
        directory.sync()
        names = [path.name for path in directory.children() if path.name.startswith("part-")]
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

    def definition(self, columns: Mapping[str, str]) -> Mapping[str, str]:
        """Return the topic and its id; JSON messages can represent any column.

        Raises:
            MedallionError: no broker answers, or the topic does not exist.
        """
        del columns
        self._definition = self._describe()
        return self._definition

    def _describe(self) -> Mapping[str, str]:
        name = self._to.topic
        _, topics = broker.describe_topics(self._name, self._to.servers, [name], self._login)
        return {"topic": name, "topic id": str(topics[name].topic_id)}

    def write(self, changes: DataFrame, batch: int) -> None:
        """Send a batch.

        Raises:
            MedallionError: no broker answers, the Kafka jars are missing, or the topic was
                recreated, which lost the messages sent before.
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
        except Exception as error:
            if missing := missing_jars(error):
                raise MedallionError(f"{self._name}: {missing}") from None
            self._describe()  # raises its own error if no broker answers any more
            raise

    def remove_all(self) -> None:
        """Do nothing: the broker keeps its messages."""


Output = FilesOutput | TopicOutput
