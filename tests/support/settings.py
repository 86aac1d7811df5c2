"""Settings of the shared Spark session for one test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

EVICTING_STREAMS = {"spark.sql.streaming.noDataMicroBatches.enabled": "true"}
"""Batches without rows, which evict state, as in production: rows are late only after one."""


@contextmanager
def changed_settings(spark: SparkSession, settings: Mapping[str, str | None]) -> Iterator[None]:
    """Change settings, and restore them at the end.

    Args:
        settings: new values by name; None for Spark's default.
    """
    before = {name: spark.conf.get(name, None) for name in settings}
    _apply(spark, settings)
    try:
        yield
    finally:
        _apply(spark, before)


def _apply(spark: SparkSession, settings: Mapping[str, str | None]) -> None:
    for name, value in settings.items():
        if value is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, value)
