"""Damage to a lakehouse between two runs: corrupt or missing files, and changed settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import yaml

from medallion.storage.layout import Layout
from tests.faults.world import World
from tests.support import PROJECT


def new_conf(folder: Path, world: World) -> Path:
    """Write the configuration of a world, and the suites of its tables."""
    folder.mkdir(parents=True)
    _write(folder, world.document())
    for source in world.sources:
        for name in (f"bronze/{source}", f"silver/{source}"):
            shipped = PROJECT / "conf" / _suite(name)
            if shipped.is_file():
                (folder / _suite(name)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(shipped, folder / _suite(name))
    write_suites(folder, world)
    return folder


def _suite(name: str) -> str:
    return f"great_expectations/expectations/{name}.json"


def write_suites(conf: Path, world: World) -> None:
    """Write the world's current rules, as a user does between two runs."""
    for name, rules in world.suites().items():
        suite = {"name": name.replace("/", "."), "expectations": rules, "meta": {}}
        file = conf / _suite(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(suite), encoding="utf-8")


def edit(conf: Path, world: World) -> str:
    """Change one setting, as a user does between two runs."""
    random = world.random
    document = yaml.safe_load((conf / "pipeline.yaml").read_text(encoding="utf-8"))
    path, values = random.choice(world.edits)
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = random.choice([v for v in values if v != node.get(path[-1])])
    _write(conf, document)
    return f"{'.'.join(path)}: {node[path[-1]]}"


def _write(conf: Path, document: Any) -> None:
    (conf / "pipeline.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def damage_checkpoint(root: Path, random: Random, damage_type: str, query: str) -> str | None:
    """Damage a checkpoint as a power cut or a user does; return None if nothing was damaged."""
    checkpoint = Layout(root).checkpoint(query)
    if damage_type == "checkpoint gone":
        if not checkpoint.local.is_dir():
            return None
        shutil.rmtree(checkpoint)
        return query
    action, _, part = damage_type.partition(" of ")
    folder = checkpoint / part
    numbered = (
        [f for f in folder.local.iterdir() if f.name.isdigit()] if folder.local.is_dir() else []
    )
    if not numbered:
        return None
    newest = max(numbered, key=lambda file: int(file.name))
    checksum = newest.with_name(f".{newest.name}.crc")
    if action == "last deleted":
        newest.unlink()
        checksum.unlink(missing_ok=True)
    else:
        content = newest.read_bytes()
        newest.write_bytes(content[: random.choice((0, len(content) // 2))])
        if random.random() < 0.5:  # the checksum may or may not be on disk
            checksum.unlink(missing_ok=True)
    return f"{query}/{part}/{newest.name}"


DAMAGE_TYPES = (
    "last deleted of commits",
    "last truncated of commits",
    "last deleted of offsets",
    "last truncated of offsets",
    "checkpoint gone",
)
