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
from medallion.runtime.stream import Backoff, Stream
from medallion.spark.errors import Failure, FailureCode, classify
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

    name, run, is_gated, upstream = "silver.a", None, False, ()

    def __init__(self) -> None:
        self.asked = 0

    def has_unknown_schema(self) -> bool:
        self.asked += 1
        return self.asked < 2

    def poll(self) -> bool:
        return True


def test_a_layer_whose_queries_all_wait_for_a_schema_stays_on() -> None:
    flow, begun = Waiting(), 0

    def start_flow(*_: Any) -> None:
        nonlocal begun
        begun += not flow.has_unknown_schema()

    pipeline: Any = SimpleNamespace(
        flows=lambda _: [flow],
        flow=lambda _: flow,
        start_flow=start_flow,
        refuse_if_blocked=lambda _: None,
        say=print,
        is_alive=True,
        config=None,
        runs=None,
    )
    stream = Stream(pipeline, ["silver"], "1 second")
    stream.start()
    assert (begun, stream.is_on) == (0, True)
    stream.poll()
    assert begun == 1
    for _ in range(2):  # there is no query still: it is not asked at every look
        stream.poll()
    assert begun == 1


class Ended:
    """A flow whose query has ended; by an error, or because it had all that there was to do."""

    name, is_gated = "silver.a", False

    def __init__(self, error: str | Failure | None) -> None:
        self.upstream: tuple[str, ...] = ()
        self.upstream_paths: tuple[Path, ...] = ()
        self.run: Any
        self.run = self.started_run = SimpleNamespace(
            is_active=False,
            is_processing=False,
            last_batch=-1,
            cannot_stop=False,
            batches={},
            has_done_batch=False,
            is_recorded=False,
            waits_for_past_time=False,
            collect=lambda: None,
            end=lambda: None,
            failure=lambda: classify(PySparkException(error)) if isinstance(error, str) else error,
            error=lambda: error,
            activity=lambda: (),
        )

    def has_unknown_schema(self) -> bool:
        return False

    def poll(self) -> bool:
        return True


def stream_of(first: Any, others: list[Any], said: list[str]) -> Stream:
    pipeline: Any = SimpleNamespace(
        config=load({}, PROJECT),
        runs=None,
        flows=lambda _: [first],
        flow=lambda _: others.pop(0),
        start_flow=lambda *_: True,
        refuse_if_blocked=lambda _: None,
        is_alive=True,
        say=said.append,
    )
    return Stream(pipeline, ["silver"], "1 hour")


def test_a_query_that_stops_is_begun_again_at_once_and_then_after_a_pause() -> None:
    said: list[str] = []
    stream = stream_of(Ended("the disk is full"), left := [Ended("the disk is full")], said)
    stream.start()
    for _ in range(4):
        stream.step()
    stopped = "silver.a stopped: the disk is full"
    assert said == [f"{stopped}; it is retried"]  # once
    assert stream.failures == {"silver.a": stopped}
    assert not left
    assert stream.is_on  # it is tried again
    pipeline: Any = stream._pipeline
    pipeline.is_alive = False
    assert not stream.is_on
    stream.stop()
    assert "start this again" in stream.failures["java"]


def test_a_query_that_is_on_again_has_not_failed() -> None:
    said: list[str] = []
    again = Ended(None)
    again.run.is_active = again.run.has_done_batch = True
    stream = stream_of(Ended("the disk is full"), [again], said)
    stream.start()
    for _ in range(2):
        stream.step()
    assert said[1:] == ["  silver.a is running again"]
    assert (stream.failures, stream.is_on) == ({}, True)


