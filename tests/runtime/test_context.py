"""Sessions and locks put together, and taken apart in order."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from medallion.runtime import context
from medallion.spark import session
from medallion.storage import clock
from tests.support.home import Home
from tests.support.lakehouse import Lakehouse
from tests.support.runs import record


class Stopped:
    """What is to be stopped, and notes that it was."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        self.name, self.order, self.error = name, order, error

    def stop(self) -> None:
        self.order.append(self.name)
        if self.error:
            raise self.error


def test_a_root_without_a_table_is_told_for_its_disk_may_not_be_mounted(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: MagicMock(version="4"))
    told: list[str] = []
    for _ in range(2):
        with context.open_pipeline(home.config, "test", ["bronze"], told.append):
            record(home.config, "bronze.activity")
    first, _, second, _ = told
    assert first == f"medallion test on {home.layout.root} (a new lakehouse)"
    assert second == f"medallion test on {home.layout.root}"


def test_a_clock_that_is_behind_the_record_is_told(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a start without a battery it says 1970, and every row is of a time to come."""
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: MagicMock(version="4"))
    day = 24 * 3600 * 1_000_000
    told: list[str] = []

    def opened() -> int:
        told.clear()
        with context.open_pipeline(home.config, "test", ["bronze"], told.append):
            return len(told)

    record(home.config, "bronze.activity", started_at=clock.now_micros() + day - 60_000_000)
    assert opened() == 2
    record(home.config, "bronze.activity", started_at=4_102_444_800_000_000)
    assert opened() == 3
    assert "last run began at 2100-01-01T00:00:00Z or later" in told[-1]
    record(
        home.config, "silver.activity", started_at=clock.now_micros()
    )  # it has been put right since
    assert opened() == 2


@pytest.mark.parametrize("error", [None, Py4JError("gone")])
def test_queries_are_stopped_before_spark(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """A batch that goes on without Spark would take good files for unreadable ones."""
    order: list[str] = []
    spark = Stopped("spark", order)
    spark.version = "4"  # type: ignore[attr-defined]
    active = [Stopped("query", order, error), Stopped("another", order)]
    spark.streams = SimpleNamespace(active=active)  # type: ignore[attr-defined]
    monkeypatch.setattr(session, "spark_session", lambda *_, **__: spark)
    with (
        pytest.raises(KeyboardInterrupt),
        context.open_pipeline(lakehouse.config, "test", ["bronze"], lambda _: None),
    ):
        raise KeyboardInterrupt
    assert order == ["query", "another", "spark"]
