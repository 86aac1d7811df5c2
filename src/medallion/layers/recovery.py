"""Checkpoint recovery: repair corrupt checkpoints, and refuse those that do not match a table."""

from collections.abc import Iterable, Sequence

from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.storage import delta_log, delta_tables, objects
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath


def repair_checkpoint(
    checkpoint: StoragePath, targets: Sequence[StoragePath]
) -> StoragePath | None:
    """Remove corrupt files of a checkpoint's last batch if Spark can safely write them again.

    A batch without its commit runs again, and its number shows what it has written already. A batch
    without its offsets is planned again, which is safe only if it has written nothing.

    Args:
        targets: the tables that the query writes.

    Returns:
        The corrupt or missing part that cannot be repaired; None if there is none.
    """
    checkpoints.remove_remnants(checkpoint)
    while part := checkpoints.corrupt_part(checkpoint):
        batch = checkpoints.last_planned(checkpoint)
        is_commit = part == checkpoint / "commits" / str(batch)
        is_offsets = part == checkpoint / "offsets" / str(batch)
        is_committed = checkpoints.last_committed(checkpoint) >= batch
        if not part.is_stored() or not (is_commit or (is_offsets and not is_committed)):
            return part
        if is_offsets and has_written(checkpoint, targets, batch):
            return part
        part.delete()
        checkpoints.remove_remnants(checkpoint)
    return None


def has_written(checkpoint: StoragePath, targets: Iterable[StoragePath], batch: int) -> bool:
    """Return whether a batch of a query has written to any of the query's tables."""
    query = checkpoints.query_id(checkpoint)
    return any(delta_log.committed_version(table, query, batch) is not None for table in targets)


def has_started_writing(checkpoint: StoragePath, targets: Iterable[StoragePath]) -> bool:
    """Return whether the last planned batch has written to any of its query's tables."""
    batch = checkpoints.last_planned(checkpoint)
    if batch < 0 or checkpoints.corrupt_part(checkpoint):  # refused elsewhere
        return False
    return has_written(checkpoint, targets, batch)


@objects.remembering()
def has_unrecorded(checkpoint: StoragePath, targets: Iterable[StoragePath], recorded: int) -> bool:
    """Return whether a batch after the last recorded one is committed or has written rows.

    A batch that was interrupted before its first write starts again. If the checkpoint is corrupt,
    its last batch counts as one that has written.

    Args:
        targets: the tables that the query writes.
        recorded: the last recorded batch.
    """
    planned = checkpoints.last_planned(checkpoint)
    if checkpoints.last_committed(checkpoint) > recorded:
        return True
    if planned <= recorded:
        return False
    is_corrupt = checkpoints.corrupt_part(checkpoint) is not None
    return is_corrupt or has_written(checkpoint, targets, planned)


def repair_and_compare(checkpoint: StoragePath, targets: Sequence[StoragePath]) -> str | None:
    """Repair a checkpoint, and return the reason if it does not match its tables, else None.

    If the checkpoint is older than the table, the table has the numbers of the next batches
    already, and Delta would skip their rows. (A merge has no number, and may be repeated.)

    Args:
        targets: its tables, first the one that most batches write.
    """
    if part := repair_checkpoint(checkpoint, targets):
        return f"{part} is missing or corrupt"
    if checkpoints.last_committed(checkpoint) < 0:
        return None
    if missing := next((table for table in targets if not delta_tables.table_exists(table)), None):
        return f"{missing} is missing"
    query, planned = checkpoints.query_id(checkpoint), checkpoints.last_planned(checkpoint)
    if any(delta_log.newest_transaction(table, query) > planned for table in targets[:1]):
        return f"{checkpoint} is older than what its batches have written"
    return None


@objects.remembering()
def refuse_lost_checkpoint(
    name: str, checkpoint: StoragePath, targets: Sequence[StoragePath], recorded: int
) -> None:
    """Raise UsageError if a table has rows of batches that its checkpoint does not have.

    Without its checkpoint the query would start again, and write all rows a second time.

    Args:
        checkpoint: its checkpoint.
        targets: the tables that it writes.
        recorded: its last recorded batch.
    """
    remedy = f"Rebuild the table and its checkpoint with medallion refresh {name}."
    if reason := repair_and_compare(checkpoint, targets):
        raise UsageError(f"{name} cannot continue: {reason}. {remedy}")
    planned = checkpoints.last_planned(checkpoint)
    has_other_writer = planned < 0 or _is_written_by_another(checkpoint, targets)
    if planned < recorded or (has_other_writer and any(map(delta_tables.row_count, targets))):
        reason = f"{checkpoint} lacks the batches that have written its rows"
        raise UsageError(f"{name} cannot continue: {reason}. {remedy}")


def _is_written_by_another(checkpoint: StoragePath, targets: Sequence[StoragePath]) -> bool:
    """Return whether a query with another checkpoint wrote the first table last."""
    newest = next(iter(delta_log.transactions(targets[0])), None) if targets else None
    own = checkpoints.query_id, checkpoints.replay_id, checkpoints.late_id
    return newest is not None and newest.application not in {each(checkpoint) for each in own}


def drop_checkpoint(layout: Layout, query: str) -> None:
    """Remove a query's checkpoint, so that it starts again.

    The recorded definition stays, because the process may die before the query has started.
    """
    definition = checkpoints.read_document(layout.checkpoint(query), "definition")
    checkpoints.write_document(checkpoints.next_generation(layout, query), "definition", definition)
    checkpoints.start_generation(layout, query)
