"""When something that has failed is tried again."""

from __future__ import annotations

from medallion.runtime.backoff import Backoff


def pauses(failure: str | None, tries: int) -> list[int]:
    """The seconds before each try of something that fails each time."""
    now, found = 0, list[int]()
    one = Backoff(lambda: now)
    for _ in range(tries):
        one.failed(failure)
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
    assert not one.went_well()  # it was, all the time
    for _ in range(3):
        one.failed("a full disk")
    assert (one.failure, one.is_due) == ("a full disk", False)
    assert one.went_well()
    assert (one.failure, one.is_due, one.has_failed) == (None, True, False)
    one.failed("a full disk")
    assert one.is_due  # at once, as at first
    one.wait(3)
    assert not one.is_due
    now = 3
    assert one.is_due


def test_what_has_to_wait_is_tried_no_sooner_and_after_no_shorter_pause() -> None:
    now = 0
    one = Backoff(lambda: now)
    one.failed("a full disk")
    one.wait(4)
    now = 3
    assert not one.is_due
    now = 4
    assert one.is_due
    one.failed("a full disk")  # for the second time: in 5 seconds
    one.wait(4)
    now = 8
    assert not one.is_due
    now = 9
    assert one.is_due


def test_what_nothing_can_take_the_place_of_is_not_tried_again() -> None:
    now = 0
    one = Backoff(lambda: now)
    one.failed("it hangs", is_final=True)
    one.wait(4)
    now = 10**9
    assert not one.is_due
