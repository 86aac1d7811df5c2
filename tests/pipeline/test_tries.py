"""When something that has failed is tried again."""

from __future__ import annotations

from medallion.pipeline.tries import Tries


def pauses(failure: str | None, tries: int) -> list[int]:
    """The seconds before each try of something that fails each time."""
    now, found = 0, list[int]()
    one = Tries(lambda: now)
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


def test_it_has_recovered_when_it_has_done_something_or_has_been_on_for_a_minute() -> None:
    now = 0
    one = Tries(lambda: now)
    assert not one.has_recovered(has_done=True)  # it was well all the time
    for has_done, seconds in ((True, 0), (False, 61)):
        one.failed("a full disk")
        one.failed("a full disk")
        one.begun()
        assert not one.has_recovered(has_done=False)
        assert (one.failure, one.is_due) == ("a full disk", False)
        now += seconds
        assert one.has_recovered(has_done)
        assert (one.failure, one.is_due) == (None, True)
