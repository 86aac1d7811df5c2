"""What a streaming query's checkpoint says of its batches, read as Spark wrote it.

`offsets/N` is written before batch N runs, `commits/N` after it: three lines or more, a version,
the batch's metadata, and one line a source. (Source: OffsetSeqLog and CommitLog of Spark.)
"""

from __future__ import annotations

import json
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medallion.errors import MedallionError
from medallion.storage import delta_tables, files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_VERSION = re.compile(r"v\d+")
_PARTITIONS = "spark.sql.shuffle.partitions"
_NOT_READ = "-"  # in place of the offset of a source that had nothing yet


@dataclass(frozen=True)
class DeltaOffset:
    """How far a query has read a Delta table: all before a version, and part of it if `index`.

    `is_initial_snapshot` where it is reading the table as that version had it.
    """

    version: int
    index: int
    is_initial_snapshot: bool = False

    @property
    def is_between_versions(self) -> bool:
        """True where the offset stands between two versions."""
        return self.index < 0


def query_id(checkpoint: Path) -> str:
    """The id of the query, which changes with a new checkpoint."""
    return str(json.loads((checkpoint / "metadata").read_text(encoding="utf-8"))["id"])


def last_committed(checkpoint: Path) -> int:
    """The last batch that was committed; -1 where there is none."""
    return _last(checkpoint / "commits")


def last_planned(checkpoint: Path) -> int:
    """The last batch that was planned, whether it has ended or not; -1 where there is none."""
    return _last(checkpoint / "offsets")


def _last(log: Path) -> int:
    there = log.iterdir() if log.is_dir() else ()
    return max((int(file.name) for file in there if file.name.isdigit()), default=-1)


def watermark(checkpoint: Path, batch: int) -> int | None:
    """The watermark that batch `batch` ran with (milliseconds since 1970), None where unset."""
    lines = _lines(checkpoint, batch)
    value = int(json.loads(lines[1])["batchWatermarkMs"]) if lines else 0
    return value or None


def delta_offset(checkpoint: Path, batch: int, table: Path | None = None) -> DeltaOffset:
    """Up to where batch `batch` had read; version 0 for the batch before the first.

    Args:
        checkpoint: the query's.
        batch: its number.
        table: which one, of a query that reads several.
    """
    found = source_offsets(checkpoint, batch)
    if table and len(found) > 1:
        identity = delta_tables.table_id(table)
        found = [offset for offset in found if offset["reservoirId"] == identity]
    if not found:
        return DeltaOffset(0, -1)
    is_initial_snapshot = bool(found[0].get("isStartingVersion"))
    return DeltaOffset(
        int(found[0]["reservoirVersion"]), int(found[0]["index"]), is_initial_snapshot
    )


def reads_other_table(checkpoint: Path, batch: int, table: Path) -> bool:
    """Whether batch `batch` has read a Delta table alone, and not the one that is there now."""
    found = source_offsets(checkpoint, batch)
    return len(found) == 1 and found[0]["reservoirId"] != delta_tables.table_id(table)


def source_offsets(checkpoint: Path, batch: int) -> list[Any]:
    """Up to where batch `batch` had read, as its sources spell it; none for one before the first.

    Raises:
        MedallionError: that is missing or torn.
    """
    return [json.loads(line) for line in _lines(checkpoint, batch)[2:] if line != _NOT_READ]


def pinned_settings(checkpoint: Path) -> dict[str, str]:
    """The settings that a query with state goes on with; none where it has no state yet."""
    if not (checkpoint / "state").is_dir():
        return {}
    lines = _lines(checkpoint, last_planned(checkpoint))
    return dict(json.loads(lines[1])["conf"]) if lines else {}


def first_definition(
    checkpoint: Path, definition: dict[str, Any], has_written: bool
) -> dict[str, Any]:
    """What a query was defined as when its first batch ran; before that, this one is noted.

    Spark compares the types of the state's columns with the query's, and not their meaning.

    Args:
        definition: what it is defined as now.
        has_written: whether its first batch has, which may have been cut off then.
    """
    then = noted(checkpoint, "definition")
    if then is None or (last_committed(checkpoint) < 0 and not has_written):
        note(checkpoint, "definition", definition)
        return definition
    return then


def note(checkpoint: Path, name: str, document: dict[str, Any]) -> None:
    """Keep a document beside what Spark keeps of a query, unless it is there already."""
    file, text = checkpoint / f"{name}.json", json.dumps(document, indent=2)
    if not file.is_file() or file.read_bytes() != text.encode():
        checkpoint.mkdir(parents=True, exist_ok=True)
        files.write_atomic(file, text)


