"""Shared fixtures: one Spark session for the test run, and a separate lakehouse for each test."""

from __future__ import annotations

import math
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.spark.session import spark_session
from medallion.spark.settings import (
    FIRST_COMPILER,
    INTERPRETED,
    S3_FIXED,
    session_settings,
)
from tests.support import PROJECT, durations, s3_server
from tests.support.command import Cli
from tests.support.fault_proxy import FaultProxy, proxying
from tests.support.home import Home
from tests.support.java import write_files_without_processes
from tests.support.lakehouse import Lakehouse
from tests.support.permissions import obey_permissions
from tests.support.s3_server import Bucket, S3Server
from tests.support.settings import EVICTING_STREAMS, changed_settings

# Use only Java's first compiler: most code of a test runs once, so the second never pays off. Use
# one logger context per process: by default, each of Spark's many loggers walks up the stack to
# find its context. Fix the heap's sizes, because each step of growth costs a full collection.
JAVA = (
    f"-XX:+UseSerialGC -Xms2g -Xmn600m -XX:MetaspaceSize=512m {FIRST_COMPILER}"
    " -Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
)
# Tests run many small tables, plans and batches in one session; production runs few large ones.
# Tests of the command line run separate processes with production settings.
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": JAVA,
    **INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # One task for a table of a few files, instead of one for each core.
    "spark.default.parallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Two workers on two cores: a core each.
    "spark.master": "local[1]",
}

# For queries of a few rows: a state store in memory, no batches that only evict state, and no
# checksums of checkpoint files. `production_streams` is without these.
QUICK_STREAMS = {
    **dict.fromkeys(EVICTING_STREAMS, "false"),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}
_QUERIES_ON_S3 = {name: value for name, value in S3_FIXED.items() if name.startswith("spark.sql.")}
# What only the start of Spark can set; `s3_spark` sets the rest.
START_ON_S3 = {name: value for name, value in S3_FIXED.items() if name not in _QUERIES_ON_S3}
started: Counter[str] = Counter()
"""What the current test has started."""

# PySpark takes a main module without `__file__` for a doctest, and exits if it is imported without
# PyArrow; pytest-xdist's workers have no `__file__`.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)


# Moderately many and always the same examples, so that every run of the suite finds the same
# failures. The "long" profile draws new ones; the header of the run reports the seed.
settings.register_profile(
    "moderate",
    max_examples=4,  # each has many lines or files
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking would run hundreds of Spark jobs
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.register_profile(
    "long", settings.get_profile("moderate"), max_examples=40, derandomize=False
)
settings.load_profile("moderate")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed here, so that all workers get it, and obey permissions where tests run."""
    if config.getoption("--hypothesis-profile") == "long" and not seed(config):
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        obey_permissions()
        sys.addaudithook(partial(durations.count_processes, started))


def pytest_report_header(config: pytest.Config) -> str:
    return f"--hypothesis-seed={seed(config)}" if seed(config) else "examples: always the same"


def seed(config: pytest.Config) -> str | None:
    value = config.getoption("--hypothesis-seed")
    return None if value is None else str(value)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that start Spark, and start the longest files first.

    Two workers then finish at about the same time. New files come first: they may be long.
    """
    seconds = durations.read_seconds(is_slow=config.option.markexpr == "slow")
    items.sort(key=lambda item: -seconds.get(durations.file_of(item.nodeid), math.inf))
    for item in items:
        if {"spark", "cli"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    started.clear()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Leave the kind of the test in the report, for `make test-durations`."""
    uses_spark = "spark" in getattr(item, "fixturenames", ())
    item.user_properties.append(("kind", durations.kind_of(started, uses_spark)))


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    # PySpark returns timestamps in Python's local zone; commands set it, too.
    os.environ["TZ"] = "UTC"
    time.tzset()
    settings = {**SETTINGS, **QUICK_STREAMS}
    with pytest.MonkeyPatch.context() as environment:
        if s3_server.is_installed():
            settings |= START_ON_S3
            server: S3Server = request.getfixturevalue("s3_server")
            for name, value in server.environment().items():
                environment.setenv(name, value)
        session = spark_session(load({}, PROJECT), "tests", more=settings)
    write_files_without_processes(session)
    with durations.counting_queries(started):
        yield session
    session.stop()


@pytest.fixture(scope="module")
def production_streams(spark: SparkSession) -> Iterator[None]:
    """Run queries as in production: batches without rows evict state, which RocksDB holds.

    In force until the module ends. Its own fixtures that run queries must request this one, too.
    """
    production = session_settings(load({}, PROJECT))
    with changed_settings(spark, {name: production.get(name) for name in QUICK_STREAMS}):
        yield


@pytest.fixture
def lakehouse(spark: SparkSession, tmp_path: Path) -> Lakehouse:
    return Lakehouse(spark, tmp_path / "lakehouse")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Return the directories and ledger of one source, without Spark."""
    return Home(tmp_path / "lakehouse")


@pytest.fixture
def closable_home(home: Home) -> Iterator[Home]:
    """Yield a lakehouse whose directories and files may be closed to the user."""
    yield home
    for path, below, _ in os.walk(home.layout.root):
        for name in below:
            Path(path, name).chmod(0o755)


@pytest.fixture(scope="session", name="s3_server")
def running_s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server.running(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return an empty bucket; the environment has the server's address and credentials."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    return s3_server.create_bucket(f"bucket-{secrets.token_hex(4)}")


@pytest.fixture
def proxy(
    s3_server: S3Server, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """Yield a proxy, to which the environment leads."""
    with proxying(s3_server) as fault_proxy:
        for name, value in fault_proxy.environment.items():
            monkeypatch.setenv(name, value)
        yield fault_proxy


@pytest.fixture
def s3_spark(
    spark: SparkSession, proxy: FaultProxy, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkSession]:
    """Yield the session with the settings of a lakehouse on S3, which uses the proxy."""
    monkeypatch.setattr("medallion.spark.settings.uses_store", lambda *_: True)
    production = session_settings(load({}, PROJECT))
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    for name, value in production.items():
        if name.startswith("spark.hadoop.fs.s3a."):
            hadoop.set(
                f"fs.s3a.bucket.{bucket.name}.{name.removeprefix('spark.hadoop.fs.s3a.')}", value
            )
    with changed_settings(spark, _QUERIES_ON_S3):
        yield spark
    jvm: Any = spark._jvm
    jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(bucket.url()), hadoop).close()


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(Lakehouse(None, tmp_path / "lakehouse"))
