"""The changes of a table as Delta's change feed has them, and what is sent of each."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Login, ToFiles, ToKafka
from medallion.errors import MedallionError, UsageError
from medallion.ingest.files.csv import AS_IT_IS
from medallion.ingest.kafka import broker
from medallion.spark.errors import missing_jars
from medallion.storage import files

CHANGE, VERSION = "_change_type", "_commit_version"
_BEFORE, _DELETED = "update_preimage", "delete"
# Spark's default leaves out what is below a millisecond.
_LOCAL = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
TIMES = {"timestampFormat": f"{_LOCAL}XXX", "timestampNTZFormat": _LOCAL}


def change_stream(spark: SparkSession, table: Path) -> DataFrame:
    """A stream of a table's rows as they are now, and then of each change.

    Returns:
        The table's columns, `_change_type` (insert, update_postimage or delete), `_commit_version`
        and `_commit_timestamp`.
    """
    feed = spark.readStream.format("delta").option("readChangeFeed", "true").load(str(table))
    return feed.where(F.col(CHANGE) != _BEFORE)


def change_messages(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Changes as messages: `key` and `value`, JSON objects.

    Those of one key are in one partition, in their order, which a topic keeps: by version, and
    within one what was taken away comes first.

    Args:
        key: the columns that a row of the table is known by; without them, messages have no key.
    """
    options = {**TIMES, "ignoreNullFields": "false"}
    keys = F.to_json(F.struct(*key), options) if key else F.lit(None).cast("string")
    told = changes.select(
        keys.alias("key"),
        F.to_json(F.struct("*"), options).alias("value"),
        VERSION,
        (F.col(CHANGE) != _DELETED).alias("is_there"),
    )
    together = told.repartition("key") if key else told.coalesce(1)
    return together.sortWithinPartitions(VERSION, "is_there").select("key", "value")


_NESTED = ("array<", "map<", "struct<", "variant")  # as Spark spells their types
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "json": {"ignoreNullFields": "false", **TIMES},
    "csv": {"header": "true", **AS_IT_IS, **TIMES},
}
_BATCH = re.compile(r"\d{8,}")


class FilesOutput:
    """Each batch is a folder, which appears as a whole: so each change is there exactly once."""

    def __init__(self, name: str, folder: Path, to: ToFiles) -> None:
        self._name, self._folder, self._format = name, folder, to.format

    @property
    def last_batch(self) -> int:
        """The last batch whose folder is there; -1 if none is."""
        names = [p.name for p in self._folder.iterdir()] if self._folder.is_dir() else []
        return max((int(name) for name in names if _BATCH.fullmatch(name)), default=-1)

    def look(self, columns: Mapping[str, str]) -> Mapping[str, str]:
        """The format; raises UsageError for columns that CSV has no way to write."""
        nested = [name for name, kind in columns.items() if kind.startswith(_NESTED)]
        if nested and self._format == "csv":
            raise UsageError(
                f"{self._name}: csv has no way to write {', '.join(nested)}: publish as json or "
                "parquet, or leave it out of the table."
            )
        return {"format": self._format}

    def write(self, changes: DataFrame, batch: int) -> None:
        """Write a batch to a folder beside its place, and put it there if it has rows.

        To ask for rows first would run a part of it twice, and those would count twice.
        """
        place = self._folder / f"{batch:08}"
        if place.exists():  # the run was cut off after that
            return
        hidden, told = place.with_name(f".{place.name}"), Observation()
        observed = changes.observe(told, F.count(F.lit(1)).alias("rows"))
        writer = observed.write.format(self._format).mode("overwrite")
        writer.options(**_OPTIONS.get(self._format, {})).save(str(hidden))
        if not told.get["rows"]:
            shutil.rmtree(hidden)
            return
        for written in (*hidden.iterdir(), hidden):
            files.sync(written)
        hidden.rename(place)
        for folder in (self._folder, self._folder.parent):
            files.sync(folder)

    def empty(self) -> None:
        """Remove the folders of all batches; readers find none, or all."""
        aside = self._folder.with_name(f".{self._folder.name}.old")
        shutil.rmtree(aside, ignore_errors=True)
        if self._folder.exists():
            self._folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)


class TopicOutput:
    """Each change is a message. A batch that was cut off is sent again: at least once."""

    last_batch = -1  # nobody knows which messages are there

    def __init__(self, name: str, key: Sequence[str], to: ToKafka, login: Login) -> None:
        self._name, self._key, self._to, self._login = name, key, to, login
        self._looked: Mapping[str, str] = {}  # what its query has started with

    def look(self, columns: Mapping[str, str]) -> Mapping[str, str]:
        """The topic and its id; raises MedallionError where no broker answers, or it is not there.

        A row of any columns is a JSON object.
        """
        del columns
        self._looked = self._look()
        return self._looked

    def _look(self) -> Mapping[str, str]:
        name = self._to.topic
        _, topics = broker.describe_topics(self._name, self._to.servers, [name], self._login)
        return {"topic": name, "topic id": str(topics[name].topic_id)}

    def write(self, changes: DataFrame, batch: int) -> None:
        """Send a batch.

        Raises:
            MedallionError: no broker answers, which a stream waits for; or there are no jars; or
                the topic was made anew, which has none of what was sent before.
        """
        if self._look() != self._looked:
            raise MedallionError(
                f"{self._name}: topic {self._to.topic} was made anew while this published to it: "
                "the next start says what to do."
            )
        writer = change_messages(changes, self._key).write.format("kafka")
        settings = broker.spark_sink_options(self._to.servers, self._login)
        try:
            writer.options(**settings).option("topic", self._to.topic).save()
        except Exception as error:
            if missing := missing_jars(error):
                raise MedallionError(f"{self._name}: {missing}") from None
            self._look()  # where none answers any more, it says so
            raise

    def empty(self) -> None:
        """Nothing: messages stay as long as the broker keeps them."""


Output = FilesOutput | TopicOutput