def forget(checkpoint: Path, name: str) -> None:
    """Take such a document away."""
    (checkpoint / f"{name}.json").unlink(missing_ok=True)


def noted(checkpoint: Path, name: str) -> dict[str, Any] | None:
    """Such a document; None where there is none.

    Raises:
        MedallionError: somebody has damaged it, for it is written whole.
    """
    file = checkpoint / f"{name}.json"
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise MedallionError(
            f"{file} is damaged: put a copy in its place, or remove it, and {checkpoint.name} goes "
            "on by what the configuration says now."
        )
    return found


def corrupt_part(checkpoint: Path) -> Path | None:
    """The newest part of a checkpoint that Spark needs, if it is missing or torn."""
    begun, committed = last_planned(checkpoint), last_committed(checkpoint)
    if max(begun, committed) < 0:
        return None
    parts = [checkpoint / "metadata"]
    # Spark begins where the last batch did, and so needs the one before it as well.
    parts += [checkpoint / "offsets" / str(n) for n in (begun, begun - 1, committed) if n >= 0]
    parts += [checkpoint / "commits" / str(committed)] if committed >= 0 else []
    return next((part for part in parts if not _is_complete(part)), None)


def remove_remnants(checkpoint: Path) -> None:
    """Remove what is left of offsets and commits that are gone or were never whole; and of a query
    that has not planned a batch, its state, and an id that is torn.

    Hadoop renames a file together with its checksum: where an old one lies, Spark says that another
    query uses the checkpoint, and next time that the file is spoilt. And for the first batch it
    wants all three folders empty (spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart).
    """
    for log in ("offsets", "commits"):
        for hidden in (checkpoint / log).glob(".*"):  # half-written, or a checksum
            of = hidden.name[1 : -len(".crc")]
            if not (of.isdigit() and hidden.with_name(of).exists()):
                hidden.unlink(missing_ok=True)
    if max(last_planned(checkpoint), last_committed(checkpoint)) < 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)
        if not _is_complete(checkpoint / "metadata"):
            (checkpoint / "metadata").unlink(missing_ok=True)


def delta_start_offset(table: str, version: int) -> dict[str, Any]:
    """The offset before a version of a Delta table, which has this id."""
    return {
        "sourceVersion": 1,
        "reservoirId": table,
        "reservoirVersion": version,
        "index": -1,
        "isStartingVersion": False,
    }


def write_start(spark: SparkSession, checkpoint: Path, batch: int, offset: Any) -> None:
    """Make a checkpoint for a query without state, whose next batch reads on from an offset.

    Args:
        spark: whose settings it goes by.
        batch: the one before the next.
        offset: of its source, as that spells it in JSON; None, where the source begins as it does
            the first time.
    """
    # Where a batch is to run again, Spark compares this with what the one before it had.
    conf = {_PARTITIONS: spark.conf.get(_PARTITIONS)}
    times = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    logs = {"offsets": (times, offset), "commits": ({"nextBatchWatermarkMs": 0},)}
    for log, documents in logs.items():
        (checkpoint / log).mkdir(parents=True)
        for number in range(max(batch - 1, 0), batch + 1):  # Spark looks at the last two
            lines = ["v1", *(_NOT_READ if d is None else json.dumps(d) for d in documents)]
            files.write_atomic(checkpoint / log / str(number), "\n".join(lines))
    files.write_atomic(checkpoint / "metadata", json.dumps({"id": str(uuid.uuid4())}))


def _is_complete(part: Path) -> bool:
    """Whether a part of a checkpoint is there and ends; each line but the first is a document."""
    try:
        lines = part.read_text(encoding="utf-8").splitlines()
        told = (line for line in lines if not _VERSION.fullmatch(line))
        documents = [line if line == _NOT_READ else json.loads(line) for line in told]
    except (OSError, ValueError):
        return False
    least = {"offsets": 2, "commits": 1}.get(part.parent.name, 1)
    return len(documents) >= least


def _lines(checkpoint: Path, batch: int) -> list[str]:
    if batch < 0:
        return []
    part = checkpoint / "offsets" / str(batch)
    if not _is_complete(part):
        raise MedallionError(
            f"{part} is missing or torn: medallion run {checkpoint.name.partition('.')[0]} mends "
            "it, or says what does."
        )
    return part.read_text(encoding="utf-8").splitlines()
