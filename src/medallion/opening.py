"""The composition root: locks, session and pipeline put together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from medallion import lock
from medallion.config import Config
from medallion.pipeline import Pipeline, Say
from medallion.session import spark_session


@contextmanager
def open_pipeline(
    config: Config, command: str, layers: Sequence[str], say: Say, debug: bool = False
) -> Iterator[Pipeline]:
    """A pipeline on a session of its own, with the layers' locks held.

    Raises:
        UsageError: another process writes one of the layers.
        ConfigError: Spark's settings cannot be read.
    """
    with lock.hold(config.layout, layers, command):
        say(f"medallion {command} on {config.layout.root}")
        started = time.monotonic()
        spark = spark_session(config, f"medallion {command}", debug)
        say(f"session   {time.monotonic() - started:5.1f} s  (Spark {spark.version})")
        try:
            yield Pipeline(spark, config, command, say)
        finally:
            spark.stop()
