"""What may happen to a lakehouse between two runs: files torn and gone, settings edited."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import yaml

from medallion.storage.paths import Layout
from tests.support import PROJECT

QUERIES = (
    "bronze.event",
    "silver.event",
    "gold.by_window",
    "gold.by_action",
    "publish.by_action.files",
)
SUITES = ("bronze/event.json", "silver/event.json")
# The delays that Spark changes without a word, the cut of batches, and what only a refresh may
# change: the walk edits one of them at a time.
EDITS: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
    (("sources", "event", "watermark"), ("1 hour", "10 minutes", "2 hours")),
    (("sources", "event", "max_files_per_trigger"), (1, 2, 1000)),
    (("sources", "event", "schema_evolution"), ("addNewColumns", "rescue")),
    (("sources", "event", "silver", "shown"), ("action", "trim(action)")),
    (("gold", "by_window", "output_mode"), ("update", "complete")),
)


def new_conf(folder: Path) -> Path:
    """A configuration of one source, and of gold in both output modes, one of them published."""
    project = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text(encoding="utf-8"))
    measure = {"total": "count(*)"}
    gold: dict[str, Any] = {"source": "silver.event", "group_by": ["action"], "measure": measure}
    project["sources"]["event"]["silver"]["shown"] = "action"  # no key, which a refresh may change
    document = {
        "sources": {"event": project["sources"]["event"]},
        "gold": {
            "by_window": {**gold, "window": "10 minutes"},
            "by_action": {
                **gold,
                "output_mode": "update",
                "publish": {"files": {"format": "json"}},
            },
        },
    }
    folder.mkdir(parents=True)
    _write(folder, document)
    quality = "great_expectations"
    for name in SUITES:
        there = folder / quality / "expectations" / name
        there.parent.mkdir(parents=True)
        shutil.copy(PROJECT / "conf" / quality / "expectations" / name, there)
    return folder


def edit(conf: Path, random: Random) -> str:
    """Give one setting another value, as a person would between two runs."""
    document = yaml.safe_load((conf / "pipeline.yaml").read_text(encoding="utf-8"))
    path, values = random.choice(EDITS)
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = random.choice([v for v in values if v != node.get(path[-1])])
    _write(conf, document)
    return f"{'.'.join(path)}: {node[path[-1]]}"


def _write(conf: Path, document: Any) -> None:
    (conf / "pipeline.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def tear(root: Path, random: Random, kind: str, query: str) -> str | None:
    """Damage a checkpoint as a power cut or a person does; None where there is nothing to."""
    checkpoint = Layout(root).checkpoint(query)
    if kind == "checkpoint gone":
        if not checkpoint.local.is_dir():
            return None
        shutil.rmtree(checkpoint)
        return query
    what, _, part = kind.partition(" of ")
    folder = checkpoint / part
    numbered = (
        [f for f in folder.local.iterdir() if f.name.isdigit()] if folder.local.is_dir() else []
    )
    if not numbered:
        return None
    newest = max(numbered, key=lambda file: int(file.name))
    checksum = newest.with_name(f".{newest.name}.crc")
    if what == "last deleted":
        newest.unlink()
        checksum.unlink(missing_ok=True)
    else:
        content = newest.read_bytes()
        newest.write_bytes(content[: random.choice((0, len(content) // 2))])
        if random.random() < 0.5:  # the sum may be on disk, and may be not
            checksum.unlink(missing_ok=True)
    return f"{query}/{part}/{newest.name}"


TEARS = (
    "last deleted of commits",
    "last truncated of commits",
    "last deleted of offsets",
    "last truncated of offsets",
    "checkpoint gone",
)
