"""Expressions run with Spark's generated code, as for large landings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from medallion.spark.settings import INTERPRETED

# Spark's defaults.
COMPILED = {"spark.sql.codegen.factoryMode": "FALLBACK", "spark.sql.codegen.wholeStage": "true"}
COMPILED |= {"spark.sql.subexpressionElimination.enabled": "true"}


@pytest.fixture
def interpreted() -> None:
    """Keep code generation off: compiling takes most of the time of a test with few lines."""


@pytest.fixture(autouse=True)
def compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Enable code generation; all other tests run without it, as small nightly runs do."""
    if "spark" not in request.fixturenames or "interpreted" in request.fixturenames:
        yield
        return
    spark: SparkSession = request.getfixturevalue("spark")
    for key, value in COMPILED.items():
        spark.conf.set(key, value)
    yield
    for key, value in INTERPRETED.items():
        spark.conf.set(key, value)
