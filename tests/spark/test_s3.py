"""Spark on S3: settings, commits and checkpoints, and faults of the store."""

from __future__ import annotations

import math
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import deltalake
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.errors import ConfigError, UsageError
from medallion.install.jars import S3_CLASSES, Extra, class_path
from medallion.spark import settings
from medallion.spark.settings import S3_FIXED, required_extras, session_settings
from tests.spark.test_session import config
from tests.support import PROJECT
from tests.support.fault_proxy import (
    COMMIT,
    COMMITS,
    OFFSETS,
    Fault,
    FaultProxy,
    held,
    lost_answer,
    refused,
)
from tests.support.s3_server import Bucket
from tools import s3_classes


@pytest.fixture
def on_s3(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(settings, "uses_store", lambda *_: True)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_settings_on_a_disk_have_no_s3() -> None:
    assert not set(S3_FIXED.items()) & set(session_settings(load({}, PROJECT)).items())
    assert required_extras(load({}, PROJECT)) == []


def test_s3_address_comes_from_the_environment(on_s3: pytest.MonkeyPatch) -> None:
    amazon = session_settings(load({}, PROJECT))
    assert amazon.items() >= S3_FIXED.items()
    assert "spark.hadoop.fs.s3a.endpoint" not in amazon
    on_s3.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    on_s3.setenv("AWS_REGION", "eu-west-3")
    on_s3.setenv("AWS_SECRET_ACCESS_KEY", "hidden")
    other = session_settings(load({}, PROJECT))
    assert {name: other[name] for name in other.keys() - amazon.keys()} == {
        "spark.hadoop.fs.s3a.endpoint": "http://127.0.0.1:9000",
        "spark.hadoop.fs.s3a.endpoint.region": "eu-west-3",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    assert "hidden" not in other.values()


@pytest.mark.usefixtures("on_s3")
def test_project_may_replace_defaults_on_s3_only(tmp_path: Path) -> None:
    threshold = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    assert session_settings(load({}, PROJECT))[threshold] == "32"
    assert session_settings(config(tmp_path, f"{threshold} 99"))[threshold] == "99"
    own = tmp_path / "own"
    own.mkdir()
    with pytest.raises(ConfigError, match=r"logStore\.s3\.impl must be medallion"):
        session_settings(config(own, "spark.delta.logStore.s3.impl io.delta.Other"))


@pytest.mark.parametrize(
    "key", ["access.key", "secret.key", "session.token", "bucket.b.secret.key"]
)
def test_credentials_in_settings_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(ConfigError, match=r"line 1: .*command line") as raised:
        session_settings(config(tmp_path, f"spark.hadoop.fs.s3a.{key} hidden"))
    assert "hidden" not in str(raised.value)


@pytest.mark.usefixtures("on_s3")
def test_missing_jars_for_s3_name_setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    monkeypatch.setenv("MEDALLION_CACHE", str(tmp_path))
    assert required_extras(load({}, PROJECT)) == [Extra.S3]
    with pytest.raises(UsageError, match=r"needs 43 jars .*: run medallion setup --s3$"):
        class_path(required_extras(load({}, PROJECT)))


def test_committed_classes_have_the_committed_sources() -> None:
    with ZipFile(S3_CLASSES) as jar:
        sources = {name: jar.read(name) for name in jar.namelist() if name.endswith(".java")}
    assert sources == {f"medallion/{file.name}": file.read_bytes() for file in s3_classes.SOURCES}


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("javac"), reason="there is no compiler")
def test_committed_classes_are_compiled_from_the_sources() -> None:
    with ZipFile(S3_CLASSES) as jar:
        committed = {name: jar.read(name) for name in jar.namelist()}
    assert committed == s3_classes.compiled()


@pytest.fixture
def table(bucket: Bucket) -> str:
    return bucket.url("silver/orders")


def append(spark: SparkSession, path: str, *numbers: int) -> None:
    rows = spark.createDataFrame([(number,) for number in numbers], "id long")
    rows.write.format("delta").mode("append").save(path)


def options(bucket: Bucket) -> dict[str, str]:
    """Return the options with which delta-rs reaches the server without the proxy."""
    return {**bucket.server.environment(), "AWS_ALLOW_HTTP": "true"}


def append_by_delta_rs(bucket: Bucket, path: str, number: int) -> None:
    rows = pa.table({"id": pa.array([number], pa.int64())})
    deltalake.write_deltalake(path, rows, mode="append", storage_options=options(bucket))


def rows_and_version(bucket: Bucket, path: str) -> tuple[list[int], int]:
    delta_table = deltalake.DeltaTable(path, storage_options=options(bucket))
    return sorted(delta_table.to_pyarrow_table()["id"].to_pylist()), delta_table.version()


def test_commit_of_another_engine_is_kept(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket, table: str
) -> None:
    append(s3_spark, table, 1)
    with proxy.inject(held(lambda: append_by_delta_rs(bucket, table, 2)), "PUT", COMMIT) as hits:
        append(s3_spark, table, 3)
    assert [hit.key[-7:] for hit in hits] == ["01.json"]
    assert rows_and_version(bucket, table) == ([1, 2, 3], 2)


@pytest.mark.parametrize("fault", [lost_answer(), lost_answer(500), refused(503)])
def test_commit_is_written_once_by_several_requests(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket, table: str, fault: Fault
) -> None:
    append(s3_spark, table, 1)
    with proxy.inject(fault, "PUT", COMMIT) as hits:
        append(s3_spark, table, 2)
    assert len(hits) == 1
    assert rows_and_version(bucket, table) == ([1, 2], 1)


def test_refused_commit_is_an_error(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket, table: str
) -> None:
    append(s3_spark, table, 1)
    with (
        proxy.inject(refused(403), "PUT", COMMIT, times=math.inf),
        pytest.raises(Exception, match="403"),
    ):
        append(s3_spark, table, 2)
    assert rows_and_version(bucket, table) == ([1], 0)


def stream(spark: SparkSession, bucket: Bucket, is_stateful: bool = False) -> None:
    """Copy the new rows of `bronze` to `silver`; with state, only the first one of each number."""
    rows = spark.readStream.format("delta").load(bucket.url("bronze"))
    query = (
        (rows.dropDuplicates(["id"]) if is_stateful else rows)
        .writeStream.format("delta")
        .option("checkpointLocation", bucket.url("_checkpoints/silver"))
        .trigger(availableNow=True)
        .start(bucket.url("silver"))
    )
    query.awaitTermination()


@pytest.mark.usefixtures("production_streams")
def test_stream_keeps_state_on_s3(s3_spark: SparkSession, bucket: Bucket) -> None:
    """Also after an attempt that failed before it wrote state: its folders have markers."""
    jvm: Any = s3_spark._jvm
    state = jvm.org.apache.hadoop.fs.Path(bucket.url("_checkpoints/silver/state/0/0"))
    state.getFileSystem(s3_spark.sparkContext._jsc.hadoopConfiguration()).mkdirs(state)
    for numbers in ([1, 2], [2, 3]):
        append(s3_spark, bucket.url("bronze"), *numbers)
        stream(s3_spark, bucket, is_stateful=True)
    assert rows_and_version(bucket, bucket.url("silver")) == ([1, 2, 3], 1)
    checkpoint = bucket.keys("_checkpoints/silver/")
    assert any("/state/0/0/" in key for key in checkpoint)
    assert {"_checkpoints/silver/offsets/1", "_checkpoints/silver/commits/1"} <= {*checkpoint}


FAULTS = [
    [(lost_answer(), OFFSETS, False), (refused(403), COMMITS, True)],
    pytest.param(
        [(lost_answer(500), COMMITS, False), (refused(403), OFFSETS, True)], marks=pytest.mark.slow
    ),
]


@pytest.mark.parametrize("faults", FAULTS, ids=["quick", "others"])
def test_faults_of_checkpoints_lose_no_row(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket, faults: list[tuple[Fault, str, bool]]
) -> None:
    """A refused plan or commit of a batch fails the query, and the next run repeats the batch."""
    append(s3_spark, bucket.url("bronze"), 0)
    stream(s3_spark, bucket)
    for number, (fault, key, is_failure) in enumerate(faults, 1):
        append(s3_spark, bucket.url("bronze"), number)
        has_failed = False
        with proxy.inject(fault, "PUT", key) as hits:
            try:
                stream(s3_spark, bucket)
            except PySparkException:
                has_failed = True
        assert (len(hits), has_failed) == (1, is_failure), key
        if has_failed:
            stream(s3_spark, bucket)
        assert rows_and_version(bucket, bucket.url("silver"))[0] == [*range(number + 1)]


def test_plan_of_another_query_is_kept(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket
) -> None:
    """A query that was paused while another one took over its checkpoint must not go on."""
    append(s3_spark, bucket.url("bronze"), 1)
    stream(s3_spark, bucket)
    append(s3_spark, bucket.url("bronze"), 2)
    plan = "_checkpoints/silver/offsets/1"
    other = held(lambda: bucket.write(plan, b"of another query"))
    with (
        proxy.inject(other, "PUT", OFFSETS),
        pytest.raises(PySparkException, match="concurrently using"),
    ):
        stream(s3_spark, bucket)
    assert bucket.read(plan) == b"of another query"
    assert rows_and_version(bucket, bucket.url("silver"))[0] == [1]


def test_small_objects_take_one_request(
    s3_spark: SparkSession, proxy: FaultProxy, bucket: Bucket
) -> None:
    """What Spark asks before it reads is answered with the content or the listing itself."""
    java: Any = s3_spark._jvm
    log, large = "_checkpoints/q/offsets", "_checkpoints/q/state/0/0/1.zip"
    data = f"silver/t/part-00000-{uuid.uuid4()}.snappy.parquet"
    contents = {f"{log}/0": b"zero", large: b"x" * (2**20 + 1), data: b"rows"}
    for key, content in contents.items():
        bucket.write(key, content)
    hadoop = s3_spark.sparkContext._jsc.hadoopConfiguration()
    files = java.org.apache.hadoop.fs.FileSystem.get(java.java.net.URI(bucket.url()), hadoop)
    assert files.getClass().getName() == "medallion.S3FileSystem"

    def path(key: str) -> Any:
        return java.org.apache.hadoop.fs.Path(bucket.url(key))

    def read(key: str) -> bytes:
        stream = files.open(path(key))
        content = java.org.apache.commons.io.IOUtils.toByteArray(stream)
        stream.close()
        return bytes(content)

    def names() -> list[str]:
        return [each.getPath().getName() for each in files.listStatus(path(log))]

    def count(*calls: Callable[[], object]) -> dict[str, int]:
        proxy.requests.clear()
        for call in calls:
            call()
        return dict(proxy.count())

    assert count(lambda: files.exists(path(log)), names) == {"LIST": 1}
    assert count(names, names) == {"LIST": 2}
    assert count(lambda: files.exists(path(f"{log}/0")), lambda: read(f"{log}/0")) == {"GET": 1}
    assert count(lambda: files.exists(path(f"{log}/1"))) == {"GET": 1}
    assert count(*[lambda: files.getFileStatus(path(data))] * 3) == {"HEAD": 1}
    assert {key: read(key) for key in contents} == contents
    # Its own writes are seen at once, as is what another one deletes.
    assert files.exists(path(log))
    files.createFile(path(f"{log}/1")).build().close()
    assert names() == ["0", "1"]
    assert files.exists(path(f"{log}/0"))
    files.delete(path(f"{log}/0"), False)
    assert not files.exists(path(f"{log}/0"))
    with proxy.inject(refused(503), "GET", "offsets/1", times=3) as hits:
        assert read(f"{log}/1") == b""
    assert len(hits) == 3


def test_secret_is_in_no_setting_of_spark(s3_spark: SparkSession, bucket: Bucket) -> None:
    append(s3_spark, bucket.url("bronze"), 1)
    java = s3_spark._jvm
    assert java is not None
    process = java.java.lang.ProcessHandle.current().pid()
    command_line = Path(f"/proc/{process}/cmdline").read_bytes().decode()
    assert "S3LogStore" in command_line, "it has the settings"
    shown = [command_line, s3_spark.sparkContext.getConf().toDebugString()]
    shown += [str(s3_spark.sql("SET -v").collect())]
    assert not any(bucket.server.secret in text for text in shown)
