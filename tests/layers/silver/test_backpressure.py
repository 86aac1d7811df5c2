"""Silver's query and its record."""

from __future__ import annotations

from threading import Event, Thread, Timer

import pytest

from medallion.errors import MedallionError
from medallion.layers.silver.backpressure import Backpressure


def test_a_batch_waits_for_the_record_of_one_that_is_eighty_before_it() -> None:
    backpressure = Backpressure(9, Event())
    backpressure.wait(89)
    waiting = Thread(target=backpressure.wait, args=(90,), daemon=True)
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()
    backpressure.settled(10)
    waiting.join(60)
    assert not waiting.is_alive()


def test_it_does_not_wait_where_its_query_is_stopped() -> None:
    stopping = Event()
    Timer(0.1, stopping.set).start()
    with pytest.raises(MedallionError, match="stopped before this batch"):
        Backpressure(0, stopping).wait(100)
