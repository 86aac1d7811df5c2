"""The streams of this session, and how each stands."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from medallion.spark.progress import watermark_of
from medallion.streams.known import label, queries
from medallion.streams.waiting import doing, exception


@dataclass(frozen=True)
class Stream:
    """One query. `rows_a_second` and `watermark` (UTC) are those of its last batch."""

    name: str
    id: str
    run_id: str
    state: str
    last_batch: int | None
    rows_a_second: float | None
    watermark: str | None


def streams() -> list[Stream]:
    """The streams that run, and those that have ended since this package first saw them.

    `state` is `running` (a batch, now), `waiting`, `starting`, `ended`, or `failed` with the cause.

    Raises:
        UsageError: there is no Spark session.
    """
    return [_stream(query) for query in queries()]


def _stream(query: StreamingQuery) -> Stream:
    last = query.lastProgress
    record = json.loads(last.json) if last else {}
    return Stream(
        name=label(query),
        id=query.id,
        run_id=query.runId,
        state=_state(query),
        last_batch=_last_batch(record),
        rows_a_second=record.get("processedRowsPerSecond"),
        watermark=watermark_of(record),
    )


def _last_batch(record: dict[str, Any]) -> int | None:
    """An idle trigger leaves a record as well, under the number of the batch that is to come."""
    if not record:
        return None
    ran = "addBatch" in record["durationMs"]
    number = int(record["batchId"]) - (not ran)
    return number if number >= 0 else None


def _state(query: StreamingQuery) -> str:
    if failure := exception(query):
        return f"failed: {failure}"
    if not query.isActive:
        return "ended"
    if query.status["isTriggerActive"]:
        return "running"
    return "starting" if doing(query).startswith("Initializing") else "waiting"
