"""Files as a source type: the operations that need no Spark."""

from collections.abc import Iterable
from typing import Any

from medallion.config.model import Config, SourceConfig
from medallion.ingest.files import archive
from medallion.ingest.files.content import estimate_unpacked_size
from medallion.ingest.files.discovery import Discovery, is_lost_file, is_queue_behind, is_ready
from medallion.ingest.files.verify import verify_files
from medallion.ingest.source import Backlog, Source, SourceScan, SourceType
from medallion.state import ledger, pending_work
from medallion.state.ledger import Entry, ReasonCode, State
from medallion.storage.text import Reporter, counted


def _open(*arguments: Any) -> Source:
    from medallion.ingest.files.source import FileSource  # here: it imports Spark

    return FileSource(*arguments)


def _backlog(config: Config, source: SourceConfig) -> Backlog:
    return backlog_of(Discovery(config, source).entries())


def backlog_of(entries: Iterable[Entry]) -> Backlog:
    """Return the backlog among entries of the ledger."""
    waiting = list(filter(is_ready, entries))
    return Backlog(
        files=len(waiting),
        bytes=sum(file.size for file in waiting),
        unpacked=sum(estimate_unpacked_size(file.path, file.size) for file in waiting),
        oldest=min((file.modified_at for file in waiting), default=None),
    )


def scan_files(config: Config, source: SourceConfig) -> SourceScan:
    """Scan a source's directories, unless bronze has to repair its queue or ledger first."""
    discovery = Discovery(config, source)
    rows = ledger.ingested_rows(discovery.ledger.all_versions())
    if is_queue_behind(config.layout, source.name) or pending_work.lacks_entries(
        config, source.name, rows
    ):
        return SourceScan(has_work=True)  # bronze repairs them, or raises, before it enqueues
    result = discovery.scan()
    queue = config.layout.queue(source.name)
    is_behind = pending_work.has_input(config, f"bronze.{source.name}", queue)

    def enqueue(recorded: int, report: Reporter) -> None:
        discovery.enqueue(result, report)
        archive.archive_due_files(config, source, discovery.ledger, recorded, report)

    # Files that were being written may be complete when the query starts.
    is_written = all(each.reason_code != ReasonCode.BEING_WRITTEN for each in result.changed)
    backlog, valid = backlog_of(discovery.entries(result)), result if is_written else None
    return SourceScan(is_behind or bool(result.new), enqueue, backlog, valid)


def _rows_in_ledger(config: Config, source: SourceConfig) -> int:
    return ledger.ingested_rows(ledger.read_entries(config.layout, source.name))


def _losses(config: Config, source: SourceConfig) -> list[str]:
    # A file that was gone and came back has a newer version, and is not a loss.
    newest = ledger.Ledger(config.layout, source.name).newest_entries()
    counts = {
        (State.VANISHED, "gone without being ingested"): sum(map(is_lost_file, newest)),
        (State.PENDING, "not ingested yet"): sum(e.state == State.PENDING for e in newest),
    }
    return [
        f"{counted(files, 'file')} {problem} (medallion files --state {state})"
        for (state, problem), files in counts.items()
        if files
    ]


FILE_SOURCE = SourceType(_open, _backlog, scan_files, _rows_in_ledger, _losses, verify_files)