def test_a_query_that_has_been_on_for_a_minute_has_not_failed() -> None:
    """It may have no batch to do for days."""
    said: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(Ended("the disk is full"), [again], said)
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
    assert said[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_a_query_that_was_on_again_when_the_stream_ended_has_not_failed() -> None:
    """Where much is to be put on record, the next look may be the end."""
    said: list[str] = []
    again = Ended(None)
    again.run.is_active, again.run.stop = True, lambda: None
    stream = stream_of(Ended("the disk is full"), [again], said)
    stream.start()
    stream.step()
    again.run.has_done_batch = True
    stream.stop()
    assert said[1:] == ["  silver.a is running again"]
    assert stream.failures == {}


def test_a_query_that_had_to_end_what_was_cut_off_goes_on_by_the_new_rules() -> None:
    said: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(Ended(None), [again], said)
    stream.start()
    stream.step()
    assert said == ["  silver.a restarts with the current rules"]
    assert stream.failures == {}


def test_what_was_cut_off_and_cannot_be_put_on_record_is_not_ended_over_and_over(
    recorded: SimpleNamespace,
) -> None:
    said: list[str] = []
    stream = stream_of(Ended(None), [Ended(None)], said)
    recorded.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(4):
        stream.step()
    assert said == [
        "keys never came into silver",
        "silver.a stopped: keys never came into silver; it is retried",
    ]
    recorded.failures = {}  # the second one, when its turn comes
    assert stream.failures.keys() == {"silver.a"}


def test_a_query_that_cannot_be_stopped_is_not_begun_beside_itself() -> None:
    said: list[str] = []
    hanging = Ended("it was given up, and could not be stopped")
    hanging.run.cannot_stop = True
    stream = stream_of(hanging, [], said)
    stream.start()
    for _ in range(3):
        stream.step()
    assert said == [
        "silver.a stopped: it was given up, and could not be stopped; restart "
        "this process to resume it"
    ]
    assert not stream.is_on  # there are no others


def test_a_query_waits_for_the_table_that_another_one_is_to_make(tmp_path: Path) -> None:
    early = Ended(None)
    early.run = None
    early.upstream, early.upstream_paths = ("silver.b",), (tmp_path / "silver/b",)
    stream = stream_of(early, [], [])
    stream.start()
    assert (stream.failures, stream.is_on) == ({}, True)


def test_a_stream_that_starts_before_its_broker_waits_for_it() -> None:
    said: list[str] = []
    early, on = Ended(None), Ended(None)
    early.run, on.run.is_active = None, True
    stream = stream_of(early, [on], said)
    answers: list[Any] = [UnreachableError("no Kafka broker answers."), True]

    def start_flow(*_: Any) -> Any:
        if isinstance(answer := answers.pop(0), Exception):
            raise answer
        return answer

    pipeline: Any = stream._pipeline
    pipeline.start_flow = start_flow
    stream.start()
    assert said == ["no Kafka broker answers. It is retried."]
    assert (stream.failures, stream.is_on) == ({}, True)
    stream.poll()
    assert not answers
    assert [flow.run for flow in stream._flows] == [on.run]


def test_what_a_refresh_has_left_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails as the stream starts, which nobody may be there to start again."""
    said, fails = list[str](), [True, False]
    left, again = Ended(None), Ended(None)
    left.name = again.name = "gold.a"
    left.run, again.run.is_active = None, True
    on = Ended(None)
    on.run.is_active = True
    stream = stream_of(on, [again], said)
    pipeline: Any = stream._pipeline
    pipeline.flows = {"silver": [on], "gold": [left]}.__getitem__
    stream._layers = ["silver", "gold"]

    def rebuild(_: Any, flow: Any) -> None:
        if flow.name == "gold.a" and fails.pop(0):
            raise MedallionError("gold.a: the disk is full")

    monkeypatch.setattr("medallion.runtime.refresh.rebuild_if_pending", rebuild)
    stream.start()
    told = "gold.a cannot start: the disk is full"
    assert said == [f"{told}; it is retried"]
    stream.poll()
    assert not fails
    assert [flow.run for flow in stream._flows] == [on.run, again.run]


def test_what_has_to_be_started_again_and_does_no_batch_has_failed() -> None:
    """As where a table was overwritten with other columns: each start ends by the same error."""
    said: list[str] = []
    error = "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:"
    stream = stream_of(Ended(error), [Ended(error), Ended(error)], said)
    stream.start()
    for _ in range(5):
        stream.step()
    assert said == [
        "  silver.a continues with new columns",
        f"silver.a stopped: {error}; it is retried",
    ]
    assert stream.failures.keys() == {"silver.a"}


def test_a_batch_that_is_not_on_record_is_no_recovery(recorded: SimpleNamespace) -> None:
    said: list[str] = []
    again = Ended(None)
    again.run.is_active = again.run.has_done_batch = True
    stream = stream_of(Ended("the disk is full"), [again], said)
    recorded.failures = {"silver.a": MedallionError("keys never came into silver")}
    stream.start()
    for _ in range(3):
        stream.step()
    assert not any("running again" in line for line in said)
    recorded.failures = {}
    stream._recorder.record([again])  # type: ignore[list-item]
    stream.step()
    assert said[-1] == "  silver.a is running again"


def test_what_cannot_be_put_on_record_is_told_and_the_stream_goes_on(
    recorded: SimpleNamespace,
) -> None:
    said: list[str] = []
    again = Ended(None)
    again.run.is_active = True
    stream = stream_of(again, [], said)
    recorded.failures = OSError("no space left on device")
    stream.start()
    stream.step()
    told = "batches cannot be recorded in ops.runs: OSError: no space left on device"
    assert said == [told]
    assert stream.failures == {"silver.a": told}
    assert stream.is_on


@pytest.mark.parametrize(
    "error",
    [
        "[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change:",
        "[DELTA_METADATA_CHANGED] The metadata of the table has been changed by another update.",
        Failure(FailureCode.CLOCK_SET_BACK, "the clock was set back"),
    ],
)
def test_a_query_that_only_has_to_be_started_again_has_not_failed(error: str | Failure) -> None:
    """It ends between the last look and the stop, and the next run goes on (seen with --dirty)."""
    flow = Ended(error)
    flow.run.stop = lambda: None
    stream = stream_of(flow, [], [])
    stream.start()
    stream.stop()
    assert stream.failures == {}


def pauses(failure: str | None, tries: int) -> list[int]:
    """The seconds before each try of something that fails each time."""
    now, found = 0, list[int]()
    one = Backoff(lambda: now)
    for _ in range(tries):
        one.note_failure(failure)
        began = now
        while not one.is_due:
            now += 1
        found.append(now - began)
    return found


def test_the_first_try_is_at_once_and_pauses_double_up_to_ten_minutes() -> None:
    assert pauses("a full disk", 10) == [0, 5, 10, 20, 40, 80, 160, 320, 600, 600]


def test_what_waits_for_somebody_else_is_asked_again_every_minute() -> None:
    assert pauses(None, 7) == [0, 5, 10, 20, 40, 60, 60]


def test_what_has_gone_well_begins_anew() -> None:
    now = 0
    one = Backoff(lambda: now)
    assert not one.note_success()  # it was, all the time
    for _ in range(3):
        one.note_failure("a full disk")
    assert (one.failure, one.is_due) == ("a full disk", False)
    assert one.note_success()
    assert (one.failure, one.is_due, one.has_failed) == (None, True, False)
    one.note_failure("a full disk")
    assert one.is_due  # at once, as at first
    one.delay(3)
    assert not one.is_due
    now = 3
    assert one.is_due


def test_what_has_to_wait_is_tried_no_sooner_and_after_no_shorter_pause() -> None:
    now = 0
    one = Backoff(lambda: now)
    one.note_failure("a full disk")
    one.delay(4)
    now = 3
    assert not one.is_due
    now = 4
    assert one.is_due
    one.note_failure("a full disk")  # for the second time: in 5 seconds
    one.delay(4)
    now = 8
    assert not one.is_due
    now = 9
    assert one.is_due


def test_what_nothing_can_take_the_place_of_is_not_tried_again() -> None:
    now = 0
    one = Backoff(lambda: now)
    one.note_failure("it hangs", is_final=True)
    one.delay(4)
    now = 10**9
    assert not one.is_due
