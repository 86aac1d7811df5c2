"""Files from anywhere taken in once, by this process or by the stream that is on already."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medallion import lock
from medallion.config import Config, Source
from medallion.errors import UsageError
from medallion.ingest import ledger, requests
from medallion.ingest.files import list_files
from medallion.ingest.ledger import PENDING, REJECTED, TAKEN, VANISHED, Entry
from medallion.layout import plain
from medallion.opening import open_pipeline
from medallion.pipeline import LAYERS, Say

_PATIENCE = 0.5


@dataclass(frozen=True)
class Backfilled:
    """What became of the files: how many are new, their rows, and those that were not taken in."""

    files: int
    new_files: int
    rows: int
    refused: tuple[Entry, ...]

    def as_json(self) -> dict[str, Any]:
        """One document for `--json`."""
        refused = [{"path": entry.path, "why": entry.why} for entry in self.refused]
        return {
            "files": self.files,
            "new_files": self.new_files,
            "rows": self.rows,
            "refused": refused,
        }

    def as_text(self) -> str:
        """A sentence, and a line for each file that was not taken in."""
        known = self.files - self.new_files
        lines = [
            f"{self.files:,} files: {self.new_files:,} taken in with {self.rows:,} rows, "
            f"{known:,} known before or refused"
        ]
        return "\n".join([*lines, *(f"  {e.path}: {e.state}: {e.why}" for e in self.refused)])


def backfill(config: Config, name: str, path: Path, say: Say, debug: bool = False) -> Backfilled:
    """Take in a file, or all below a folder, whatever their age; each once.

    Raises:
        UsageError: there is no such source or path.
    """
    source = _source(config, name)
    path = plain(path)
    if not path.exists():
        raise UsageError(f"{path}: there is no such file or folder.")
    listed = list_files(config.layout, source, [path])
    paths = {*(f.path for f in listed.files), *(u.path for u in listed.unfit)}
    before = _newest(config, source)
    request = requests.ask(config.layout, source.name, path)
    if _taken_in_by_another(config, source, paths, request, say):
        say("taken in")
    else:
        with open_pipeline(config, "backfill", LAYERS, say, debug) as pipeline:
            for layer in LAYERS:
                pipeline.run(layer)
    after = {path: entry for path, entry in _newest(config, source).items() if path in paths}
    new = [e for p, e in after.items() if e.state in TAKEN and _is_other(before.get(p), e)]
    refused = tuple(e for e in after.values() if e.state in (REJECTED, VANISHED))
    return Backfilled(len(paths), len(new), sum(e.rows or 0 for e in new), refused)


def _source(config: Config, name: str) -> Source:
    if name not in config.sources:
        raise UsageError(f"there is no source {name}; there are {', '.join(config.sources)}.")
    return config.sources[name]


def _is_other(before: Entry | None, entry: Entry) -> bool:
    return before is None or before.version != entry.version or before.state not in TAKEN


def _newest(config: Config, source: Source) -> dict[str, Entry]:
    return {entry.path: entry for entry in ledger.read(config.layout, source.name)}


def _taken_in_by_another(
    config: Config, source: Source, paths: set[str], request: requests.Request, say: Say
) -> bool:
    """Wait while another process runs bronze; whether it has taken everything in."""
    told = False
    while True:
        # Asked in this order: a process that ends between the two has done what it did before.
        holder = lock.holder(config.layout, "bronze")
        newest = _newest(config, source)
        is_open = any(p not in newest or newest[p].state == PENDING for p in paths)
        if holder is None or not (request.is_open or is_open):
            return holder is not None
        if not told:
            say(f"asked of {holder}, which takes the files in beside what lands")
            told = True
        time.sleep(_PATIENCE)
