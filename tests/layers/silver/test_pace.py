"""Silver's query and its record."""

from __future__ import annotations

from threading import Event, Timer

import pytest

from medallion.errors import MedallionError
from medallion.layers.silver.pace import Pace


def test_a_batch_waits_for_the_record_of_one_that_is_eighty_before_it() -> None:
    pace = Pace(9, Event(), patience=0.1)
    pace.wait(89)
    with pytest.raises(MedallionError, match="the batches after 9 cannot be put on record"):
        pace.wait(90)
    pace.settled(10)
    pace.wait(90)


def test_it_does_not_wait_where_its_query_is_stopped() -> None:
    stopping = Event()
    Timer(0.1, stopping.set).start()
    with pytest.raises(MedallionError, match="stopped before this batch"):
        Pace(0, stopping, patience=60).wait(100)
