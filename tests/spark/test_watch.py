"""Queries that are on and get nowhere."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.spark import signals, watch
from medallion.spark.errors import StreamError
from medallion.spark.watch import Watch


def test_a_query_without_progress_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    now = [0.0]
    signs = {"silver.a": 0, "silver.b": 0}

    def a_run(name: str) -> Any:
        sign = lambda: signs[name]  # noqa: E731
        return SimpleNamespace(name=name, activity=sign)

    runs = [a_run(name) for name in signs]
    monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watched = Watch(messages.append, 300)
    for now[0] in range(0, 605, 5):
        signs["silver.b"] += 1
        watched.check_progress(runs)
    assert [line.partition(":")[0] for line in messages] == ["silver.a", "silver.a"]
    signs["silver.a"] = 1
    for now[0] in range(605, 900, 5):
        watched.check_progress(runs)
    assert len(messages) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_await_all_stops_queries_at_a_signal(number: signal.Signals) -> None:
    """The signal only requests it: an interrupted call to Java would leave a stack trace."""
    stopped: list[str] = []

    def a_run(name: str) -> Any:
        return SimpleNamespace(
            is_active=True, collect=lambda: None, stop=lambda: stopped.append(name)
        )

    with signals.defer_signals() as end:
        signals.raise_if_requested()
        signal.raise_signal(number)
        assert end.number is not None
        with pytest.raises(KeyboardInterrupt) as raised:
            Watch(print).await_all([a_run("silver.a"), a_run("silver.b")])
    assert raised.value.args == (number,)
    assert stopped == ["silver.a", "silver.b"]
    signals.raise_if_requested()  # beyond it nothing has come


def test_await_all_starts_no_more_than_allowed_at_once() -> None:
    """Each query ends after three checks; the next one starts then."""
    checks: dict[str, int] = {}
    most = [0]

    def a_run(name: str) -> Any:
        checks[name] = 3
        most[0] = max(most[0], sum(left > 0 for left in checks.values()))

        class Active:
            error = staticmethod(lambda: "no space" if name == "b" else None)
            collect = end = staticmethod(lambda: None)
            activity = staticmethod(lambda: ())
            await_termination = staticmethod(lambda _: None)

            @property
            def is_active(self) -> bool:
                checks[name] -= 1
                return checks[name] > 0

        Active.name = name  # type: ignore[attr-defined]
        return Active()

    with pytest.raises(StreamError, match=r"^b: no space$"):
        Watch(print).await_all(map(a_run, "abcde"), at_once=2)
    assert (list(checks), most[0]) == (list("abcde"), 2)
