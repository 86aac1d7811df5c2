"""Queries that stay on: those that wait, and those that have died."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medallion.config.loader import load
from medallion.pipeline.continuous import Stream
from tests.support import PROJECT


class Waiting:
    """A flow whose source has no schema; the second time it is asked, it has one."""

    name, run, is_gated = "silver.a", None, False

    def __init__(self) -> None:
        self.asked = 0

    def is_waiting(self) -> bool:
        self.asked += 1
        return self.asked < 2

    def poll(self) -> None: ...


def test_a_layer_whose_queries_all_wait_for_a_schema_stays_on() -> None:
    flow, begun = Waiting(), 0

    def begin(*_: Any) -> None:
        nonlocal begun
        begun += not flow.is_waiting()

    pipeline: Any = SimpleNamespace(
        flows=lambda _: [flow], begin=begin, settle=lambda _: [], say=print
    )
    stream = Stream(pipeline, ["silver"], "1 second")
    stream.start()
    assert (begun, stream.is_on) == (0, True)
    stream.poll()
    assert begun == 1


class Dying:
    """A flow whose query has died after batch 4; a new one dies after the batch that it is told."""

    name, is_gated = "silver.a", False

    def __init__(self, last_batch: int) -> None:
        self.run = self.ran = SimpleNamespace(
            is_active=False,
            is_lost=True,
            is_given_up=False,
            last_batch=last_batch,
            batches={},
            collect=lambda: None,
            end=lambda: None,
            error=lambda: "its thread in Spark has died",
        )

    def is_waiting(self) -> bool:
        return False

    def poll(self) -> None: ...


def test_a_query_that_has_died_is_started_anew_as_long_as_it_gets_on() -> None:
    said: list[str] = []
    left = [Dying(5), Dying(5)]
    pipeline: Any = SimpleNamespace(
        config=load({}, PROJECT),
        runs=None,
        flows=lambda _: [Dying(4)],
        flow=lambda _: left.pop(0),
        begin=lambda *_: True,
        settle=lambda _: [],
        say=said.append,
    )
    stream = Stream(pipeline, ["silver"], "1 hour")
    stream.start()
    for _ in range(4):
        stream.look()
    anew = "  silver.a is started anew: its thread in Spark has died"
    stopped = "silver.a stopped: its thread in Spark has died"
    assert said == [anew, anew, f"{stopped}; the others go on"]
    assert stream.failures == {"silver.a": stopped}


@pytest.mark.parametrize(
    "error",
    [
        "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:",
        "[DELTA_METADATA_CHANGED] The metadata of the table has been changed by another update.",
    ],
)
def test_a_query_that_only_has_to_be_started_again_has_not_failed(error: str) -> None:
    """It ends between the last look and the stop, and the next run goes on (seen with --dirty)."""
    flow: Any = Dying(4)
    flow.run.stop = lambda: None
    flow.run.error = lambda: error
    pipeline: Any = SimpleNamespace(
        config=load({}, PROJECT),
        flows=lambda _: [flow],
        begin=lambda *_: True,
        settle=lambda _: [],
        say=print,
    )
    stream = Stream(pipeline, ["silver"], "1 hour")
    stream.start()
    stream.stop()
    assert stream.failures == {}
