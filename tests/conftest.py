"""One Spark session for the whole test run, and a lakehouse of its own for each test."""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from pyspark.sql import SparkSession

from medallion.config.loader import load
from medallion.spark.session import FIRST_COMPILER, INTERPRETED, spark_session
from tests.support import PROJECT
from tests.support.command import Cli
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse

# The first compiler alone: most of what a test runs, it runs once, and the second never pays. And
# one logger context a process: by default, each of Spark's many loggers walks up the stack to find
# out whose it is. Memory that grows step by step is collected as a whole at each step.
JAVA = (
    f"-XX:+UseSerialGC -Xms2g -Xmn600m -XX:MetaspaceSize=512m {FIRST_COMPILER}"
    " -Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.BasicContextSelector"
)
# Many small tables, plans and batches in one session, where production has few large ones. Tests
# of the command line are processes of their own, with production's settings.
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": JAVA,
    **INTERPRETED,
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # A table of a few files is one task, and not one for each core.
    "spark.default.parallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.databricks.delta.snapshotPartitions": "1",
}

NOBODY = 65534

# PySpark takes a main module without a file for a doctest, and ends the process when it is imported
# without PyArrow; pytest-xdist's workers have such a one.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)


# Always the same examples, and moderately many: what they find is found by everybody who runs the
# suite. The long ones are others each time; their seed stands in the header of the run.
settings.register_profile(
    "moderate",
    max_examples=4,  # each of many lines or files
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],  # to shrink would be hundreds of Spark's jobs
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
settings.register_profile(
    "long", settings.get_profile("moderate"), max_examples=40, derandomize=False
)
settings.load_profile("moderate")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed here, where all workers get it."""
    if config.getoption("--hypothesis-profile") == "long" and not seed(config):
        config.option.hypothesis_seed = str(secrets.randbelow(2**32))


def pytest_report_header(config: pytest.Config) -> str:
    return f"--hypothesis-seed={seed(config)}" if seed(config) else "examples: always the same"


def seed(config: pytest.Config) -> str | None:
    found = config.getoption("--hypothesis-seed")
    return None if found is None else str(found)


# Minutes each, so they come first: of two workers, neither is to be left with one at the end.
LONG = ("processes", "refresh", "recovery", "recount", "nights", "late", "gold_kinds", "held_gold")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts Spark: `pytest -m "not spark"` is all the rest, in a minute."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") not in LONG)
    for item in items:
        if {"spark", "cli"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("spark")


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
def nobodys() -> Iterator[Home]:
    """A lakehouse of a user for whom permissions count, as they do not for root."""
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody else")
    root = Path(tempfile.mkdtemp())
    root.chmod(0o777)
    os.seteuid(NOBODY)
    try:
        yield Home(root / "lakehouse")
    finally:
        os.seteuid(0)
        shutil.rmtree(root)


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path / "lakehouse")
