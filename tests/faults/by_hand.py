"""The final state of a lakehouse, written without medallion, for tests of the comparison."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import arro3.core as arrow
from deltalake import write_deltalake

from tests.faults.check import TIMES
from tests.faults.world import World

TIME = arrow.DataType.timestamp("us", tz="UTC")


def finish(world: World) -> None:
    """Move the landed files to archive or rejected, and write the resulting tables."""
    root = world.root
    for source in world.sources:
        for file in (root / "landing" / source).glob("*"):
            target = root / ("rejected" if file.name in world.rejected else "archive") / source
            target.mkdir(parents=True, exist_ok=True)
            if not (target / file.name).exists():  # a file with the name of an archived one stays
                file.rename(target / file.name)
    for table, (names, rows) in world.expected().items():
        write(
            root, table, rows.elements() if names else [(n,) for n in range(rows.total())], *names
        )
    names, rows = world.expected()[f"gold/{world.published}"]
    published = root / "publish" / world.published / "00000000"
    published.mkdir(parents=True, exist_ok=True)
    output = {"_change_type": "insert", "_commit_version": 1}
    lines = [dict(zip(names, row, strict=True)) | output for row in rows.elements()]
    (published / "part.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    (published / "_files.json").write_text(json.dumps({"files": ["part.json"]}))


def erase(world: World, source: str, key: str) -> None:
    """Rewrite all files without the lines of a key."""
    for file in [f for d in ("landing", "archive") for f in (world.root / d / source).glob("*")]:
        if file.name not in world.rejected:
            is_compressed = file.suffix == ".gz"
            content = gzip.decompress(file.read_bytes()) if is_compressed else file.read_bytes()
            lines = content.splitlines(keepends=True)
            remaining = b"".join(line for line in lines if f'"{key}"'.encode() not in line)
            if remaining != content:
                file.write_bytes(gzip.compress(remaining) if is_compressed else remaining)


def write(root: Path, table: str, rows: Iterable[Sequence[Any]], *names: str) -> None:
    """Replace a table by one with these rows."""
    names = names or ("n",)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    arrays = [_array(name, column) for name, column in zip(names, columns, strict=True)]
    table_ = arrow.Table.from_arrays(arrays, names=list(names))
    write_deltalake(str(root / table), table_, mode="overwrite", schema_mode="overwrite")


def _array(name: str, values: Sequence[Any]) -> arrow.Array:
    if name in TIMES:
        micros = [round(at.timestamp()) * 1_000_000 for at in values]
        return arrow.Array(micros, arrow.DataType.int64()).cast(TIME)
    types = {str: arrow.DataType.string(), bool: arrow.DataType.bool()}
    first = next((value for value in values if value is not None), 0)
    return arrow.Array(values, types.get(type(first), arrow.DataType.int64()))
