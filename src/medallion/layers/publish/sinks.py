"""Where changes go: a folder of files a micro-batch, or messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame

from medallion.config.connections import Login
from medallion.config.publish import ToFiles, ToKafka
from medallion.errors import UsageError
from medallion.lakehouse import storage
from medallion.layers.publish.changes import TIMES, messages
from medallion.sources.kafka import broker, options

_NESTED = ("array<", "map<", "struct<")  # as Spark spells their types


class Output(Protocol):
    """What a query that publishes writes to.

    Attributes:
        definition: what may not change without its being published anew.
        last_batch: the last batch that is there for sure; -1 if nobody knows of one.
    """

    definition: Mapping[str, str]

    @property
    def last_batch(self) -> int: ...

    def prepare(self, columns: Mapping[str, str]) -> None:
        """Raise MedallionError where rows of these columns, with their types, cannot go there."""

    def write(self, changes: DataFrame, batch: int) -> None:
        """Write a batch; it may be repeated."""


class Files:
    """Each batch is a folder, which appears as a whole: so each change is there exactly once."""

    def __init__(self, name: str, folder: Path, to: ToFiles) -> None:
        self._name, self._folder, self._format = name, folder, to.format
        self.definition: Mapping[str, str] = {"format": to.format}

    @property
    def last_batch(self) -> int:
        """The last batch whose folder is there."""
        there = self._folder.glob("[0-9]*")
        return max((int(place.name) for place in there), default=-1)

    def prepare(self, columns: Mapping[str, str]) -> None:
        """Raise UsageError for columns that CSV has no way to write."""
        nested = [name for name, kind in columns.items() if kind.startswith(_NESTED)]
        if nested and self._format == "csv":
            raise UsageError(
                f"{self._name}: csv has no way to write {', '.join(nested)}: publish as json or "
                "parquet, or leave it out of the table."
            )

    def write(self, changes: DataFrame, batch: int) -> None:
        """Write a batch to a folder beside its place, and put it there."""
        place = self._folder / f"{batch:08}"
        if place.exists():  # the run was cut off after that
            return
        hidden = place.with_name(f".{place.name}")
        texts = {"header": "true", "ignoreNullFields": "false", **TIMES}
        writer = changes.write.format(self._format).mode("overwrite")
        writer.options(**(texts if self._format != "parquet" else {})).save(str(hidden))
        for file in hidden.iterdir():
            storage.sync(file)
        hidden.rename(place)
        storage.sync(self._folder)


class Topic:
    """Each change is a message. A batch that was cut off is sent again: at least once."""

    def __init__(self, name: str, key: Sequence[str], to: ToKafka, login: Login) -> None:
        self._name, self._key, self._to, self._login = name, key, to, login
        self.definition: Mapping[str, str] = {"topic": to.topic}

    last_batch = -1

    def prepare(self, columns: Mapping[str, str]) -> None:
        """Raise MedallionError where no broker answers, or the topic is not there."""
        broker.ask(self._name, self._to.servers, [self._to.topic], self._login)

    def write(self, changes: DataFrame, batch: int) -> None:
        """Send a batch."""
        self.prepare({})  # a broker that is off is told in words, and waited for
        writer = messages(changes, self._key).write.format("kafka")
        settings = options.for_writing(self._to.servers, self._login)
        writer.options(**settings).option("topic", self._to.topic).save()
