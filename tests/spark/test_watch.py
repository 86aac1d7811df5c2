"""Queries that are on and get nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from medallion.spark.watch import Watch


def test_a_query_for_which_nothing_happens_is_told_every_five_minutes() -> None:
    said: list[str] = []
    now = [0.0]
    signs = {"silver.a": 0, "silver.b": 0}

    def a_run(name: str) -> Any:
        return SimpleNamespace(name=name, sign=lambda: signs[name])

    runs = [a_run(name) for name in signs]
    watch = Watch(said.append, 300, lambda: now[0])
    for now[0] in range(0, 605, 5):
        signs["silver.b"] += 1
        watch.look(runs)
    assert [line.partition(":")[0] for line in said] == ["silver.a", "silver.a"]
    signs["silver.a"] = 1
    for now[0] in range(605, 900, 5):
        watch.look(runs)
    assert len(said) == 2
