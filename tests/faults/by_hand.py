"""A lakehouse at rest without medallion: what a comparison must find to be right."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import arro3.core as arrow
from deltalake import write_deltalake

from tests.faults.world import World

TIME = arrow.DataType.timestamp("us", tz="UTC")


def finish(world: World) -> None:
    """Put the files that landed where they belong, and write the tables that come of them."""
    root = world.root
    for file in [f for d in (world.landing, root / "elsewhere") for f in d.glob("*")]:
        place = root / ("rejected" if file.name in world.refused else "archive") / "event"
        place.mkdir(parents=True, exist_ok=True)
        if not (place / file.name).exists():  # a namesake stays where it is
            file.rename(place / file.name)
    write(root, "bronze/event", [(n,) for n in range(world.lines)], "n")
    write(root, "quarantine/event", [(n,) for n in range(world.broken)], "n")
    write(root, "silver/event", world.silver().elements(), "event_at", "device", "action")
    windows = [(*key, n) for key, n in world.windows().items()]
    write(root, "gold/by_window", windows, "window_start", "action", "total")
    write(root, "gold/by_action", world.actions().items(), "action", "total")
    published = root / "publish/by_action/00000000"
    published.mkdir(parents=True, exist_ok=True)
    output = {"_change_type": "insert", "_commit_version": 1}
    lines = [{"action": action, "total": n, **output} for action, n in world.actions().items()]
    (published / "part.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (published / "_files.json").write_text(json.dumps({"files": ["part.json"]}))


def write(root: Path, table: str, rows: Iterable[Sequence[Any]], *names: str) -> None:
    """A table of these rows, in place of the one that is there."""
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [_array(name, column) for name, column in zip(names, columns, strict=True)]
    table_ = arrow.Table.from_arrays(arrays, names=list(names))
    write_deltalake(str(root / table), table_, mode="overwrite")


def _array(name: str, values: Sequence[Any]) -> arrow.Array:
    if name in ("event_at", "window_start"):
        micros = [round(at.timestamp()) * 1_000_000 for at in values]
        return arrow.Array(micros, arrow.DataType.int64()).cast(TIME)
    is_text = name in ("device", "action")
    return arrow.Array(values, arrow.DataType.string() if is_text else arrow.DataType.int64())
