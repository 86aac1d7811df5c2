"""A lakehouse after the first of three nights, made once and copied; and a broker of Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.broker import Broker, running
from tests.support.lakehouse import Lakehouse
from tests.support.three_nights import FIRST


@pytest.fixture(scope="session")
def first_night(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lakehouse:
    lakehouse = Lakehouse(spark, tmp_path_factory.mktemp("first") / "lakehouse")
    lakehouse.keep_only("activity", "device_totals")
    lakehouse.run_each("activity", FIRST)
    return lakehouse


@pytest.fixture
def filled(first_night: Lakehouse, tmp_path: Path) -> Lakehouse:
    """A copy of a lakehouse after its first night, to go on from."""
    return first_night.copy(tmp_path / "filled")


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running(tmp_path_factory.mktemp("broker")) as started:
        yield started
