"""The sample files, landed once into a lakehouse that has never had any."""

from __future__ import annotations

import shutil
from pathlib import Path

from medallion.config.loader import Config
from medallion.errors import UsageError
from medallion.lakehouse import tables


def land(config: Config) -> dict[str, int]:
    """Copy `data/sample/<source>/` into landing; files by source, empty if it was ever filled.

    Raises:
        UsageError: the sample files are not there.
    """
    sample = config.conf_dir.parent / "data/sample"
    if _was_filled(config):
        return {}
    if not sample.is_dir():
        raise UsageError(
            f"{sample}: there are no sample files beside this configuration; land files in "
            f"{config.layout.root / 'landing'}, a folder a source, and run medallion nightly."
        )
    return {name: _copy(sample / name, config.layout.landing(name)) for name in config.sources}


def _was_filled(config: Config) -> bool:
    return any(
        tables.row_count(config.layout.table(f"bronze.{name}"))
        or any(f.is_file() for f in config.layout.landing(name).rglob("*"))
        for name in config.sources
    )


def _copy(source: Path, landing: Path) -> int:
    landing.mkdir(parents=True, exist_ok=True)
    files = sorted(source.glob("*.json"))
    for file in files:
        # Spark passes over names that begin with a dot: the file appears whole or not at all.
        hidden = landing / f".{file.name}"
        shutil.copyfile(file, hidden)
        hidden.replace(landing / file.name)
    return len(files)
