"""Kafka sources, and the Kafka login from the environment."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from medallion.config.loader import kafka_login, load
from medallion.config.model import Config
from medallion.config.operations import Login
from medallion.config.tables import Kafka
from medallion.errors import ConfigError
from medallion.ingest.kafka.broker import client_settings, spark_source_options
from tests.support import PROJECT

KAFKA = {"format": "kafka", "servers": ["one:9092", "two:9092"], "topics": ["clicks", "a.b_c-1"]}
LOGIN = {
    "MEDALLION_KAFKA_PROTOCOL": "SASL_SSL",
    "MEDALLION_KAFKA_MECHANISM": "SCRAM-SHA-512",
    "MEDALLION_KAFKA_USERNAME": "reader",
    "MEDALLION_KAFKA_PASSWORD": 'a "b\\',
}


def load_with_source(folder: Path, source: dict[str, Any], environment: dict[str, str]) -> Config:
    """Load the project's configuration with one more source."""
    shutil.copytree(PROJECT / "conf", folder / "conf")
    document = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text())
    silver = {"silver": {"at": "at"}, "event_time": "at", "keys": ["at"]}
    document["sources"]["more"] = {**silver, **source}
    (folder / "conf/pipeline.yaml").write_text(yaml.safe_dump(document))
    return load(environment, folder)


def test_stream_formats_are_parsed(tmp_path: Path) -> None:
    earliest = Kafka(("one:9092", "two:9092"), ("clicks", "a.b_c-1"), "json", "earliest", 1_000_000)
    kafka = load_with_source(tmp_path / "1", KAFKA, LOGIN)
    assert kafka.sources["more"].stream == earliest
    assert [source.stream for name, source in kafka.sources.items() if name != "more"] == [None] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"folders": ["x"]}, "sources.more.folders is not a known key"),
        ({"multi_line": True}, "sources.more.multi_line is not a known key"),
        ({"sasl.password": "x"}, "sources.more.sasl.password is not a known key"),
        ({"servers": "one:9092"}, r"servers must be a list such as \[localhost:9092\]"),
        ({"servers": []}, "servers must be a list"),
        ({"servers": ["one"]}, "servers must be a list"),
        ({"servers": ["me:secret@one:9092"]}, "servers must be a list"),
        ({"topics": ["a", "a"]}, "topics must be a list of different topics"),
        ({"topics": ["a,b"]}, "topics must be a list"),
        ({"topics": [".."]}, "topics must be a list"),
        ({"value": "avro"}, "value must be one of json, text"),
        ({"starting_offsets": "0"}, "starting_offsets must be one of earliest, latest"),
        ({"max_messages_per_trigger": 0}, "max_messages_per_trigger must be a whole number"),
        ({"format": "json"}, "sources.more.servers is not a known key"),
        ({"format": "kafkaa"}, "format must be one of json, .*, kafka"),
    ],
)
def test_invalid_kafka_source(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_with_source(tmp_path, {**KAFKA, **change}, {})


def test_stream_formats_required_keys(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="servers is missing"):
        load_with_source(tmp_path, {"format": "kafka"}, {})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"MEDALLION_KAFKA_PASSWORD": ""}, "set all three, or none"),
        ({"MEDALLION_KAFKA_PROTOCOL": "SSL"}, "set all three, or none"),
        ({"MEDALLION_KAFKA_PROTOCOL": "sasl_ssl"}, "PROTOCOL must be one of PLAINTEXT, SSL"),
        ({"MEDALLION_KAFKA_MECHANISM": "GSSAPI"}, "MECHANISM must be one of PLAIN, SCRAM"),
        (
            {"MEDALLION_KAFKA_PROTOCOL": "SASL_PLAINTEXT", "MEDALLION_KAFKA_CA": __file__},
            "CA needs MEDALLION_KAFKA_PROTOCOL SSL or SASL_SSL",
        ),
        ({"MEDALLION_KAFKA_CA": "here.pem"}, "here.pem: must be the absolute path"),
        ({"MEDALLION_KAFKA_CA": "/nowhere.pem"}, "/nowhere.pem: must be the absolute path"),
    ],
)
def test_invalid_kafka_login(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        kafka_login({**LOGIN, **change})
    assert 'a "b' not in str(error.value)


def test_password_is_not_in_repr(tmp_path: Path) -> None:
    """Only the settings of the two clients have it, each with its own escaping."""
    config = load_with_source(tmp_path, KAFKA, LOGIN)
    assert "reader" not in repr(config)
    assert 'a "b' not in repr(config)
    kafka = config.sources["more"].stream
    assert isinstance(kafka, Kafka)
    assert client_settings(kafka.servers, config.login)["sasl.password"] == 'a "b\\'
    jaas = spark_source_options(kafka, config.login)["kafka.sasl.jaas.config"]
    assert jaas.endswith(r'username="reader" password="a \"b\\";')
    assert "scram" in jaas
    assert "kafka.sasl.jaas.config" not in spark_source_options(kafka, kafka_login({}))


def test_login_from_dotenv(tmp_path: Path) -> None:
    """The value is used as written; an error message does not show a possible password."""
    (tmp_path / ".env").write_text(
        "MEDALLION_KAFKA_PROTOCOL=SASL_SSL\n"
        "MEDALLION_KAFKA_USERNAME=reader\n"
        "MEDALLION_KAFKA_PASSWORD='a${HOME}b'\n"
    )
    # An empty variable counts as unset, and other variables with the prefix are ignored.
    environment = {"MEDALLION_KAFKA_USERNAME": "", "MEDALLION_KAFKA_SERVICE_PORT": "9092"}
    login = load_with_source(tmp_path, KAFKA, environment).login
    assert (login.username, login.password) == ("reader", "a${HOME}b")
    (tmp_path / ".env").write_text('MEDALLION_KAFKA_PASSWORD="my"secret"\n')
    with pytest.raises(ConfigError, match="line 1: must be KEY=value") as error:
        load({}, tmp_path)
    assert "secret" not in str(error.value)


def test_login_is_not_checked_without_kafka(tmp_path: Path) -> None:
    shutil.copytree(PROJECT / "conf", tmp_path / "conf")
    assert load({"MEDALLION_KAFKA_USERNAME": "x"}, tmp_path).login == Login()
