"""Spark's checkpoints of streaming queries: their batches, read in Spark's own format.

`offsets/N` is written before batch N runs, `commits/N` after it. Each has a version, the batch's
metadata, and a line per source. (Source: OffsetSeqLog and CommitLog of Spark.)
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from medallion.errors import MedallionError
from medallion.storage import delta_tables
from medallion.storage.layout import Layout
from medallion.storage.paths import StoragePath
from medallion.storage.text import json_object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = re.compile(r"v\d+")
_PARTITIONS = "spark.sql.shuffle.partitions"
_NOT_READ = "-"  # the offset of a source that had no data yet
_DOCUMENTS = "medallion.json"  # in the checkpoint, and replaced with it
_writing = threading.RLock()


@dataclass(frozen=True)
class DeltaOffset:
    """A position in a Delta table.

    Attributes:
        version: all earlier versions have been read.
        index: the last file of that version that has been read; negative if none.
        is_initial_snapshot: whether the query reads the complete table as of that version.
    """

    version: int
    index: int
    is_initial_snapshot: bool = False

    @property
    def is_between_versions(self) -> bool:
        """Return whether the offset is between two versions."""
        return self.index < 0


def query_id(checkpoint: StoragePath) -> str:
    """Return the id of the query; a new checkpoint has a new id."""
    return str(json.loads((checkpoint / "metadata").read())["id"])


def replay_id(checkpoint: StoragePath) -> str:
    """Return the application of the commits with which rows of quarantine were replayed."""
    return f"{query_id(checkpoint)}-replay"


def late_id(checkpoint: StoragePath) -> str:
    """Return the application of the commits of late rows that the query's state dropped."""
    return f"{query_id(checkpoint)}-late"


def once_only(application: str, number: int) -> dict[str, str]:
    """Return options of Delta's writer with which a commit is made once, however often it is run.

    Args:
        application: the id of the query.
        number: the number of the batch.
    """
    return {"txnAppId": application, "txnVersion": str(number)}


def last_committed(checkpoint: StoragePath) -> int:
    """Return the last committed batch, or -1."""
    return _last(checkpoint / "commits")


def last_planned(checkpoint: StoragePath) -> int:
    """Return the last planned batch, completed or not; or -1."""
    return _last(checkpoint / "offsets")


def _last(log: StoragePath) -> int:
    return max((int(name) for name in log.names() if name.isdigit()), default=-1)


def watermark(checkpoint: StoragePath, batch: int) -> int | None:
    """Return the watermark of a batch in milliseconds since 1970; None if it had none."""
    lines = _lines(checkpoint, batch)
    value = int(json.loads(lines[1])["batchWatermarkMs"]) if lines else 0
    return value or None


def delta_offset(
    checkpoint: StoragePath, batch: int, table: StoragePath | None = None
) -> DeltaOffset:
    """Return the position in a Delta table after a batch; version 0 before the first batch.

    Args:
        batch: the number of a batch.
        table: the table, if the query reads several.
    """
    offsets = source_offsets(checkpoint, batch)
    if table and len(offsets) > 1:
        # The next run may have to rename the table first.
        identity = delta_tables.table_id(table) if delta_tables.table_exists(table) else None
        offsets = [offset for offset in offsets if offset["reservoirId"] == identity]
    if not offsets:
        return DeltaOffset(0, -1)
    offset = offsets[0]
    is_initial_snapshot = bool(offset.get("isStartingVersion"))
    return DeltaOffset(int(offset["reservoirVersion"]), int(offset["index"]), is_initial_snapshot)


def reads_other_table(checkpoint: StoragePath, batch: int, table: StoragePath) -> bool:
    """Return whether the only Delta table that a batch read has been replaced since.

    Args:
        batch: the number of the batch.
    """
    offsets = source_offsets(checkpoint, batch)
    return len(offsets) == 1 and offsets[0]["reservoirId"] != delta_tables.table_id(table)


def source_offsets(checkpoint: StoragePath, batch: int) -> list[Any]:
    """Return the position in each source after a batch; empty before the first batch.

    Raises:
        MedallionError: the offsets are missing or corrupt.
    """
    return [json.loads(line) for line in _lines(checkpoint, batch)[2:] if line != _NOT_READ]


def record_first_definition(
    checkpoint: StoragePath, definition: dict[str, Any], has_written: bool
) -> dict[str, Any]:
    """Return the definition of a query at its first batch; before that, record the current one.

    Spark compares the types of the state's columns with the query's, but not their meaning.

    Args:
        checkpoint: the checkpoint of the query.
        definition: its current definition.
        has_written: whether its first batch has written rows, even if it was interrupted later.
    """
    recorded = read_document(checkpoint, "definition")
    if recorded is None or (last_committed(checkpoint) < 0 and not has_written):
        write_document(checkpoint, "definition", definition)
        return definition
    return recorded


def write_document(checkpoint: StoragePath, name: str, document: dict[str, Any] | None) -> None:
    """Write one of a checkpoint's documents, which are in one file, unless it is unchanged.

    Args:
        name: the name of the document.
        document: its contents, as JSON; None to delete it.
    """
    with _writing:  # a query's thread and the main thread write
        if read_document(checkpoint, name) != document:
            documents = {**_read_documents(checkpoint), name: document}
            (checkpoint / _DOCUMENTS).write_atomic(json.dumps(documents, indent=2))


