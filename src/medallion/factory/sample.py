"""The sample files, landed once into a lakehouse that has never had any."""

from __future__ import annotations

import shutil
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
    if _was_filled(config):
        return {}
    found = read_by(config)
    return {name: _copy(files, config.layout.landing(name)) for name, files in found.items()}


def read_by(config: Config) -> dict[str, list[Path]]:
    """The files of the sample that a source of the configuration takes in, by source."""
    files = {name: sorted((FILES / name).glob("*.json")) for name in SOURCE_NAMES}
    read = {n: [f for f in fs if is_read(config.sources, n, f.name)] for n, fs in files.items()}
    return {name: files for name, files in read.items() if files}


def _was_filled(config: Config) -> bool:
    """Whether anything ever came: what was rejected, or has no rows, only the ledger tells of."""
    layout = config.layout
    return bool(tables.row_count(layout.table("ops.files"))) or any(
        tables.row_count(layout.table(f"bronze.{name}"))
        or any(file.is_file() for place in source.places(layout) for file in place.rglob("*"))
        for name, source in config.sources.items()
    )


def _copy(files: list[Path], landing: Path) -> int:
    landing.mkdir(parents=True, exist_ok=True)
    for file in files:
        place = landing / file.name
        shutil.copyfile(file, hidden(place))
        hidden(place).replace(place)
    return len(files)
