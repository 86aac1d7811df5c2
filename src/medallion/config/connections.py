"""What is read in place of files, by the formats kafka, rate and socket; and the login."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from medallion.config import values
from medallion.config.document import Node
from medallion.errors import ConfigError

_CHOICES = {
    "protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
}
_VALUES, _OFFSETS = ("json", "text"), ("earliest", "latest")
_SERVER = re.compile(r"[^\s,/@]+:[1-9][0-9]{0,4}")
_TOPIC = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")  # as Kafka itself has it


@dataclass(frozen=True)
class Kafka:
    """Topics of a message broker, and how their messages are read.

    `servers` are hosts with their ports. `value` says what a message is: a JSON object, or text,
    which becomes the column `value`. A first run begins at `starting_offsets`.
    """

    servers: tuple[str, ...]
    topics: tuple[str, ...]
    value: str
    starting_offsets: str
    max_messages_per_trigger: int


@dataclass(frozen=True)
class Rate:
    """Rows that Spark makes up, numbered in `value`, each with a `timestamp`."""

    rows_per_second: int


@dataclass(frozen=True)
class Socket:
    """Lines of JSON from whoever listens at a port. What came in while nobody read is lost."""

    host: str
    port: int


KEYS: Mapping[str, tuple[str, ...]] = {
    kind: tuple(each.name for each in fields(read))
    for kind, read in (("kafka", Kafka), ("rate", Rate), ("socket", Socket))
}
"""The keys of a source that are its format's alone."""


@dataclass(frozen=True)
class Login:
    """How Kafka's brokers are spoken to, by the names that Kafka has for it; from the environment.

    `ca` is a file with the certificates of the authorities to trust, in PEM.
    """

    protocol: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    ca: str = ""


LOGIN = {f"MEDALLION_KAFKA_{each.name.upper()}": each.name for each in fields(Login)}
"""The variables of the environment that say it, each with its field."""


def stream(node: Node, kind: str) -> Kafka | Rate | Socket | None:
    """What a source of this format reads; None for files."""
    if kind == "kafka":
        return Kafka(
            servers=servers(node),
            topics=node.get("topics", _each(_TOPIC), "a list of topics, each named once"),
            value=node.choice("value", _VALUES),
            starting_offsets=node.choice("starting_offsets", _OFFSETS),
            max_messages_per_trigger=_count(node, "max_messages_per_trigger", 1_000_000),
        )
    if kind == "rate":
        return Rate(_count(node, "rows_per_second", 10))
    if kind == "socket":
        return Socket(
            host=node.get("host", values.text, "the name of a machine", "localhost"),
            port=node.get("port", _port, "the number of a port"),
        )
    return None


def login(environ: Mapping[str, str], dotenv: Mapping[str, str]) -> Login:
    """How brokers are spoken to; the environment wins over `.env`.

    Raises:
        ConfigError: a variable has no such value; a password is never repeated.
    """
    given = {key: environ.get(key) or dotenv.get(key) for key in LOGIN}
    found = {LOGIN[key]: value for key, value in given.items() if value}
    for key, name in LOGIN.items():
        if (choices := _CHOICES.get(name)) and found.get(name, choices[0]) not in choices:
            raise ConfigError(f"{key} must be one of {', '.join(choices)}.")
    made = Login(**found)
    if made.protocol.startswith("SASL_") != bool(made.username and made.password):
        raise ConfigError(
            "MEDALLION_KAFKA_USERNAME and MEDALLION_KAFKA_PASSWORD go together with "
            "MEDALLION_KAFKA_PROTOCOL SASL_SSL (or SASL_PLAINTEXT): set all three of them, or none."
        )
    if made.ca and not made.protocol.endswith("SSL"):
        raise ConfigError(
            f"MEDALLION_KAFKA_CA is for brokers that are spoken to by SSL, and not by "
            f"{made.protocol}: set MEDALLION_KAFKA_PROTOCOL SSL or SASL_SSL."
        )
    if made.ca and not (Path(made.ca).is_absolute() and Path(made.ca).is_file()):
        raise ConfigError(f"MEDALLION_KAFKA_CA: {made.ca}: must be the whole path of a file.")
    return made


def _count(node: Node, key: str, default: int) -> int:
    return node.get(key, values.count, "a whole number above 0", default)


def servers(node: Node) -> tuple[str, ...]:
    """The brokers that an entry names."""
    return node.get("servers", _each(_SERVER), "a list such as [localhost:9092]")


def topic(value: Any) -> str:
    """The name of one topic."""
    if not _TOPIC.fullmatch(found := values.text(value)):
        raise ValueError
    return found


def _each(pattern: re.Pattern[str]) -> Callable[[Any], tuple[str, ...]]:
    """The kind of a list of different texts that fit a pattern."""

    def kind(value: Any) -> tuple[str, ...]:
        found = values.texts(value)
        if not found or len(set(found)) < len(found) or not all(map(pattern.fullmatch, found)):
            raise ValueError
        return found

    return kind


def _port(value: Any) -> int:
    if values.count(value) > 65535:
        raise ValueError
    return int(value)
