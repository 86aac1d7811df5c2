"""What the engine's records of progress say of a micro-batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True)
class BatchProgress:
    """The engine's record of one micro-batch."""

    id: int
    rows: int
    observed: dict[str, Any]
    duplicates: int
    late: int
    watermark: str | None
    seconds: float

    @classmethod
    def of(cls, record: dict[str, Any]) -> BatchProgress:
        """From a record of Spark, as JSON has it."""
        operators = record.get("stateOperators") or []
        return cls(
            id=record["batchId"],
            rows=record["numInputRows"],
            observed=record.get("observedMetrics") or {},
            duplicates=sum(
                op.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for op in operators
            ),
            late=sum(op.get("numRowsDroppedByWatermark", 0) for op in operators),
            watermark=watermark_of(record),
            seconds=record["durationMs"].get("triggerExecution", 0) / 1000,
        )


def watermark_of(record: dict[str, Any]) -> str | None:
    """The watermark in a record, as Spark spells it; None while there is none, or 1970 to Spark."""
    text = (record.get("eventTime") or {}).get("watermark")
    return None if not text or text.startswith("1970-01-01") else str(text)


def records_after(query: StreamingQuery, batch: int) -> Iterator[dict[str, Any]]:
    """The engine's records of the batches after a number that have ended, as JSON has them."""
    last = query.lastProgress
    if last is None or last["batchId"] <= batch:
        return
    # To fetch all the records that Spark keeps takes long: only where some were missed.
    missed = last["batchId"] > batch + 1
    for progress in query.recentProgress if missed else [last]:
        ran = "addBatch" in progress["durationMs"]  # an idle trigger leaves a record as well
        if ran and progress["batchId"] > batch:
            yield json.loads(progress.json)


def moment(text: str | None) -> int | None:
    """Microseconds since 1970 of a time as Spark's records spell it."""
    return None if text is None else int(datetime.fromisoformat(text).timestamp() * 1_000_000)
