"""What bronze's stream reads: the files of a source in the order in which they were handed over.

That is a Delta table of paths, `_intake/<source>`, with one commit for each micro-batch. So a batch
is bounded by files and by bytes at once, and the stream's checkpoint is a place in this table.
Spark's own file source is bounded by one of the two, keeps every path for ever in its log and in
memory, stops at a file that cannot be read, and does not survive that the folder is moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from medallion.config.model import SourceConfig
from medallion.ingest.files.codecs import unpacked_size
from medallion.spark import checkpoints
from medallion.state import pending_work
from medallion.state.ledger import Entry
from medallion.storage import delta_tables, records
from medallion.storage.paths import Layout
from medallion.storage.table_specs import INTAKE


def prepare(table: Path) -> None:
    """Make the table unless it is there, so that a stream can read it before the first file."""
    records.append_records(table, INTAKE, [])


def is_behind(layout: Layout, source: str) -> bool:
    """Return whether bronze's checkpoint has read more than this table has, or another table.

    A corrupt commit was moved away, or the table was. Bronze would pass over what is queued now.

    Raises:
        MedallionError: the checkpoint is corrupt.
    """
    checkpoint, table = layout.checkpoint(f"bronze.{source}"), layout.intake(source)
    begun = checkpoints.last_planned(checkpoint)
    if not delta_tables.table_exists(table):
        return begun >= 0
    return checkpoints.reads_other_table(checkpoint, begun, table) or pending_work.has_read_more(
        checkpoint, table
    )


def hand_over(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> None:
    """Append files, the oldest first, in as many commits as they make micro-batches."""
    in_order = sorted(files, key=lambda file: (file.modified_at, file.path))
    for batch in _batches(layout, source, in_order):
        records.append_records(layout.intake(source.name), INTAKE, map(asdict, batch))


def _batches(layout: Layout, source: SourceConfig, files: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Cut a list where the next file would be one too many, or its bytes; one file always fits."""
    batch: list[Entry] = []
    size = 0
    for file in files:
        more = unpacked_size(layout.root / file.path, file.size)
        is_full = (
            len(batch) == source.max_files_per_trigger or size + more > source.max_bytes_per_trigger
        )
        if batch and is_full:
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += more
    if batch:
        yield batch
