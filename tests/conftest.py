"""One Spark session for the whole test run, and a lakehouse of its own for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ingesting import Home
from pyspark.sql import SparkSession
from support import PROJECT, Cli, Lakehouse

from medallion.config.loader import load
from medallion.spark.session import spark_session

# PySpark takes a main module without a file for a doctest, and ends the process when it is imported
# without PyArrow; pytest-xdist's workers have such a one.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session(load({}, PROJECT), "tests")
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
