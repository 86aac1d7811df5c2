"""Spark's settings, and the start of a session."""

from __future__ import annotations

import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pyspark
import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import ConfigError, MedallionError
from medallion.spark import jvm, session, settings
from medallion.spark.session import session_of_command, spark_session
from medallion.spark.settings import DEFAULTS, FIXED, jar_settings, logging_file, session_settings
from tests.support import PROJECT


def config(folder: Path, text: str | None) -> Config:
    (folder / "spark").mkdir()
    if text is not None:
        (folder / "spark/spark-defaults.conf").write_text(text, encoding="utf-8")
    return replace(load({}, PROJECT), conf_dir=folder)


def test_settings_file_has_a_key_and_value_per_line(tmp_path: Path) -> None:
    text = "# said\n\nspark.a   one two \n  spark.b\t3\n#spark.c 4\n"
    settings = session_settings(config(tmp_path, text))
    assert settings.items() >= {"spark.a": "one two", "spark.b": "3", **FIXED}.items()
    assert "spark.c" not in settings


def test_settings_of_the_project_replace_single_defaults(tmp_path: Path) -> None:
    default = session_settings(load({}, PROJECT))
    project_settings = session_settings(config(tmp_path, "spark.driver.memory 9g\n"))
    assert project_settings == {**default, "spark.driver.memory": "9g"}
    assert default["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_cached_jars_are_added_to_the_project_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "class_path", lambda _: [Path("/cache/a.jar"), Path("/b.jar")])
    project_settings = {"spark.driver.extraClassPath": "/own.jar", "spark.ui.enabled": "false"}
    actual = jar_settings(load({}, PROJECT), project_settings, has_executors=False)
    assert actual == {"spark.driver.extraClassPath": "/own.jar:/cache/a.jar:/b.jar"}
    actual = jar_settings(load({}, PROJECT), {}, has_executors=True)
    assert actual["spark.jars"] == "/cache/a.jar,/b.jar"
    monkeypatch.setattr(settings, "class_path", lambda _: [])
    assert jar_settings(load({}, PROJECT), project_settings, has_executors=True) == {}


def test_logging_of_the_project_replaces_the_default(tmp_path: Path) -> None:
    configured = config(tmp_path, None)
    assert logging_file(configured).parent == DEFAULTS
    log_file = tmp_path / "spark/log4j2.properties"
    log_file.write_text("rootLogger.level = warn\n")
    assert logging_file(configured) == log_file


@pytest.mark.parametrize("line", ["spark.alone", "other.key value", "spark.a", "="])
def test_invalid_settings_line_is_named(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=r"spark-defaults\.conf line 2: must be a key"):
        session_settings(config(tmp_path, f"spark.ok 1\n{line}\n"))


@pytest.mark.parametrize("master", ["foo", None])
def test_invalid_master_is_named(monkeypatch: pytest.MonkeyPatch, master: str | None) -> None:
    """Without MEDALLION_MASTER the error is not the user's."""

    def fail(_: object) -> None:
        raise Py4JError("An error occurred while calling None.a.Context.\n: a.b: no such\n\tat c.d")

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    config = replace(load({}, PROJECT), master=master)
    with pytest.raises(ConfigError if master else Py4JError) as raised:
        spark_session(config)
    if master:
        expected = "MEDALLION_MASTER: Spark does not start with foo: a.b: no such"
        assert str(raised.value) == expected


def test_java_ending_during_the_start_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python, which asks Java for a session, gets a refused connection."""
    error = ConnectionRefusedError(111, "Connection refused")
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", Mock(side_effect=error))
    with pytest.raises(MedallionError, match=r"^Java has ended while Spark started: .*local\.dir"):
        spark_session(load({}, PROJECT))


def test_other_spark_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many machines set SPARK_HOME for an older Spark with other classes."""
    started: list[int] = []
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda _: started.append(1))
    monkeypatch.setattr(session, "_prepare", lambda *_: None)
    monkeypatch.setattr(session, "jar_settings", lambda *_, **__: {})  # that Spark has no Delta
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars/spark-core_2.12-3.5.1.jar").touch()
    with pytest.raises(ConfigError, match=f"SPARK_HOME: {tmp_path} has no Spark 4"):
        spark_session(load({}, PROJECT))
    spark_core = next(Path(pyspark.__path__[0], "jars").glob("spark-core_*.jar"))
    (tmp_path / "jars" / spark_core.name).touch()
    spark_session(load({}, PROJECT))
    assert len(started) == 1


