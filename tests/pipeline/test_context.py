"""Sessions and locks put together, and taken apart in order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError

from medallion.pipeline import context
from medallion.spark import session
from tests.support.lakehouse import Lakehouse


class Stopped:
    """What is to be stopped, and notes that it was."""

    def __init__(self, name: str, order: list[str], error: Exception | None = None) -> None:
        self.name, self.order, self.error = name, order, error

    def stop(self) -> None:
        self.order.append(self.name)
        if self.error:
            raise self.error


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
