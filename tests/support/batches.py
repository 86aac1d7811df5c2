"""Bronze without streaming queries: the batches of its queue, written one after the other."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from pyspark.sql import Row

from medallion.errors import MedallionError
from medallion.ingest.files.source import FileSource
from medallion.layers.bronze.flow import Bronze
from medallion.spark import checkpoints
from medallion.spark.query import BatchProgress, RunningQuery, Sink
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from tests.support.delta_log import added_files, rows_of_parquet

_PARTITIONS = "spark.sql.shuffle.partitions"  # Spark needs it to run a batch again


class EndedQuery(RunningQuery):
    """A query that has ended, without one of Spark."""

    @property
    def has_dead_thread(self) -> bool:
        return False

    @property
    def is_active(self) -> bool:
        return False

    @property
    def is_processing(self) -> bool:
        return False


@contextmanager
def without_queries() -> Iterator[None]:
    """Let bronze write its batches at once; all else is as with a streaming query.

    Opening and ending a query takes as long as a small batch.
    """

    def stream(source: FileSource) -> SimpleNamespace:
        return SimpleNamespace(writeStream=source.config.layout.queue(source.source.name))

    start_query = Bronze.start_query

    def start(flow: Bronze, rows: Any, trigger: Mapping[str, Any], sink: Sink) -> RunningQuery:
        if isinstance(rows, StoragePath):
            return _run_all(flow, rows, sink)
        return start_query(flow, rows, trigger, sink)  # messages

    with patch.object(FileSource, "stream", stream), patch.object(Bronze, "start_query", start):
        yield


def _run_all(flow: Bronze, queue: StoragePath, sink: Sink) -> RunningQuery:
    """Write each commit of the queue that the checkpoint has not read; stop at the first error."""
    checkpoint, error = flow.checkpoint, None
    last = checkpoints.last_committed(checkpoint)
    spark_query: Any = SimpleNamespace(lastProgress=None, exception=lambda: error)
    flow.run = run = EndedQuery(flow.name, spark_query, checkpoint, last, sink)
    if not (checkpoint / "metadata").is_stored():
        (checkpoint / "metadata").write_atomic(json.dumps({"id": str(uuid.uuid4())}))
    first = max(checkpoints.delta_offset(checkpoint, last).version, 1)
    conf = {_PARTITIONS: flow.spark.conf.get(_PARTITIONS)}
    times = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": conf}
    versions = range(first, delta_tables.table_version(queue) + 1)
    # A commit without new rows, by maintenance, is no batch.
    commits = [
        (version, add["path"])
        for version in versions
        for add in added_files(queue.local, version)
        if add["dataChange"]
    ]
    for number, (version, file) in enumerate(commits, last + 1):
        offset = checkpoints.delta_start_offset(delta_tables.table_id(queue), version + 1)
        _write_log(checkpoint / "offsets" / str(number), times, offset)
        rows = [Row(**row) for row in rows_of_parquet((queue / file).local)]
        queued: Any = SimpleNamespace(collect=lambda rows=rows: rows)
        try:
            sink(queued, number)
        except MedallionError as failure:
            error = failure
            break
        _write_log(checkpoint / "commits" / str(number), {"nextBatchWatermarkMs": 0})
        run.batches[number] = BatchProgress(number, len(rows), {}, 0, None, 0)
        run.last_batch, run.has_done_batch = number, True
    return run


def _write_log(file: StoragePath, *documents: Any) -> None:
    file.write_atomic("\n".join(["v1", *map(json.dumps, documents)]))
