"""One Spark session for the whole test run, and a lakehouse of its own for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.spark.session import spark_session
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse

# Many small tables, plans and batches in one session, where production has few large ones. Tests
# of the command line are processes of their own, with production's settings.
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:-DontCompileHugeMethods",
    # The code that Spark makes for a query is compiled once, and not once more for each test.
    "spark.sql.codegen.cache.maxEntries": "5000",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
    # The default for a folder of this machine starts a process for each file that it writes.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
}

# PySpark takes a main module without a file for a doctest, and ends the process when it is imported
# without PyArrow; pytest-xdist's workers have such a one.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(load({}, PROJECT), "tests", more=SETTINGS)
    yield session
    session.stop()


@pytest.fixture
def lakehouse(spark: SparkSession, tmp_path: Path) -> Lakehouse:
    return Lakehouse(spark, tmp_path / "lakehouse")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A source's folders and ledger, without Spark."""
    return Home(tmp_path / "lakehouse")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "lakehouse")
