"""A real Kafka broker for tests, as one process."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support import PROJECT
from tests.support.server import ServerProcess

_JARS = PROJECT / ".venv/broker"
_CLUSTER = "bWVkYWxsaW9uLXRlc3RzLQ"  # any 16 bytes, in base64
USER, PASSWORD = "reader", 'se"cr\\et'


class Broker(ServerProcess):
    """A running broker and operations on its topics."""

    def __init__(
        self, launch: Callable[[], subprocess.Popen[bytes]], port: int, port_with_login: int
    ) -> None:
        self._launch = launch
        self.server = f"127.0.0.1:{port}"
        self.server_with_login = f"127.0.0.1:{port_with_login}"
        self._settings = {"bootstrap.servers": self.server, "log_level": 0}
        self.admin = AdminClient(self._settings)
        self._producer = Producer(self._settings)

    def start(self) -> None:
        """Start the process; existing topics and messages are kept."""
        self.process = self._launch()
        self.admin.list_topics(timeout=60)

    def create(self, topic: str, partitions: int = 1) -> None:
        new_topic = NewTopic(topic, num_partitions=partitions, replication_factor=1)
        self.admin.create_topics([new_topic])[topic].result(30)

    def delete(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + 30
        while topic in self.admin.list_topics(timeout=10).topics:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def remove_before(self, topic: str, offset: int) -> None:
        """Delete the messages before an offset, as retention does."""
        (removed,) = self.admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        removed.result(30)

    def send(
        self, topic: str, *values: str | bytes | None, partition: int = 0, **more: Any
    ) -> None:
        for value in values:
            self._producer.produce(topic, value, partition=partition, **more)
        assert self._producer.flush(30) == 0

    def send_in_transactions(self, topic: str, aborted: str, committed: str) -> None:
        """Send a message in an aborted transaction, then one in a committed transaction."""
        producer = Producer({**self._settings, "transactional.id": "tests"})
        producer.init_transactions(30)
        for value, end in (
            (aborted, producer.abort_transaction),
            (committed, producer.commit_transaction),
        ):
            producer.begin_transaction()
            producer.produce(topic, value, partition=0)
            producer.flush(30)
            end(30)


@contextmanager
def running(folder: Path) -> Iterator[Broker]:
    """Start a broker that stores its data in a directory; a second port requires a login."""
    if not _JARS.is_dir():
        pytest.fail("there is no broker to test with: make broker")
    ports = _free_ports(3)
    settings = folder / "server.properties"
    settings.write_text(_settings(folder / "data", *ports), encoding="utf-8")
    home = os.environ.get("JAVA_HOME")
    java = [str(Path(home) / "bin/java") if home else "java", "-Xmx256m", "-XX:+UseSerialGC"]
    java += ["-XX:TieredStopAtLevel=1", "-cp", f"{_JARS}/*"]
    format_storage = [
        *java,
        "kafka.tools.StorageTool",
        "format",
        "-t",
        _CLUSTER,
        "-c",
        str(settings),
    ]
    subprocess.run(format_storage, check=True, capture_output=True)

    def launch() -> subprocess.Popen[bytes]:
        with (folder / "broker.log").open("a") as log:
            return subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)

    broker = Broker(launch, ports[0], ports[1])
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()
        shutil.rmtree(folder / "data", ignore_errors=True)


def topic_messages(broker: Broker, topic: str) -> list[tuple[Any, Any]]:
    """Return keys and values of all messages in order; the topic has one partition."""
    consumer = Consumer({"bootstrap.servers": broker.server, "group.id": "tests"})
    try:
        partition = TopicPartition(topic, 0, 0)
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        consumer.assign([partition])
        return [
            (json.loads(message.key()), json.loads(message.value()))
            for message in (consumer.consume(end, timeout=30) if end else [])
        ]
    finally:
        consumer.close()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for sock in sockets:
        sock.bind(("127.0.0.1", 0))
    ports = [int(sock.getsockname()[1]) for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


def _settings(data: Path, plain: int, login: int, controller: int) -> str:
    password = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    jaas = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'user_{USER}="{password}";'
    ).replace("\\", "\\\\")  # .properties files have their own escapes
    return f"""
process.roles=broker,controller
node.id=1
listeners=PLAIN://127.0.0.1:{plain},LOGIN://127.0.0.1:{login},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAIN:PLAINTEXT,LOGIN:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAIN
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
sasl.enabled.mechanisms=PLAIN
listener.name.login.plain.sasl.jaas.config={jaas}
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""
