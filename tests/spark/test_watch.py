"""Waiting for queries, and reports on those that still run."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.spark import signals, watch
from medallion.spark.errors import StreamError
from medallion.spark.watch import await_all
from medallion.storage import clock


def test_never_silent_reports_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_SILENT_SECONDS", 0.05)
    monkeypatch.setattr(watch, "_POLL_SECONDS", 0.01)
    messages, last = list[str](), time.monotonic() + 20
    with watch.never_silent(messages.append, []) as report:
        report("bronze")
        while len(messages) < 3 and time.monotonic() < last:
            time.sleep(0.01)
    assert messages[:3] == ["bronze", *["  0 s: Spark starts"] * 2]
    ended = len(messages)
    time.sleep(0.1)
    assert len(messages) == ended


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_await_all_stops_queries_at_a_signal(number: signal.Signals) -> None:
    """The signal only requests the stop: an interrupted call to Java would leave a stack trace."""
    stopped: list[str] = []

    def new_run(name: str) -> Any:
        return SimpleNamespace(
            is_active=True, collect=lambda: None, stop=lambda: stopped.append(name)
        )

    with signals.defer_signals():
        signals.raise_if_requested()
        signal.raise_signal(number)
        assert signals.is_shutdown_requested()
        with pytest.raises(KeyboardInterrupt) as raised:
            await_all([new_run("silver.a"), new_run("silver.b")])
    assert raised.value.args == (number,)
    assert stopped == ["silver.a", "silver.b"]
    signals.raise_if_requested()  # no request is left


def test_await_all_limits_active_queries() -> None:
    """Each query ends after three checks; then the next one starts."""
    checks: dict[str, int] = {}
    max_active = [0]

    def new_run(name: str) -> Any:
        checks[name] = 3
        max_active[0] = max(max_active[0], sum(remaining > 0 for remaining in checks.values()))

        class Active:
            started_at = clock.now_micros()
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
        await_all(map(new_run, "abcde"), at_once=2)
    assert (list(checks), max_active[0]) == (list("abcde"), 2)
