"""Queries that are on and get nowhere."""

from __future__ import annotations

import itertools
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.spark import query, signals
from medallion.spark.errors import StreamError
from medallion.spark.query import Run, Sink
from medallion.spark.watch import Watch
from medallion.storage import clock
from medallion.streams import until_stream_is_ready


def test_a_query_for_which_nothing_happens_is_told_every_five_minutes() -> None:
    said: list[str] = []
    now = [0.0]
    signs = {"silver.a": 0, "silver.b": 0}

    def a_run(name: str) -> Any:
        sign = lambda: signs[name]  # noqa: E731
        return SimpleNamespace(
            name=name, activity=sign, is_waiting=False, waits_for_past_time=False
        )

    runs = [a_run(name) for name in signs]
    watch = Watch(said.append, 300, lambda: now[0])
    for now[0] in range(0, 605, 5):
        signs["silver.b"] += 1
        watch.check_progress(runs)
    assert [line.partition(":")[0] for line in said] == ["silver.a", "silver.a"]
    signs["silver.a"] = 1
    for now[0] in range(605, 900, 5):
        watch.check_progress(runs)
    assert len(said) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_waits_stops_the_queries_at_a_signal(number: signal.Signals) -> None:
    """That they have been asked to is all that the signal does: what was cut in two would tell."""
    stopped: list[str] = []

    def a_run(name: str) -> Any:
        return SimpleNamespace(
            is_active=True, collect=lambda: None, stop=lambda: stopped.append(name)
        )

    with signals.defer_signals() as end:
        signals.raise_if_requested()
        signal.raise_signal(number)
        assert end.is_asked_for
        with pytest.raises(KeyboardInterrupt) as raised:
            Watch(print).await_all([a_run("silver.a"), a_run("silver.b")])
    assert raised.value.args == (number,)
    assert stopped == ["silver.a", "silver.b"]
    signals.raise_if_requested()  # beyond it nothing has come


def test_a_query_that_hangs_is_given_up(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread waits for another one, which does not come; Spark would wait for ever. Or it waits
    for a time that the clock, which was put back, is to say again."""
    entered = threading.Event()
    latch = spark.sparkContext._jvm.java.util.concurrent.CountDownLatch(1)  # type: ignore[union-attr]
    rows = spark.readStream.format("rate").load()

    def hangs(*_: Any) -> None:
        entered.set()
        getattr(latch, "await")()

    def begun(write: Callable[..., None]) -> Run:
        how, checkpoint = {"processingTime": "1 second"}, tmp_path / "checkpoint"
        return query.start_query(rows.writeStream, "rate.a", checkpoint, how, Sink(write))

    ticks = itertools.count(step=61)
    watch = Watch(print, 300, lambda: next(ticks) if entered.is_set() else 0.0)
    run = begun(hangs)
    told = r"rate\.a: no progress for 5 minutes and no running task: the query was stopped$"
    with pytest.raises(StreamError, match=told):
        watch.await_all([run])
    assert not run.cannot_stop
    again = begun(lambda *_: None)  # under the same name
    assert again.is_active
    until_stream_is_ready(again.query)
    patient = Watch(print, math.inf, itertools.count(step=11).__next__)
    patient.check_progress([again])
    assert again.is_active
    monkeypatch.setattr(clock, "now_micros", lambda: time.time_ns() // 1000 - 2 * 3600 * 1_000_000)
    deadline = time.monotonic() + 60
    while again.is_active:  # it may be in a batch, which is left to end
        assert time.monotonic() < deadline
        patient.check_progress([again])
    assert again.error() == "the clock was set back"
    again.needs_restart = True
    assert again.error() is None
