"""The sample files, landed once into a lakehouse that has never had any."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from medallion.config.model import Config
from medallion.factory.plan import SOURCE_NAMES
from medallion.factory.unread import is_read
from medallion.factory.writing import hidden
from medallion.storage import delta_tables

FILES = Path(__file__).with_name("sample_files")
"""A folder a source. In the project it is a link to data/sample; a wheel has the files."""


def land(config: Config) -> dict[str, int]:
    """Copy the sample into landing; files by source, none if it was ever filled or nobody reads.

    None is shown before all are there: cut off by a full disk, say, the next call begins anew. One
    that was cut off while they were shown is ended.
    """
    files = read_by(config)
    found = {config.layout.landing(name) / f.name: f for name in files for f in files[name]}
    left = [place for place in found if hidden(place).exists()]
    if not left or left[0] == next(iter(found)):  # the first one is shown first
        if _was_filled(config):
            return {}
        for place, file in found.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, hidden(place))
        left = [*found]
    for place in left:
        hidden(place).replace(place)
    return Counter(place.parent.name for place in left)


def read_by(config: Config) -> dict[str, list[Path]]:
    """The files of the sample that a source of the configuration takes in, by source."""
    files = {name: sorted((FILES / name).glob("*.json")) for name in SOURCE_NAMES}
    read = {n: [f for f in fs if is_read(config.sources, n, f.name)] for n, fs in files.items()}
    return {name: files for name, files in read.items() if files}


def _was_filled(config: Config) -> bool:
    """Whether anything ever came: what was rejected, or has no rows, only the ledger tells of. What
    has a hidden name is still to come, as after a call of this module that was cut off."""
    layout = config.layout
    return bool(delta_tables.row_count(layout.table("ops.files"))) or any(
        delta_tables.row_count(layout.table(f"bronze.{name}"))
        or any(
            file.is_file() and not file.name.startswith(".")
            for place in source.folders_in(layout)
            for file in place.rglob("*")
        )
        for name, source in config.sources.items()
    )
