"""Queries of a stream that wait, or have stopped."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException

from medallion.config.loader import load
from medallion.errors import MedallionError, UnreachableError
from medallion.runtime import recorder
from medallion.runtime.stream import Stream, run_stream
from medallion.spark.errors import Failure, StreamError, classify
from medallion.storage.paths import StoragePath
from tests.support import PROJECT


@pytest.fixture(autouse=True)
def recorder_stub(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Replace the recorder; it returns `failures`, which is empty by default."""
    result = SimpleNamespace(failures=dict[str, MedallionError]())

    def record_flows(*_: Any) -> Any:
        if isinstance(result.failures, Exception):
            raise result.failures
        return result.failures

    monkeypatch.setattr(recorder, "record_flows", record_flows)
    monkeypatch.setattr(recorder, "record_failed_start", lambda *_: [])
    return result


class Waiting:
    """A flow whose source has a schema only when asked a second time."""

    name, run, upstream = "silver.a", None, ()

    def __init__(self) -> None:
        self.checks = 0

    def unknown_schema_reason(self) -> str | None:
        self.checks += 1
        return "no file yet" if self.checks < 2 else None

    def poll(self) -> bool:
        return True


def test_stream_waits_for_schemas() -> None:
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
        config=None,
        runs=None,
    )
    stream = Stream(pipeline, ["silver"], "1 second")
    stream.start()
    assert started == 0
    stream.poll()
    assert started == 1
    for _ in range(2):  # there is still no query: not every poll asks again
        stream.poll()
    assert started == 1


class Ended:
    """A flow whose query has ended, by an error or because it had nothing left to do."""

    name = "silver.a"

    def __init__(self, error: str | Failure | None) -> None:
        self.upstream: tuple[str, ...] = ()
        self.upstream_paths: tuple[StoragePath, ...] = ()
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
        )

    def unknown_schema_reason(self) -> None:
        return None

    def poll(self) -> bool:
        return True


def new_stream(flow: Any, replacements: list[Any], messages: list[str]) -> Stream:
    pipeline: Any = SimpleNamespace(
        config=load({}, PROJECT),
        runs=None,
        flows=lambda _: [flow],
        flow=lambda _: replacements.pop(0),
        start_flow=lambda *_: True,
        unblocked_flows=list,
        is_alive=True,
        report=messages.append,
    )
    return Stream(pipeline, ["silver"], "1 hour")


def test_stopped_query_restarts_at_once_then_later() -> None:
    messages: list[str] = []
    stream = new_stream(Ended("the disk is full"), waiting := [Ended("the disk is full")], messages)
    stream.start()
    for _ in range(4):
        stream.step()
    stopped = "silver.a stopped: the disk is full"
    assert messages == [f"{stopped}; it is retried"]  # reported once
    assert stream.failures == {"silver.a": stopped}
    assert not waiting
    (query,) = stream._queries
    assert query._next_start <= time.monotonic() + 5  # the steps since then do not delay it
    pipeline: Any = stream.pipeline
    pipeline.is_alive = False
    stream.stop()
    assert "start this again" in stream.failures["java"]


