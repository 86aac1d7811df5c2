"""The entry `publish` of a table of gold: where its changes go beside it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medallion.config import connections, values
from medallion.config.connections import Kafka
from medallion.config.document import Node

_FORMATS = ("json", "csv", "parquet")


@dataclass(frozen=True)
class ToFiles:
    """The changes of a table as files below `publish`."""

    format: str


@dataclass(frozen=True)
class ToKafka:
    """The changes of a table as messages of a topic, each a JSON object."""

    servers: tuple[str, ...]
    topic: str


OutputConfig = ToFiles | ToKafka


def outputs(node: Node, mode: str) -> Mapping[str, OutputConfig]:
    """The outputs of a table that is written in an output mode, by `files` and `kafka`."""
    if "publish" not in node.value:
        return {}
    if mode == "complete":
        node.fail(
            "publish",
            "needs a table of which each batch writes what has changed, in output_mode update or "
            "append: in complete, each writes all of it",
        )
    entry = node.child("publish")
    entry.only("files", "kafka")
    found: dict[str, OutputConfig] = {}
    if "files" in entry.value:
        files = entry.child("files")
        files.only("format")
        known, told = values.one_of(_FORMATS), f"one of {', '.join(_FORMATS)}"
        found["files"] = ToFiles(files.get("format", known, told))
    if "kafka" in entry.value:
        kafka = entry.child("kafka")
        kafka.only("servers", "topic")
        topic = kafka.get("topic", connections.topic, "the name of a topic")
        found["kafka"] = ToKafka(connections.servers(kafka), topic)
    if not found:
        node.fail("publish", "must name files, kafka, or both")
    return found


def refuse_shared_topics(
    document: Node, read: Mapping[str, Kafka], written: Mapping[str, ToKafka]
) -> None:
    """Raise ConfigError where two outputs go to one topic, or a source reads what is published.

    Nobody could tell the tables of one topic apart. And a source of what is made of its own rows
    has no end, by whatever way they come back to it.

    Args:
        document: the whole of pipeline.yaml.
        read: what sources read, by their keys there.
        written: what is published, likewise.
    """
    taken = {key: (kafka.servers, kafka.topics) for key, kafka in read.items()}
    for key, output in written.items():
        for other, (servers, topics) in taken.items():
            # Any server of a cluster leads to all of it.
            if output.topic in topics and _names(servers) & _names(output.servers):
                document.fail(
                    f"{key}.topic",
                    f"is {output.topic}, as in {other}: give the output a topic of its own, which "
                    "no other one writes and no source reads",
                )
        taken[key] = (output.servers, (output.topic,))


def _names(servers: Iterable[str]) -> set[str]:
    return {server.lower() for server in servers}
