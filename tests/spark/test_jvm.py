"""Errors of Java that end a thread which somebody may be waiting for."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from medallion.spark.errors import SPARK_ERRORS
from medallion.spark.jvm import UncaughtErrorHandler


def an_error(kind: str) -> Any:
    return SimpleNamespace(
        toString=lambda: kind, getClass=lambda: SimpleNamespace(getName=lambda: kind)
    )


def a_thread(name: str) -> Any:
    return SimpleNamespace(getName=lambda: name)


def test_who_waits_for_a_job_whose_thread_has_died_is_told(spark: SparkSession) -> None:
    """A task result nested too deep ends the thread that reads it: the job would never end."""
    raised: list[Exception] = []

    def wait() -> None:
        try:
            spark.range(10**16).selectExpr("max(id)").collect()  # which a sum would overflow
        except SPARK_ERRORS as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    tracker = spark.sparkContext.statusTracker()
    while not tracker.getActiveJobsIds():
        assert waiting.is_alive(), raised
        time.sleep(0.05)
    uncaught = UncaughtErrorHandler(spark.sparkContext)
    # Neither of these is one that a job waits for.
    name = "stream execution thread for silver.event"
    uncaught.uncaughtException(a_thread(name), an_error("java.lang.StackOverflowError"))
    uncaught.uncaughtException(a_thread("any"), an_error("java.io.IOException"))
    assert tracker.getActiveJobsIds()
    uncaught.uncaughtException(
        a_thread("task-result-getter-0"), an_error("java.lang.StackOverflowError")
    )
    waiting.join(60)
    assert len(raised) == 1
    assert spark.range(3).count() == 3
