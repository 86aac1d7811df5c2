"""`medallion setup`: jars and Java for Spark, in the cache of the user."""

from __future__ import annotations

from collections.abc import Collection
from importlib.util import find_spec

from medallion.install import java
from medallion.install.fetch import fetch_jars
from medallion.install.jars import Extra, cache_dir, missing_jars
from medallion.storage.text import Reporter


def set_up(extras: Collection[Extra], report: Reporter) -> None:
    """Fetch what is missing.

    Raises:
        UsageError: a jar or Java cannot be fetched.
    """
    if java.find_java() is None:
        java.install_java(report)
    java.use_java()
    if missing := missing_jars(*extras):
        fetch_jars(missing, cache_dir() / "jars", report)
    if Extra.KAFKA in extras and find_spec("confluent_kafka") is None:
        report("Kafka also needs a Python package: pip install 'medallion[kafka]'")
