"""Queries that stay on: those that wait, and those that have stopped."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from medallion.config.loader import load
from medallion.errors import MedallionError, UnreachableError
from medallion.runtime import recorder
from medallion.runtime.stream import Stream
from medallion.spark.errors import Failure, classify
from tests.support import PROJECT


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """What recording what queries did answers, in `failures`; none unless a test says so."""
    answer = SimpleNamespace(failures=dict[str, MedallionError]())

    def record_flows(*_: Any) -> Any:
        if isinstance(answer.failures, Exception):
            raise answer.failures
        return answer.failures

    monkeypatch.setattr(recorder, "record_flows", record_flows)
    monkeypatch.setattr(recorder, "record_failed_start", lambda *_: [])
    return answer


class Waiting:
    """A flow whose source has no schema; the second time it is asked, it has one."""

    name, run, upstream = "silver.a", None, ()

    def __init__(self) -> None:
        self.asked = 0

    def unknown_schema_reason(self) -> str | None:
        self.asked += 1
        return "no file yet" if self.asked < 2 else None

    def poll(self) -> bool:
        return True


def test_a_stream_waits_for_schemas() -> None:
    flow, started = Waiting(), 0

    def start_flow(*_: Any) -> None:
        nonlocal started
        started += flow.unknown_schema_reason() is None

    pipeline: Any = SimpleNamespace(
        flows=lambda _: [flow],
        flow=lambda _: flow,
        start_flow=start_flow,
        unblocked_flows=list,
        report=print,
        is_alive=True,
        report_lost_workers=lambda: None,
        config=None,
        runs=None,
    )
    stream = Stream(pipeline, ["silver"], "1 second")
    stream.start()
    assert started == 0
    stream.poll()
    assert started == 1
    for _ in range(2):  # there is no query still: it is not asked at every look
        stream.poll()
    assert started == 1


class Ended:
    """A flow whose query has ended; by an error, or because it had all that there was to do."""

    name = "silver.a"

    def __init__(self, error: str | Failure | None) -> None:
        self.upstream: tuple[str, ...] = ()
        self.upstream_paths: tuple[Path, ...] = ()
        self.run: Any
        self.run = self.started_run = SimpleNamespace(
            is_active=False,
            is_processing=False,
            last_batch=-1,
            batches={},
            has_done_batch=False,
            is_recorded=False,
            collect=lambda: None,
            end=lambda: None,
            failure=lambda: classify(PySparkException(error)) if isinstance(error, str) else error,
            error=lambda: error,
            activity=lambda: (),
        )

    def unknown_schema_reason(self) -> None:
        return None

    def poll(self) -> bool:
        return True


def stream_of(first: Any, others: list[Any], messages: list[str]) -> Stream:
    pipeline: Any = SimpleNamespace(
        config=load({}, PROJECT),
        runs=None,
        flows=lambda _: [first],
        flow=lambda _: others.pop(0),
        start_flow=lambda *_: True,
        unblocked_flows=list,
        is_alive=True,
        report_lost_workers=lambda: None,
        report=messages.append,
    )
    return Stream(pipeline, ["silver"], "1 hour")


def test_a_stopped_query_restarts_at_once_then_later() -> None:
    messages: list[str] = []
    stream = stream_of(Ended("the disk is full"), left := [Ended("the disk is full")], messages)
    stream.start()
    for _ in range(4):
        stream.step()
    stopped = "silver.a stopped: the disk is full"
    assert messages == [f"{stopped}; it is retried"]  # once
    assert stream.failures == {"silver.a": stopped}
    assert not left
    pipeline: Any = stream.pipeline
    pipeline.is_alive = False
    stream.stop()
    assert "start this again" in stream.failures["java"]


def test_a_query_with_a_batch_has_recovered() -> None:
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active = again.run.has_done_batch = True
    stream = stream_of(Ended("the disk is full"), [again], messages)
    stream.start()
    for _ in range(2):
        stream.step()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_a_query_has_recovered_after_a_minute() -> None:
    """It may have no batch to do for days."""
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(Ended("the disk is full"), [again], messages)
    stream.start()
    for _ in range(2):
        stream.step()
    assert stream.failures
    stream._queries[0]._started_at -= 61
    again.run.is_processing = True  # which may be the one that failed
    stream.step()
    assert stream.failures
    again.run.is_processing = False
    stream.step()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_a_query_can_recover_until_the_stream_ends() -> None:
    """The stream may end before the next step."""
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active, again.run.stop = True, lambda: None
    stream = stream_of(Ended("the disk is full"), [again], messages)
    stream.start()
    stream.step()
    again.run.has_done_batch = True
    stream.stop()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_a_query_restarts_with_the_current_rules() -> None:
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(Ended(None), [again], messages)
    stream.start()
    stream.step()
    assert messages == ["  silver.a restarts with the current rules"]
    assert stream.failures == {}


def test_an_unrecorded_batch_is_retried_with_pauses(
    recorded: SimpleNamespace,
) -> None:
    messages: list[str] = []
    stream = stream_of(Ended(None), [Ended(None)], messages)
    recorded.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(4):
        stream.step()
    assert messages == [
        "keys never came into silver",
        "silver.a stopped: keys never came into silver; it is retried",
    ]
    recorded.failures = {}  # the second one, when its turn comes
    assert stream.failures.keys() == {"silver.a"}


def test_a_query_waits_for_its_input_table(tmp_path: Path) -> None:
    early = Ended(None)
    early.run = None
    early.upstream, early.upstream_paths = ("silver.b",), (tmp_path / "silver/b",)
    stream = stream_of(early, [], [])
    stream.start()
    assert stream.failures == {}


def test_a_stream_waits_for_its_broker() -> None:
    messages: list[str] = []
    early, on = Ended(None), Ended(None)
    early.run, on.run.is_active = None, True
    stream = stream_of(early, [on], messages)
    answers: list[Any] = [UnreachableError("no Kafka broker answers."), True]

    def start_flow(*_: Any) -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    pipeline: Any = stream.pipeline
    pipeline.start_flow = start_flow
    stream.start()
    assert messages == ["no Kafka broker answers. It is retried."]
    assert stream.failures == {}
    stream.poll()
    assert not answers
    assert [flow.run for flow in stream._flows] == [on.run]


def test_a_failed_rebuild_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails as the stream starts."""
    messages, fails = list[str](), [True, False]
    left, again = Ended(None), Ended(None)
    left.name = again.name = "gold.a"
    left.run, again.run.is_active = None, True
    on = Ended(None)
    on.run.is_active = True
    stream = stream_of(on, [again], messages)
    pipeline: Any = stream.pipeline
    pipeline.flows = {"silver": [on], "gold": [left]}.__getitem__
    stream.layers = ["silver", "gold"]

    def rebuild(_: Any, flow: Any) -> None:
        if flow.name == "gold.a" and fails.pop(0):
            raise MedallionError("gold.a: the disk is full")

    monkeypatch.setattr("medallion.runtime.refresh.rebuild_if_pending", rebuild)
    stream.start()
    expected = "gold.a cannot start: the disk is full"
    assert messages == [f"{expected}; it is retried"]
    stream.poll()
    assert not fails
    assert [flow.run for flow in stream._flows] == [on.run, again.run]


