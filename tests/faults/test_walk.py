"""A short walk in the session of the tests: faults at writes, torn checkpoints, edited settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.faults import damage
from tests.faults.actions import Actor, Outcome
from tests.faults.by_hand import erase, finish, write
from tests.faults.events import Events
from tests.faults.report import Results
from tests.faults.shop import Shop
from tests.faults.walk import Act, LostError, Walk
from tests.faults.world import World
from tests.faults.writes import Strike

WRITES = ("a: open", "b: merge", "c: os.rename", "d: open", "e: open", "f: open")


def a_walk(
    tmp_path: Path, act: Act, seed: int = 1, can_kill: bool = False, world: type[World] = Events
) -> Walk:
    it = world(tmp_path / "lakehouse", Random(seed))
    it.root.mkdir()
    conf = damage.new_conf(tmp_path / "conf", it)
    return Walk(it, conf, act, Results(), can_kill, can_kill)


def test_a_walk_loses_nothing(spark: SparkSession, tmp_path: Path) -> None:
    actor = Actor(spark, tmp_path / "conf", tmp_path / "lakehouse")
    walk = a_walk(tmp_path, actor.act, seed=12)
    walk.go(4)
    assert walk.results.checks == 1
    assert walk.world.expected()["bronze/event"][1].total() > 0
    assert walk.results.faults.total() > 0


class ByHand:
    """Does what a step asks for by arithmetic, and now and then what the walk must notice."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self.last = Outcome("done")
        self.loses = 0

    def __call__(self, step: Mapping[str, Any]) -> Outcome:
        assert self.walk
        if step["do"] == "layers":
            world = self.walk.world
            finish(world)
            if self.loses:
                lines = world.expected()["bronze/event"][1].total()
                write(world.root, "bronze/event", [(n,) for n in range(lines - self.loses)])
            return self.last
        if step["do"] == "erase" and "kill_after" not in step and step["with"]:
            source, key = step["with"]["source"], step["with"]["key"]
            erase(self.walk.world, source, key)
            self.walk.world.erase(source, key)
            finish(self.walk.world)
        return Outcome("killed" if "kill_after" in step else "done", sites=["a: open", "b: open"])


@pytest.mark.parametrize(("seed", "world"), [(2, Events), (5, Shop)])
def test_the_walk_itself(tmp_path: Path, seed: int, world: type[World]) -> None:
    by_hand = ByHand()
    walk = by_hand.walk = a_walk(tmp_path, by_hand, seed, True, world)
    walk.go(40)
    assert (walk.results.steps, walk.results.checks) == (40, 10)
    assert walk.results.survived == walk.results.faults
    assert "conf edited" in walk.results.faults
    assert any(line.startswith("| conf edited") for line in walk.results.lines())


@pytest.mark.parametrize(
    ("last", "output"),
    [
        (Outcome("crashed", "KeyError: 'x'"), "an undisturbed run crashed"),
        (Outcome("hung", "no answer"), "an undisturbed run hung"),
        (Outcome("refused", "that is not so"), "no remedy is named"),
        (Outcome("refused", "medallion refresh gold.by_action."), "it does not come to rest"),
    ],
)
def test_a_walk_fails_for_unexpected_outcomes(tmp_path: Path, last: Outcome, output: str) -> None:
    by_hand = ByHand()
    by_hand.last = last
    walk = by_hand.walk = a_walk(tmp_path, by_hand)
    walk.world.land()
    with pytest.raises(LostError, match=output):
        walk.rest()


def test_a_walk_finds_a_lost_row(tmp_path: Path) -> None:
    by_hand = ByHand()
    walk = by_hand.walk = a_walk(tmp_path, by_hand)
    for _ in range(5):
        walk.world.land()
    walk.rest()
    by_hand.loses = 1
    with pytest.raises(LostError, match="bronze/event: 1 missing"):
        walk.rest()


def test_an_aimed_walk_kills_once_before_each_write(tmp_path: Path) -> None:
    by_hand = ByHand()

    def act(step: Mapping[str, Any]) -> Outcome:
        outcome, left = by_hand(step), iter(WRITES)
        if strike := step.get("strike"):
            struck = next((site for site in left if Strike(**strike).means(site)), None)
            return Outcome("killed", struck=struck) if struck else outcome
        return outcome

    walk = by_hand.walk = a_walk(tmp_path, act, can_kill=True)
    walk.is_aimed = True
    walk.go(4)
    assert walk.results.killed == dict.fromkeys(WRITES, 1)
    assert "| `b: merge` | 1 | 0 |" in walk.results.lines()
