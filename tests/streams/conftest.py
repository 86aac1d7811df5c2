"""Fixtures of stream tests; streams are stopped after each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.doors import Doors


@pytest.fixture(autouse=True)
def _stop_streams(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "spark" in request.fixturenames:
        for query in request.getfixturevalue("spark").streams.active:
            query.stop()


@pytest.fixture
def doors(spark: SparkSession, tmp_path: Path) -> Doors:
    folder = tmp_path / "doors"
    folder.mkdir()
    reader = spark.readStream.schema("at timestamp, door string").option("maxFilesPerTrigger", 1)
    return Doors(reader.json(str(folder)), folder)