def test_a_restart_without_a_batch_has_failed() -> None:
    """As where a table was overwritten with other columns: each start ends by the same error."""
    messages: list[str] = []
    error = "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:"
    stream = stream_of(Ended(error), [Ended(error), Ended(error)], messages)
    stream.start()
    for _ in range(5):
        stream.step()
    assert messages == [
        "  silver.a continues with new columns",
        f"silver.a stopped: {error}; it is retried",
    ]
    assert stream.failures.keys() == {"silver.a"}


def test_an_unrecorded_batch_is_no_recovery(recorded: SimpleNamespace) -> None:
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active = again.run.has_done_batch = True
    stream = stream_of(Ended("the disk is full"), [again], messages)
    recorded.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(3):
        stream.step()
    assert not any("running again" in line for line in messages)
    recorded.failures = {}
    stream.recorder.record([again])  # type: ignore[list-item]
    stream.step()
    assert messages[-1] == "  silver.a is running again"


def test_a_failed_record_is_reported(
    recorded: SimpleNamespace,
) -> None:
    messages: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(again, [], messages)
    recorded.failures = {"silver.a": MedallionError("no space left on device")}
    stream.start()
    stream.step()
    expected = "no space left on device"
    assert messages == [expected]
    assert stream.failures == {"silver.a": expected}


@pytest.mark.parametrize(
    "error",
    [
        "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:",
        "[DELTA_METADATA_CHANGED] The metadata of the table has been changed by another update.",
    ],
)
def test_a_needed_restart_is_no_failure(error: str | Failure) -> None:
    """It ends between the last step and the stop, and the next run continues."""
    flow = Ended(error)
    flow.run.stop = lambda: None
    stream = stream_of(flow, [], [])
    stream.start()
    stream.stop()
    assert stream.failures == {}


def test_pauses_double_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now, pauses = 0.0, list[float]()
    monkeypatch.setattr("medallion.runtime.stream.time.monotonic", lambda: now)
    stream = stream_of(Ended("a full disk"), [], [])
    stream.start()
    (one,) = stream._queries
    for _ in range(7):
        one._delay_start()
        pauses.append(one._next_start - now)
    assert pauses == [0, 5, 10, 20, 40, 60, 60]
    one._clear_failure()
    assert (one.failure, one._next_start <= now) == (None, True)
    one._delay_start()
    assert one._next_start == now  # at once, as at first
