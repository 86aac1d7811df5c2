"""The comparison of a walk detects each type of loss."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from medallion.storage import files
from tests.faults.by_hand import finish, write
from tests.faults.check import differences
from tests.faults.events import Events
from tests.faults.shop import Change, Shop
from tests.faults.writes import Strike, install


@pytest.fixture
def world(tmp_path: Path) -> Events:
    """Return a world of thirty files in its correct final state."""
    world = Events(tmp_path, Random(3))
    for _ in range(30):
        world.land()
    finish(world)
    return world


def test_differences_intact_lakehouse(world: Events) -> None:
    assert differences(world) == []
    assert min(world.broken, world.duplicates, len(world.rejected)) > 0
    assert world.lines == world.broken + world.duplicates + world.silver().total()


def test_differences_missing_or_surplus_row(world: Events) -> None:
    rows = list(world.silver().elements())
    for wrong in (rows[1:], [*rows, rows[0]]):
        write(world.root, "silver/event", wrong, "event_at", "device", "action")
        (output,) = differences(world)
        assert output.startswith("silver/event: 1 ")
    write(world.root, "silver/event", rows, "event_at", "device", "action")
    write(world.root, "bronze/event", [(n,) for n in range(world.lines - 1)], "n")
    (output,) = differences(world)
    assert output.startswith("bronze/event: 1 missing")


def test_differences_wrong_or_duplicate_count(world: Events) -> None:
    actions = list(world.actions().items())
    wrong = [(actions[0][0], actions[0][1] + 1), *actions[1:]]
    write(world.root, "gold/by_action", wrong, "action", "total")
    missing, surplus = differences(world)
    assert missing.startswith("gold/by_action: 1 missing")
    assert surplus.startswith("gold/by_action: 1 too many")
    write(world.root, "gold/by_action", [*actions, actions[0]], "action", "total")
    (output,) = differences(world)
    assert output.startswith("gold/by_action: 1 too many")


def test_differences_missing_or_changed_file(world: Events) -> None:
    archived = sorted((world.root / "archive/event").iterdir())
    archived[0].unlink()
    archived[1].write_bytes(b"{}")
    (output,) = differences(world)
    assert f"files gone: {archived[0].name}#1, {archived[1].name}" in output


def test_differences_erased_key_in_a_file(world: Events) -> None:
    device = world.keys("event")[0]
    world.erase("event", device)
    finish(world)
    (output, *_) = differences(world)
    assert output.startswith(f"{device} was erased, and is in 0")


def test_shop_expected_tables(tmp_path: Path) -> None:
    """Changes out of order, a duplicate, a delete, and an amount above the limit."""
    shop = Shop(tmp_path, Random(3))
    shop.changes["orders"] = [
        Change("o1", 7, False, "Ulm", 5, (("nut", 2),)),
        Change("o1", 3, False, "Bonn", 5, (("nut", 1), ("bolt", 4))),
        Change("o2", 1, False, "Bonn", 50, (("nut", 1),)),
        Change("o2", 2, is_delete=True),
        Change("o3", 1, False, "Jena", 60, (("nail", 3),)),
        Change("o1", None),
    ]
    moves = [Change("c1", 5, value="Ulm"), Change("c1", 2, value="Bonn"), Change(None)]
    shop.changes["customers"] = [*moves, moves[0], Change("c1", 9, is_delete=True)]
    tables = shop.expected()
    assert tables["bronze/orders"][1][()] == 6
    assert tables["quarantine/orders"][1][()] == 2
    assert set(tables["silver/orders"][1]) == {("o1", "Ulm", 5)}
    assert set(tables["silver/order_items"][1]) == {("o1", 0, "nut", 2)}
    assert set(tables["gold/sold"][1]) == {("nut", 2)}
    spans = {("c1", "Bonn", 2, 5, False), ("c1", "Ulm", 5, 9, False)}
    assert set(tables["silver/customers"][1]) == spans
    assert not tables["gold/by_city"][1]
    assert shop.relax() == "amounts up to 60"
    shop.erase("orders", "o1")
    tables = shop.expected()
    assert tables["quarantine/orders"][1].total() == 0
    assert set(tables["gold/sold"][1]) == {("nail", 3)}


@pytest.mark.parametrize(
    "strike", [Strike("ENOSPC", 3), Strike("EIO", 2, ("storage.files.write_atomic: os.rename",))]
)
def test_watch_prevents_a_write(tmp_path: Path, strike: Strike) -> None:
    """The second of two files is not written, and the first is kept."""
    watch = install()
    watch.begin(tmp_path, strike)
    files.write_atomic(tmp_path / "one", "x")
    with pytest.raises(OSError, match=r"No space|Input/output"):
        files.write_atomic(tmp_path / "two", "x")
    watch.end()
    assert "write_atomic: " in (watch.struck or "")
    assert [file.name for file in tmp_path.iterdir()] == ["one"]
