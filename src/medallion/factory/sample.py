"""Landing of the sample files, and checks that a source reads them."""

from collections import Counter
from collections.abc import Container, Mapping
from pathlib import Path

from medallion.config.model import Config, SourceConfig
from medallion.config.values import matches_pattern
from medallion.errors import UsageError
from medallion.factory.plan import SOURCE_NAMES, BatchPlan, batch_files
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

FILES = Path(__file__).with_name("sample_files")
"""One directory per source. In the project it is a link to data/sample; a wheel has the files."""


def land(config: Config) -> dict[str, int]:
    """Copy the sample into landing if nothing else ever landed; return the files by source.

    An interrupted landing is completed.
    """
    files = {config.layout.landing(s) / f.name: f for s, fs in read_by(config).items() for f in fs}
    if _has_other_files(config, files):
        return {}
    missing = [path for path in files if not path.is_stored()]
    for path in missing:
        path.write_atomic(files[path].read_bytes())
    return Counter(path.parent.name for path in missing)


def read_by(config: Config) -> dict[str, list[Path]]:
    """Return the files of the sample that a source of the configuration reads, by source."""
    files = {name: sorted((FILES / name).glob("*.json")) for name in SOURCE_NAMES}
    read = {n: [f for f in fs if _is_read(config.sources, n, f.name)] for n, fs in files.items()}
    return {name: files for name, files in read.items() if files}


def refuse_unread(sources: Mapping[str, SourceConfig], source: str | None) -> None:
    """Raise UsageError unless sources read the generated files of `source`, or of all if None."""
    files = {n: batch_files(BatchPlan(n, 1, 1, False, 1, 1), None)[0].name for n in SOURCE_NAMES}
    read = [name for name, file in files.items() if _is_read(sources, name, file)]
    if unread := [n for n in SOURCE_NAMES if n not in read and source in (None, n)]:
        other = f"use --source {read[0]}" if read else "land files of your own sources"
        missing = f"no source {unread[0]} of JSON lines that reads {files[unread[0]]}"
        raise UsageError(f"pipeline.yaml has {missing}: {other}.")


def _is_read(sources: Mapping[str, SourceConfig], name: str, file: str) -> bool:
    """Return True if a source of that name reads JSON lines of that file name."""
    source = sources.get(name)
    if source is None or source.format != "json" or source.multi_line:
        return False
    return matches_pattern(file, source.pattern)


def _has_other_files(config: Config, sample: Container[StoragePath]) -> bool:
    """Return True if files other than the sample's landed, or any file was ever ingested."""
    layout = config.layout
    return delta_tables.row_count(layout.table("ops.files")) > 0 or any(
        not file.name.startswith(".") and file not in sample
        for source in config.sources.values()
        for directory in source.folders_in(layout)
        for file in directory.files_below()
    )