def test_project_settings_are_utc_and_delta() -> None:
    actual = session_settings(load({}, PROJECT))
    assert actual["spark.sql.session.timeZone"] == "UTC"
    assert actual["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"


def test_clock_jump_loses_no_executor(spark: SparkSession) -> None:
    """Spark compares heartbeats with the clock, which may jump, as after a sleep.

    After two minutes it would remove the local executor, and end Java ten minutes later.
    """
    conf = spark.sparkContext._jsc.sc().conf()
    timeout = conf.getTimeAsMs("spark.storage.blockManagerHeartbeatTimeoutMs")
    assert timeout >= 365 * 24 * 3600 * 1000


def test_command_has_python_times_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freshness gates compare Python's time of the newest row with their bounds."""
    monkeypatch.setattr("medallion.spark.session.spark_session", MagicMock())
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        with session_of_command(load({}, PROJECT), "tests"):
            assert datetime.fromtimestamp(0) == datetime(1970, 1, 1)
    time.tzset()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_during_the_start_ends_the_command(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has not started; Java, which may have ended by the signal, is stopped."""
    spark = MagicMock()

    def start(*_: object, **__: object) -> MagicMock:
        signal.raise_signal(number)
        return spark

    monkeypatch.setattr(session, "spark_session", start)
    with (
        pytest.raises(KeyboardInterrupt) as interrupt,
        session_of_command(load({}, PROJECT), "tests"),
    ):
        pytest.fail("the command runs")
    assert interrupt.value.args == (number,)
    spark.stop.assert_called_once()


def test_error_after_a_signal_ended_java_is_an_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spark = MagicMock()
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    monkeypatch.setattr(jvm, "is_alive", lambda _: False)

    def fail(number: signal.Signals | None) -> None:
        with session_of_command(load({}, PROJECT), "tests"):
            if number:
                signal.raise_signal(number)
            raise ConnectionError("Java is gone")

    with pytest.raises(KeyboardInterrupt):
        fail(signal.SIGTERM)
    with pytest.raises(ConnectionError, match="Java is gone"):
        fail(None)


def test_fixed_settings_cannot_be_changed(tmp_path: Path) -> None:
    actual = session_settings(load({}, PROJECT))
    expected = {
        "spark.sql.timestampType": "TIMESTAMP_LTZ",
        "spark.sql.parser.escapedStringLiterals": "false",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.hadoop.mapreduce.input.linerecordreader.line.maxlength": "2147483647",
        "spark.sql.avro.datetimeRebaseModeInRead": "CORRECTED",
        "spark.databricks.delta.history.metricsEnabled": "true",
        "spark.databricks.delta.stats.collect": "true",
        "spark.sql.streaming.minBatchesToRetain": "100",
    }
    assert {key: actual.get(key) for key in expected} == expected
    assert set(expected) <= set(FIXED) <= set(actual)
    key = "spark.sql.session.timeZone"
    with pytest.raises(ConfigError, match=rf"line 2: {key} must be UTC"):
        session_settings(config(tmp_path, f"spark.sql.ansi.enabled TRUE\n{key} Asia/Tokyo\n"))


@pytest.mark.parametrize(
    ("folder", "more", "message"),
    [
        ("abfss://c-1@acc.dfs.core.windows.net/in", "", "needs a connector to abfss://"),
        ("gs://bucket/in", "spark.jars.packages a:b:1\n", None),
        ("s3://bucket/in", "", None),
    ],
)
def test_bucket_without_a_connector_is_refused(
    tmp_path: Path, folder: str, more: str, message: str | None
) -> None:
    base = config(tmp_path, f"spark.ok 1\n{more}")
    event = replace(base.sources["event"], folders=(folder,))
    base = replace(base, sources={"event": event})
    with pytest.raises(ConfigError, match=message) if message else nullcontext():
        assert session_settings(base)["spark.ok"] == "1"
