"""The composition root: locks, session and pipeline put together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from medallion.config.model import Config
from medallion.lakehouse import lock
from medallion.lakehouse.text import Say
from medallion.pipeline import swap
from medallion.pipeline.pipeline import Pipeline
from medallion.spark.session import session_of_command
from medallion.spark.workload import Work


@contextmanager
def open_pipeline(
    config: Config,
    command: str,
    layers: Sequence[str],
    say: Say,
    debug: bool = False,
    work: Work = Work.ENDLESS,
) -> Iterator[Pipeline]:
    """A pipeline on a session of its own, with the layers' locks held.

    Args:
        config: of the lakehouse.
        command: what people have asked for.
        layers: those that are written.
        say: tells of progress.
        debug: what fails is told with its stack trace.
        work: how much there is to do.

    Raises:
        UsageError: another process writes one of the layers.
        ConfigError: Spark's settings cannot be read.
        KeyboardInterrupt: Ctrl-C or SIGTERM has come, and what was on has been stopped.
    """
    with lock.hold(config.layout, layers, command):
        new = " (a new lakehouse)" if config.layout.is_new else ""
        say(f"medallion {command} on {config.layout.root}{new}")
        started = time.monotonic()
        with session_of_command(config, f"medallion {command}", debug, work) as spark:
            say(f"session   {time.monotonic() - started:5.1f} s  (Spark {spark.version})")
            pipeline = Pipeline(spark, config, command, say)
            if "gold" in layers:
                swap.end_swap(pipeline, layers)
            yield pipeline
