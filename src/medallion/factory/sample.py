"""The sample files, landed once into a lakehouse that has never had any."""

from __future__ import annotations

import shutil
from collections.abc import Set
from pathlib import Path

from medallion.config.model import Config
from medallion.factory.plan import SOURCE_NAMES
from medallion.factory.unread import is_read
from medallion.factory.writing import hidden
from medallion.lakehouse import tables

FILES = Path(__file__).with_name("sample_files")
"""A folder a source. In the project it is a link to data/sample; a wheel has the files."""


def land(config: Config) -> dict[str, int]:
    """Copy the sample into landing; files by source, none if it was ever filled or nobody reads."""
    files = read_by(config)
    found = {name: [config.layout.landing(name) / f.name for f in files[name]] for name in files}
    ours = {hidden(place) for places in found.values() for place in places}
    if _was_filled(config, ours):
        return {}
    # None is shown before all are there: cut off by a full disk, say, the next call begins anew.
    for name, places in found.items():
        places[0].parent.mkdir(parents=True, exist_ok=True)
        for file, place in zip(files[name], places, strict=True):
            shutil.copyfile(file, hidden(place))
    for place in (place for places in found.values() for place in places):
        hidden(place).replace(place)
    return {name: len(places) for name, places in found.items()}


def read_by(config: Config) -> dict[str, list[Path]]:
    """The files of the sample that a source of the configuration takes in, by source."""
    files = {name: sorted((FILES / name).glob("*.json")) for name in SOURCE_NAMES}
    read = {n: [f for f in fs if is_read(config.sources, n, f.name)] for n, fs in files.items()}
    return {name: files for name, files in read.items() if files}


def _was_filled(config: Config, ours: Set[Path]) -> bool:
    """Whether anything ever came: what was rejected, or has no rows, only the ledger tells of.

    `ours` are files that this module has begun to write.
    """
    layout = config.layout
    return bool(tables.row_count(layout.table("ops.files"))) or any(
        tables.row_count(layout.table(f"bronze.{name}"))
        or any(
            file.is_file() and file not in ours
            for place in source.places(layout)
            for file in place.rglob("*")
        )
        for name, source in config.sources.items()
    )
