"""The comparison that judges a walk can itself fail: each kind of loss is found."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from medallion.storage import files
from tests.faults.by_hand import finish, write
from tests.faults.check import differences
from tests.faults.world import World
from tests.faults.writes import Strike, install


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Thirty files, and the tables and folders as they must be in the end."""
    world = World(tmp_path, Random(3))
    for _ in range(30):
        world.land()
    finish(world)
    return world


def test_an_intact_lakehouse_passes(world: World) -> None:
    assert differences(world) == []
    assert min(world.broken, world.duplicates, len(world.refused)) > 0
    assert world.lines == world.broken + world.duplicates + world.silver().total()


def test_a_row_too_few_or_too_many(world: World) -> None:
    rows = list(world.silver().elements())
    for wrong in (rows[1:], [*rows, rows[0]]):
        write(world.root, "silver/event", wrong, "event_at", "device", "action")
        (output,) = differences(world)
        assert output.startswith("silver: 1 ")
    write(world.root, "silver/event", rows, "event_at", "device", "action")
    write(world.root, "bronze/event", [(n,) for n in range(world.lines - 1)], "n")
    (output,) = differences(world)
    assert output == f"bronze: {world.lines - 1} where {world.lines} belong"


def test_a_wrong_or_doubled_count(world: World) -> None:
    actions = list(world.actions().items())
    wrong = [(actions[0][0], actions[0][1] + 1), *actions[1:]]
    write(world.root, "gold/by_action", wrong, "action", "total")
    assert [output[:22] for output in differences(world)] == ["gold.by_action: 1 too "]
    write(world.root, "gold/by_action", [*actions, actions[0]], "action", "total")
    assert any(output.startswith("rows of gold.by_action: 4") for output in differences(world))


def test_a_missing_or_changed_file(world: World) -> None:
    archived = sorted((world.root / "archive/event").iterdir())
    archived[0].unlink()
    archived[1].write_bytes(b"{}")
    (output,) = differences(world)
    assert f"files gone: {archived[0].name}#1, {archived[1].name}" in output


@pytest.mark.parametrize(
    "strike", [Strike("ENOSPC", 3), Strike("EIO", 2, "storage.files.write_atomic: os.rename")]
)
def test_each_write_can_be_prevented(tmp_path: Path, strike: Strike) -> None:
    """The second of two files, and then the rename of the second: by number, and by place."""
    watch = install()
    watch.begin(tmp_path, strike)
    files.write_atomic(tmp_path / "one", "x")
    with pytest.raises(OSError, match=r"No space|Input/output"):
        files.write_atomic(tmp_path / "two", "x")
    watch.end()
    assert "write_atomic: " in (watch.struck or "")
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
