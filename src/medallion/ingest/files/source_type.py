"""The file source type: what works without Spark."""

from __future__ import annotations

from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files import archive, discovery
from medallion.ingest.files.content import estimate_unpacked_size
from medallion.ingest.files.discovery import Discovery, is_lost_file
from medallion.ingest.source import Backlog, Source, SourceType, Verification
from medallion.state import ledger, pending_work
from medallion.storage.text import Reporter, counted


def _open(*given: Any) -> Source:
    """Open a source; Spark is imported here, so that other commands do not load it."""
    from medallion.ingest.files.source import FileSource

    return FileSource(*given)


def _backlog(config: Config, source: SourceConfig) -> Backlog:
    waiting = Discovery(config, source).backlog()
    return Backlog(
        files=len(waiting),
        bytes=sum(file.size for file in waiting),
        unpacked=sum(
            estimate_unpacked_size(config.layout.root / file.path, file.size) for file in waiting
        ),
        oldest=min((file.modified_at for file in waiting), default=None),
    )


def has_new_files(config: Config, source: SourceConfig) -> bool:
    """Return whether bronze has files to read, or its ledger to repair; write nothing."""
    found = Discovery(config, source)
    if discovery.is_queue_behind(config.layout, source.name) or pending_work.lacks_entries(
        config, source.name, ledger.ingested_rows(found.ledger.all_versions())
    ):
        return True  # bronze repairs either when it starts, or refuses, before more is queued
    intake = config.layout.intake(source.name)
    is_behind = pending_work.has_input(config, f"bronze.{source.name}", intake)
    return is_behind or found.has_new_files()


def _poll(config: Config, source: SourceConfig, recorded: int, say: Reporter) -> None:
    found = Discovery(config, source, say)
    found.poll()
    archive.archive_due_files(config, source, found.ledger, recorded, say)


def _rows_in_ledger(config: Config, source: SourceConfig) -> int:
    return ledger.ingested_rows(ledger.read_entries(config.layout, source.name))


def _losses(config: Config, source: SourceConfig) -> list[str]:
    # A file that went and came back has a newer version: the old one is no loss any more.
    newest = ledger.Ledger(config.layout, source.name).newest_entries()
    told = {
        (ledger.VANISHED, "gone without being ingested"): sum(map(is_lost_file, newest)),
        (ledger.PENDING, "not ingested yet"): sum(e.state == ledger.PENDING for e in newest),
    }
    return [
        f"{counted(files, 'file')} {what} (medallion files --state {state})"
        for (state, what), files in told.items()
        if files
    ]


def _verify(config: Config, source: SourceConfig) -> Verification:
    from medallion.ingest.files.verify import verify_files

    return verify_files(config, source)


FILE_SOURCE = SourceType(_open, _backlog, has_new_files, _poll, _rows_in_ledger, _losses, _verify)
