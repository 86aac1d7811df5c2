"""Repair of corrupt checkpoints, and refusal of those that do not belong to their tables."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.storage import delta_log, delta_tables

_BATCHES = ("offsets", "commits")


def repair_checkpoint(checkpoint: Path, targets: Sequence[Path]) -> Path | None:
    """Remove the corrupt end of a checkpoint that Spark writes again.

    A batch without its commit runs again, and its number shows what it has written already. A batch
    without its offsets is planned again, which is safe only if it has written nothing.

    Args:
        checkpoint: the checkpoint of a query.
        targets: the tables that the query writes.

    Returns:
        The part that is corrupt or missing and cannot be repaired; None if there is none.
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
    """Return whether a batch has rows in any of the tables that its query writes.

    Args:
        checkpoint: the checkpoint of the query.
        targets: the tables.
        batch: the number of the batch.
    """
    query = checkpoints.query_id(checkpoint)
    return any(delta_log.committed_version(table, query, batch) is not None for table in targets)


def has_started_writing(checkpoint: Path, targets: Iterable[Path]) -> bool:
    """Return whether the last planned batch has rows in any of its query's tables."""
    batch = checkpoints.last_planned(checkpoint)
    if batch < 0 or checkpoints.corrupt_part(checkpoint):  # which is refused
        return False
    return has_written(checkpoint, targets, batch)


def has_unrecorded(checkpoint: Path, targets: Iterable[Path], recorded: int) -> bool:
    """Return whether a batch after the last recorded one has ended or written something.

    A batch that was interrupted before its first write runs again from its start. A batch of a
    corrupt checkpoint counts as one that has written.

    Args:
        checkpoint: the checkpoint of a query.
        targets: the tables that the query writes.
        recorded: the last recorded batch.
    """
    planned = checkpoints.last_planned(checkpoint)
    if checkpoints.last_committed(checkpoint) > recorded:
        return True
    if planned <= recorded:
        return False
    return checkpoints.corrupt_part(checkpoint) is not None or has_written(
        checkpoint, targets, planned
    )


def find_mismatch(checkpoint: Path, targets: Sequence[Path]) -> str | None:
    """Repair a checkpoint, and return why it does not belong to its tables; None if it does.

    After a table was moved away, or an older checkpoint restored, the numbers of the next batches
    are in the table already, and Delta would skip their rows. (A merge has no number, and may be
    repeated.)

    Args:
        checkpoint: the checkpoint of a query.
        targets: its tables, first the one that most batches write.
    """
    if part := repair_checkpoint(checkpoint, targets):
        return f"{part} is missing or corrupt"
    if checkpoints.last_committed(checkpoint) < 0:
        return None
    if gone := next((table for table in targets if not delta_tables.table_exists(table)), None):
        return f"{gone} is missing"
    query, planned = checkpoints.query_id(checkpoint), checkpoints.last_planned(checkpoint)
    if any(delta_log.newest_transaction(table, query) > planned for table in targets[:1]):
        return f"{checkpoint} is older than what its batches have written"
    return None


def refuse_lost_checkpoint(
    name: str, checkpoint: Path, targets: Sequence[Path], recorded: int
) -> None:
    """Raise UsageError if a table has rows of batches that its checkpoint does not have.

    A query without its checkpoint starts again, and would write all rows a second time.

    Args:
        name: the query.
        checkpoint: its checkpoint.
        targets: the tables that it writes.
        recorded: its last recorded batch.
    """
    again = f"Rebuild the table and its checkpoint with medallion refresh {name}."
    if why := find_mismatch(checkpoint, targets):
        raise UsageError(f"{name} cannot continue: {why}. {again}")
    planned = checkpoints.last_planned(checkpoint)
    is_another_s = planned < 0 or _is_written_by_another(checkpoint, targets)
    if planned < recorded or (is_another_s and any(map(delta_tables.row_count, targets))):
        raise UsageError(
            f"{name} cannot continue: {checkpoint} lacks the batches that have written its rows. "
            f"{again}"
        )


def _is_written_by_another(checkpoint: Path, targets: Sequence[Path]) -> bool:
    """Return whether a query with another checkpoint wrote the first table last."""
    writers = set(map(delta_log.newest_application, targets[:1])) - {None}
    return bool(writers - {checkpoints.query_id(checkpoint)})


def drop_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint, so that its query starts again.

    The recorded definition stays, for the process may die before the query has started. The
    metadata goes first: without it, the rest counts as corrupt, and is removed as well.
    """
    (checkpoint / "metadata").unlink(missing_ok=True)
    for part in sorted(checkpoint.iterdir(), key=lambda each: each.name in _BATCHES):
        if part.is_dir():
            shutil.rmtree(part)
        elif part.name != "definition.json":
            part.unlink()
