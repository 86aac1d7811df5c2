"""A source's settings and the login, as Spark's connector and as the client library spell them."""

from __future__ import annotations

from collections.abc import Sequence

from medallion.config.connections import Kafka, Login

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Messages of a transaction that was aborted never landed.
_COMMITTED = "read_committed"


def for_spark(kafka: Kafka, login: Login) -> dict[str, str]:
    """Options of Spark's source: all but which partitions, and from where."""
    return {
        **for_writing(kafka.servers, login),
        "kafka.isolation.level": _COMMITTED,
        "kafka.allow.auto.create.topics": "false",
        "includeHeaders": "true",
        "failOnDataLoss": "true",
    }


def for_writing(servers: Sequence[str], login: Login) -> dict[str, str]:
    """Options of Spark's sink: all but the topic."""
    found = {
        "kafka.bootstrap.servers": ",".join(servers),
        "kafka.security.protocol": login.protocol,
    }
    if login.ca:
        found["kafka.ssl.truststore.type"] = "PEM"
        found["kafka.ssl.truststore.location"] = login.ca
    if login.username:
        name, password = (_quoted(text) for text in (login.username, login.password))
        module = _MODULES[login.mechanism]
        found["kafka.sasl.mechanism"] = login.mechanism
        found["kafka.sasl.jaas.config"] = f"{module} required username={name} password={password};"
    return found


def for_client(servers: Sequence[str], login: Login) -> dict[str, str | int]:
    """Settings of librdkafka."""
    found: dict[str, str | int] = {
        "bootstrap.servers": ",".join(servers),
        "security.protocol": login.protocol,
        "client.id": "medallion",
        "log_level": 0,  # what goes wrong is raised, in words
    }
    if login.ca:
        found["ssl.ca.location"] = login.ca
    if login.username:
        found["sasl.mechanism"] = login.mechanism
        found["sasl.username"], found["sasl.password"] = login.username, login.password
    return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
