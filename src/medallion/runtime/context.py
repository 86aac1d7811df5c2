"""The composition root: locks, session and pipeline put together."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from medallion.config.model import Config
from medallion.errors import MedallionError
from medallion.runtime import swap
from medallion.runtime.pipeline import Pipeline
from medallion.spark.session import Workload, session_of_command
from medallion.storage import clock, locks
from medallion.storage.text import Reporter

_DAY = 24 * 3600 * 1_000_000  # that a sender's clock may be ahead of ours


@contextmanager
def open_pipeline(
    config: Config,
    command: str,
    layers: Sequence[str],
    say: Reporter,
    debug: bool = False,
    work: Workload = Workload.ENDLESS,
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
    with locks.lock_layers(config.layout, layers, command):
        # A disk that is not mounted looks like it, too.
        new = "" if config.layout.tables() else " (a new lakehouse)"
        say(f"medallion {command} on {config.layout.root}{new}")
        started = time.monotonic()
        with session_of_command(config, f"medallion {command}", debug, work) as spark:
            say(f"session   {time.monotonic() - started:5.1f} s  (Spark {spark.version})")
            pipeline = Pipeline(spark, config, command, say)
            _tell_clock(pipeline)
            if "gold" in layers:
                swap.end_swap(pipeline, layers)
            yield pipeline


def _tell_clock(pipeline: Pipeline) -> None:
    """Say so where the clock is behind the record: by it rows are judged to be of times to come."""
    with suppress(MedallionError):  # whoever needs the record tells
        begun = min((run.started_at for run in pipeline.runs.run_state.last.values()), default=0)
        now = clock.now_micros()
        if begun > now + _DAY:
            pipeline.say(
                f"clock     it says {clock.format_time(now)}, and every query's last run began "
                f"at {clock.format_time(begun)} or later: if it is behind, "
                "rows of today go to quarantine"
            )