def read_document(checkpoint: StoragePath, name: str) -> dict[str, Any] | None:
    """Return a document of a checkpoint; None if there is none.

    Raises:
        MedallionError: it is not valid JSON, although it is written atomically.
    """
    return _read_documents(checkpoint).get(name)


def _read_documents(checkpoint: StoragePath) -> dict[str, dict[str, Any] | None]:
    """Return all documents by name."""
    file = checkpoint / _DOCUMENTS
    try:
        documents = json_object(file.read().decode(errors="replace"))
    except FileNotFoundError:
        return {}
    if documents is None:
        effect = "then its query continues with the current configuration"
        raise MedallionError(
            f"{file} is damaged. Restore it from a backup, or delete it: {effect}."
        )
    return documents


def next_generation(layout: Layout, query: str) -> StoragePath:
    """Remove what an interrupted process left of the next generation, and return its path."""
    path = layout.checkpoint(query, ahead=1)
    path.delete_prefix()
    return path


def start_generation(layout: Layout, query: str) -> None:
    """Replace a query's checkpoint by its next generation in one atomic write; remove the old one.

    If the next generation was not prepared, the query starts with an empty checkpoint.
    """
    new = layout.checkpoint(query, ahead=1)
    layout.checkpoint_pointer(query).write_atomic(json.dumps({"generation": int(new.name)}))
    remove_old_generations(layout, query)


def remove_old_generations(layout: Layout, query: str) -> None:
    """Remove all generations of a query's checkpoint but the current one; safe to repeat."""
    current, next_one = layout.checkpoint(query), layout.checkpoint(query, ahead=1)
    for other in next_one.parent.children() if current.parent == next_one.parent else ():
        if other.name != current.name:
            other.delete_prefix()


def corrupt_part(checkpoint: StoragePath) -> StoragePath | None:
    """Return a missing or corrupt file that Spark needs to resume; None if all are complete."""
    planned, committed = last_planned(checkpoint), last_committed(checkpoint)
    if max(planned, committed) < 0:
        return None
    parts = [checkpoint / "metadata"]
    # Spark starts with the last planned batch, and needs the end of the one before it.
    parts += [checkpoint / "offsets" / str(n) for n in (planned, planned - 1, committed) if n >= 0]
    parts += [checkpoint / "commits" / str(committed)] if committed >= 0 else []
    return next((part for part in parts if not _complete_lines(part)), None)


def remove_remnants(checkpoint: StoragePath) -> None:
    """Remove checksums and partial writes of offsets and commits that do not exist.

    Also remove the state of a query that has not planned a batch, and its id if that is corrupt.
    Hadoop renames a file together with its checksum: because of an old checksum, Spark reports a
    concurrent query, and then a corrupt file. A first batch needs empty directories
    (spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart).
    """
    for log in ("offsets", "commits"):
        for file in (checkpoint / log).children():
            number = file.name[1 : -len(".crc")]
            is_kept = number.isdigit() and (checkpoint / log / number).is_stored()
            if file.name.startswith(".") and not is_kept:  # half-written, or a checksum
                file.delete()
    if max(last_planned(checkpoint), last_committed(checkpoint)) < 0:
        (checkpoint / "state").delete_prefix()
        if not _complete_lines(checkpoint / "metadata"):
            (checkpoint / "metadata").delete()


def delta_start_offset(table_id: str, version: int) -> dict[str, Any]:
    """Return Spark's offset just before a version of a Delta table."""
    return {
        "sourceVersion": 1,
        "reservoirId": table_id,
        "reservoirVersion": version,
        "index": -1,
        "isStartingVersion": False,
    }


def write_start(spark: SparkSession, checkpoint: StoragePath, batch: int, offset: Any) -> None:
    """Write a checkpoint for a query without state, whose next batch starts at an offset.

    Args:
        spark: the session, whose settings are written.
        checkpoint: the checkpoint.
        batch: the batch to count as the last committed one.
        offset: the position in the source, in its JSON format; None for the source's own start.
    """
    # Spark compares this with the previous batch if a batch has to run again.
    conf = {_PARTITIONS: spark.conf.get(_PARTITIONS)}
    times = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    logs = {"offsets": (times, offset), "commits": ({"nextBatchWatermarkMs": 0},)}
    for log, documents in logs.items():
        for number in range(max(batch - 1, 0), batch + 1):  # Spark reads the last two
            lines = ["v1", *(_NOT_READ if d is None else json.dumps(d) for d in documents)]
            (checkpoint / log / str(number)).write_atomic("\n".join(lines))
    (checkpoint / "metadata").write_atomic(json.dumps({"id": str(uuid.uuid4())}))


def _complete_lines(part: StoragePath) -> list[str]:
    """Return the lines of a file; none if there is none, or one but its version is not JSON."""
    try:
        lines = part.read().decode().splitlines()
        bodies = (line for line in lines if not _VERSION.fullmatch(line))
        documents = [line if line == _NOT_READ else json.loads(line) for line in bodies]
    except (FileNotFoundError, ValueError):
        return []
    return lines if len(documents) >= (2 if part.parent.name == "offsets" else 1) else []


def _lines(checkpoint: StoragePath, batch: int) -> list[str]:
    if batch < 0:
        return []
    part = checkpoint / "offsets" / str(batch)
    if not (lines := _complete_lines(part)):
        remedy = "medallion nightly repairs it, or reports what to do"
        raise MedallionError(f"{part} is missing or corrupt: {remedy}.")
    return lines
