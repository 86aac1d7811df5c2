"""Checkpoints that are torn or gone, or not those of their tables any more: repaired where
nothing can be lost, and told where not."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from medallion.errors import MedallionError, UsageError
from medallion.spark import checkpoints
from medallion.storage import delta_log, delta_tables

_BATCHES = ("offsets", "commits")


def repair_checkpoint(checkpoint: Path, targets: Sequence[Path]) -> Path | None:
    """Remove what is torn and Spark makes again: the commit of the last batch, or its offsets.

    Without its commit a batch runs again, and what it has written already is known by its number.
    Without its offsets it is planned anew, which may be done as long as it has written nothing.

    Args:
        targets: the tables that the query writes.

    Returns:
        The part that is torn or missing and beyond repair; None where all is well.
    """
    checkpoints.remove_remnants(checkpoint)
    while part := checkpoints.corrupt_part(checkpoint):
        batch = checkpoints.last_planned(checkpoint)
        is_end = part == checkpoint / "commits" / str(batch)
        is_plan = part == checkpoint / "offsets" / str(batch)
        has_ended = checkpoints.last_committed(checkpoint) >= batch
        if not part.is_file() or not (is_end or (is_plan and not has_ended)):
            return part
        if is_plan and has_written(checkpoint, targets, batch):
            return part
        part.unlink()
        checkpoints.remove_remnants(checkpoint)
    return None


def has_written(checkpoint: Path, targets: Iterable[Path], batch: int) -> bool:
    """Whether a batch has rows in any of the tables that its query writes."""
    query = checkpoints.query_id(checkpoint)
    return any(delta_log.committed_version(table, query, batch) is not None for table in targets)


def has_started_writing(checkpoint: Path, targets: Iterable[Path]) -> bool:
    """Whether its last batch has rows in its tables, though it may have been cut off then."""
    batch = checkpoints.last_planned(checkpoint)
    if batch < 0 or checkpoints.corrupt_part(checkpoint):  # which is refused, or counted anew
        return False
    return has_written(checkpoint, targets, batch)


def has_unrecorded(checkpoint: Path, targets: Iterable[Path], recorded: int) -> bool:
    """Whether a batch after the last one on record has ended, or has been cut off after it wrote.

    A batch that was cut off before its first write runs again as if it had never begun. Of one
    whose checkpoint is torn nobody knows, so that it counts as one that has written.
    """
    begun = checkpoints.last_planned(checkpoint)
    if checkpoints.last_committed(checkpoint) > recorded:
        return True
    if begun <= recorded:
        return False
    return checkpoints.corrupt_part(checkpoint) is not None or has_written(
        checkpoint, targets, begun
    )


def find_mismatch(checkpoint: Path, targets: Sequence[Path]) -> str | None:
    """Repair a checkpoint; why it and the tables of its query do not belong together even then.

    Somebody has moved a table away, or put back an older copy of the checkpoint: the numbers of its
    next batches are in the table already, and Delta would pass over their rows. (A merge has no
    number in the log, and needs none: it may be done again.)

    Args:
        checkpoint: the query's.
        targets: the tables, first the one that most batches write.
    """
    if part := repair_checkpoint(checkpoint, targets):
        return f"{part} is missing or torn"
    if checkpoints.last_committed(checkpoint) < 0:
        return None
    if gone := next((table for table in targets if not delta_tables.table_exists(table)), None):
        return f"{gone} is gone"
    query, begun = checkpoints.query_id(checkpoint), checkpoints.last_planned(checkpoint)
    if any(delta_log.newest_transaction(table, query) > begun for table in targets[:1]):
        return f"{checkpoint} is older than what its batches have written"
    return None


def refuse_lost_checkpoint(
    name: str, checkpoint: Path, targets: Sequence[Path], recorded: int
) -> None:
    """Raise UsageError where a table has rows of batches that its checkpoint knows nothing of.

    A query without its checkpoint begins anew, and would write all of them a second time.

    Args:
        recorded: the last of its batches that is on record.
    """
    again = f"medallion refresh {name} rebuilds the table and its checkpoint."
    if why := find_mismatch(checkpoint, targets):
        raise UsageError(f"{name} cannot go on, for {why}: {again}")
    begun = checkpoints.last_planned(checkpoint)
    is_another_s = begun < 0 or _is_written_by_another(checkpoint, targets)
    if begun < recorded or (is_another_s and any(map(delta_tables.row_count, targets))):
        raise UsageError(
            f"{name} cannot go on, for {checkpoint} does not have the batches that have written "
            f"its rows: {again}"
        )


def _is_written_by_another(checkpoint: Path, targets: Sequence[Path]) -> bool:
    """Whether the first table was written last by a query with another checkpoint."""
    writers = set(map(delta_log.newest_application, targets[:1])) - {None}
    return bool(writers - {checkpoints.query_id(checkpoint)})


def refuse_unrecorded(name: str, checkpoint: Path, recorded: int, upstream: Path) -> None:
    """Raise UsageError where batches are not on record, and what they read cannot be found out.

    Spark keeps the offsets of a hundred batches, and maintenance removes commits once the record
    says that they were read. An older copy of the record, or none, may lack more batches than that.

    Args:
        recorded: the last of its batches that is on record.
        upstream: the table that it reads.
    """
    done = checkpoints.last_committed(checkpoint)
    if done <= recorded:
        return
    try:
        for batch in range(recorded, done + 1):
            checkpoints.source_offsets(checkpoint, batch)
        # The first batch has read the table as it was when that ended.
        first = checkpoints.delta_offset(checkpoint, max(recorded, 0)).version - (recorded < 0)
        is_kept = first >= delta_tables.earliest_version(upstream)
    except MedallionError:
        is_kept = False
    if not is_kept:
        raise UsageError(
            f"{name} cannot go on, for its batches {recorded + 1} to {done} are not on record, and "
            f"what they have read is not kept any more: medallion refresh {name} rebuilds the "
            "table and its checkpoint."
        )


def drop_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint, so that its query begins anew.

    The note of the definition by which the table was made stays: should the process die before the
    query has begun, the next one has to know it. And the metadata goes first: without it, what is
    left of the batches by then counts as torn, and is removed as well.
    """
    (checkpoint / "metadata").unlink(missing_ok=True)
    for part in sorted(checkpoint.iterdir(), key=lambda each: each.name in _BATCHES):
        if part.is_dir():
            shutil.rmtree(part)
        elif part.name != "definition.json":
            part.unlink()
