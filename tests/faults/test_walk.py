"""Tests of the walk itself, and a short walk in the tests' Spark session (slow)."""

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


def new_walk(
    tmp_path: Path, act: Act, seed: int = 1, can_kill: bool = False, world: type[World] = Events
) -> Walk:
    world_ = world(tmp_path / "lakehouse", Random(seed))
    world_.root.mkdir()
    conf = damage.new_conf(tmp_path / "conf", world_)
    return Walk(world_, conf, act, Results(), can_kill, can_kill)


@pytest.mark.slow
@pytest.mark.usefixtures("production_streams")
def test_walk_loses_no_row(spark: SparkSession, tmp_path: Path) -> None:
    actor = Actor(spark, tmp_path / "conf", tmp_path / "lakehouse")
    walk = new_walk(tmp_path, actor.act, seed=12)
    walk.run_steps(4)
    assert walk.results.checks == 1
    assert walk.world.expected()["bronze/event"][1].total() > 0
    assert walk.results.faults.total() > 0


class FakeActor:
    """Runs steps by arithmetic, and produces failures that the walk must detect."""

    def __init__(self) -> None:
        self.walk: Walk | None = None
        self.outcome = Outcome("done")
        self.lost_rows = 0

    def __call__(self, step: Mapping[str, Any]) -> Outcome:
        assert self.walk
        if step["do"] == "layers":
            world = self.walk.world
            finish(world)
            if self.lost_rows:
                lines = world.expected()["bronze/event"][1].total()
                write(world.root, "bronze/event", [(n,) for n in range(lines - self.lost_rows)])
            return self.outcome
        if step["do"] == "erase" and "kill_after" not in step and step["with"]:
            source, key = step["with"]["source"], step["with"]["key"]
            erase(self.walk.world, source, key)
            self.walk.world.erase(source, key)
            finish(self.walk.world)
        return Outcome("killed" if "kill_after" in step else "done", sites=["a: open", "b: open"])


@pytest.mark.parametrize(("seed", "world"), [(2, Events), (5, Shop)])
def test_walk_counts_steps_and_faults(tmp_path: Path, seed: int, world: type[World]) -> None:
    actor = FakeActor()
    walk = actor.walk = new_walk(tmp_path, actor, seed, True, world)
    walk.run_steps(40)
    assert (walk.results.steps, walk.results.checks) == (40, 10)
    assert walk.results.survived == walk.results.faults
    assert "conf edited" in walk.results.faults
    assert any(line.startswith("| conf edited") for line in walk.results.lines())


@pytest.mark.parametrize(
    ("outcome", "output"),
    [
        (Outcome("crashed", "KeyError: 'x'"), "an undisturbed run crashed"),
        (Outcome("hung", "no answer"), "an undisturbed run hung"),
        (Outcome("refused", "that is not so"), "no remedy is named"),
        (Outcome("refused", "medallion refresh gold.by_action."), "remedies do not converge"),
    ],
)
def test_walk_fails_for_unexpected_outcomes(tmp_path: Path, outcome: Outcome, output: str) -> None:
    actor = FakeActor()
    actor.outcome = outcome
    walk = actor.walk = new_walk(tmp_path, actor)
    walk.world.land()
    with pytest.raises(LostError, match=output):
        walk.check_at_rest()


def test_walk_detects_a_lost_row(tmp_path: Path) -> None:
    actor = FakeActor()
    walk = actor.walk = new_walk(tmp_path, actor)
    for _ in range(5):
        walk.world.land()
    walk.check_at_rest()
    actor.lost_rows = 1
    with pytest.raises(LostError, match="bronze/event: 1 missing"):
        walk.check_at_rest()


def test_aimed_walk_kills_once_before_each_write(tmp_path: Path) -> None:
    actor = FakeActor()

    def act(step: Mapping[str, Any]) -> Outcome:
        outcome, sites = actor(step), iter(WRITES)
        if strike := step.get("strike"):
            struck = next((site for site in sites if Strike(**strike).counts(site)), None)
            return Outcome("killed", struck=struck) if struck else outcome
        return outcome

    walk = actor.walk = new_walk(tmp_path, act, can_kill=True)
    walk.is_aimed = True
    walk.run_steps(4)
    assert walk.results.killed == dict.fromkeys(WRITES, 1)
    assert "| `b: merge` | 1 | 0 |" in walk.results.lines()