def test_query_with_a_batch_has_recovered() -> None:
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active = restarted.run.has_done_batch = True
    stream = new_stream(Ended("the disk is full"), [restarted], messages)
    stream.start()
    for _ in range(2):
        stream.step()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_query_has_recovered_after_a_minute() -> None:
    """It may have no batch for days."""
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active = True
    stream = new_stream(Ended("the disk is full"), [restarted], messages)
    stream.start()
    for _ in range(2):
        stream.step()
    assert stream.failures
    stream._queries[0]._started_at -= 61
    restarted.run.is_processing = True  # possibly the batch that failed
    stream.step()
    assert stream.failures
    restarted.run.is_processing = False
    stream.step()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_query_can_recover_until_the_stream_ends() -> None:
    """The stream may end before the next step."""
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active, restarted.run.stop = True, lambda: None
    stream = new_stream(Ended("the disk is full"), [restarted], messages)
    stream.start()
    stream.step()
    restarted.run.has_done_batch = True
    stream.stop()
    assert messages[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_query_restarts_with_the_current_rules() -> None:
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active = True
    stream = new_stream(Ended(None), [restarted], messages)
    stream.start()
    stream.step()
    assert messages == ["  silver.a restarts with the current rules"]
    assert stream.failures == {}


def test_unrecorded_batch_is_retried_with_pauses(
    recorder_stub: SimpleNamespace,
) -> None:
    messages: list[str] = []
    stream = new_stream(Ended(None), [Ended(None)], messages)
    recorder_stub.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(4):
        stream.step()
    assert messages == [
        "keys never came into silver",
        "silver.a stopped: keys never came into silver; it is retried",
    ]
    recorder_stub.failures = {}  # applies when the second query is recorded
    assert stream.failures.keys() == {"silver.a"}


def test_query_waits_for_its_input_table(tmp_path: Path) -> None:
    not_started = Ended(None)
    not_started.run = None
    not_started.upstream, not_started.upstream_paths = (
        ("silver.b",),
        (StoragePath(tmp_path / "silver/b"),),
    )
    stream = new_stream(not_started, [], [])
    stream.start()
    assert stream.failures == {}


def test_stream_waits_for_its_broker() -> None:
    messages: list[str] = []
    not_started, active = Ended(None), Ended(None)
    not_started.run, active.run.is_active = None, True
    stream = new_stream(not_started, [active], messages)
    results: list[Any] = [UnreachableError("no Kafka broker answers."), True]

    def start_flow(*_: Any) -> Any:
        if isinstance(result := results.pop(0), Exception):
            raise result
        return result

    pipeline: Any = stream.pipeline
    pipeline.start_flow = start_flow
    stream.start()
    assert messages == ["no Kafka broker answers. It is retried."]
    assert stream.failures == {}
    stream.poll()
    assert not results
    assert [flow.run for flow in stream._flows] == [active.run]


def test_failed_rebuild_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails as the stream starts."""
    messages, fails = list[str](), [True, False]
    waiting, restarted = Ended(None), Ended(None)
    waiting.name = restarted.name = "gold.a"
    waiting.run, restarted.run.is_active = None, True
    active = Ended(None)
    active.run.is_active = True
    stream = new_stream(active, [restarted], messages)
    pipeline: Any = stream.pipeline
    pipeline.flows = {"silver": [active], "gold": [waiting]}.__getitem__
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
    assert [flow.run for flow in stream._flows] == [active.run, restarted.run]


def test_restart_without_a_batch_has_failed() -> None:
    """Each start ends with the same error, as after a table was overwritten with other columns."""
    messages: list[str] = []
    error = "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:"
    stream = new_stream(Ended(error), [Ended(error), Ended(error)], messages)
    stream.start()
    for _ in range(5):
        stream.step()
    assert messages == [
        "  silver.a continues with new columns",
        f"silver.a stopped: {error}; it is retried",
    ]
    assert stream.failures.keys() == {"silver.a"}


def test_unrecorded_batch_is_no_recovery(recorder_stub: SimpleNamespace) -> None:
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active = restarted.run.has_done_batch = True
    stream = new_stream(Ended("the disk is full"), [restarted], messages)
    recorder_stub.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(3):
        stream.step()
    assert not any("running again" in line for line in messages)
    recorder_stub.failures = {}
    stream.recorder.record([restarted])  # type: ignore[list-item]
    stream.step()
    assert messages[-1] == "  silver.a is running again"


def test_failed_record_is_reported(
    recorder_stub: SimpleNamespace,
) -> None:
    messages: list[str] = []
    restarted = Ended(None)
    restarted.run.is_active = True
    stream = new_stream(restarted, [], messages)
    recorder_stub.failures = {"silver.a": MedallionError("no space left on device")}
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
def test_required_restart_is_no_failure(error: str | Failure) -> None:
    """It ends between the last step and the stop, and the next run continues."""
    flow = Ended(error)
    flow.run.stop = lambda: None
    stream = new_stream(flow, [], [])
    stream.start()
    stream.stop()
    assert stream.failures == {}


def test_failure_as_the_stream_stops_is_kept() -> None:
    flow = Ended("the disk is full")
    flow.run.stop = lambda: None
    stream = new_stream(flow, [], [])
    stream.start()
    stream.stop()
    assert stream.failures == {"silver.a": "silver.a: the disk is full"}


def test_pauses_double_up_to_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    current_time, pauses = 0.0, list[float]()
    monkeypatch.setattr("medallion.runtime.stream.time.monotonic", lambda: current_time)
    stream = new_stream(Ended("a full disk"), [], [])
    stream.start()
    (query,) = stream._queries
    for _ in range(7):
        query._delay_start()
        pauses.append(query._next_start - current_time)
    assert pauses == [0, 5, 10, 20, 40, 60, 60]
    query._clear_failure()
    assert (query.failure, query._next_start <= current_time) == (None, True)
    query._delay_start()
    assert query._next_start == current_time  # at once, as at first


class ScriptedStream:
    """Replaces `Stream` in `run_stream`; `step` is set by a test."""

    def __init__(self, step: Callable[[], object], failures: dict[str, str]) -> None:
        self.step, self.failures = step, failures
        self.calls: list[str] = []

    def __call__(self, *_: object) -> ScriptedStream:
        return self

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")


def run_scripted(
    monkeypatch: pytest.MonkeyPatch, step: Callable[[], object], **failures: str
) -> tuple[ScriptedStream, list[str]]:
    """Run a stream with this step; return it, and the messages."""
    scripted, messages = ScriptedStream(step, failures), list[str]()
    monkeypatch.setattr("medallion.runtime.stream.Stream", scripted)
    monkeypatch.setattr("medallion.runtime.stream.STEP_SECONDS", 0.0)
    pipeline: Any = new_stream(None, [], messages).pipeline
    run_stream(pipeline, [], "4 seconds")
    return scripted, messages


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_run_stream_ends_by_a_signal(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, messages = run_scripted(monkeypatch, lambda: signal.raise_signal(number))
    assert stream.calls == ["start", "stop"]
    assert messages[-1] == "stopped: the next run resumes from here"


def test_run_stream_raises_the_failures_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    failures = {"a": "bronze.a stopped", "b": "bronze.b cannot start"}
    with pytest.raises(StreamError, match=r"^bronze\.a stopped; bronze\.b cannot start$"):
        run_scripted(monkeypatch, lambda: signal.raise_signal(signal.SIGTERM), **failures)


def test_run_stream_raises_errors_unless_a_signal_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal also ends calls to Java, which fail then."""

    def fail() -> None:
        raise ConnectionError("Java is gone")

    with pytest.raises(ConnectionError):
        run_scripted(monkeypatch, fail)

    def fail_by_a_signal() -> None:
        signal.raise_signal(signal.SIGTERM)
        fail()

    _, messages = run_scripted(monkeypatch, fail_by_a_signal)
    assert messages[-1] == "stopped: the next run resumes from here"
