"""A lakehouse after the first of three runs, created once and copied; and a Kafka broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.broker import Broker, running
from tests.support.lakehouse import Lakehouse
from tests.support.three_nights import FIRST, NAME, RECORDINGS


@pytest.fixture(scope="session")
def after_first_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    folder = tmp_path_factory.mktemp("first")
    lakehouse = Lakehouse(spark, folder / "lakehouse")
    lakehouse.configure(folder, RECORDINGS)
    lakehouse.run_each(NAME, FIRST)
    return lakehouse


@pytest.fixture
def filled(after_first_run: Lakehouse, tmp_path: Path) -> Lakehouse:
    """Return a copy of a lakehouse after its first run."""
    return after_first_run.copy(tmp_path / "filled")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started_broker:
        yield started_broker
