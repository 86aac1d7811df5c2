"""What the engine's records of progress say of a micro-batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class Batch:
    """The engine's record of one micro-batch."""

    id: int
    rows: int
    observed: dict[str, Any]
    duplicates: int
    late: int
    watermark: str | None
    seconds: float

    @classmethod
    def of(cls, progress: Any) -> Batch:
        """From a progress record of Spark."""
        record = json.loads(progress.json)
        operators = record.get("stateOperators") or []
        return cls(
            id=record["batchId"],
            rows=record["numInputRows"],
            observed=record.get("observedMetrics") or {},
            duplicates=sum(
                op.get("customMetrics", {}).get("numDroppedDuplicateRows", 0) for op in operators
            ),
            late=sum(op.get("numRowsDroppedByWatermark", 0) for op in operators),
            watermark=(record.get("eventTime") or {}).get("watermark"),
            seconds=record["durationMs"].get("triggerExecution", 0) / 1000,
        )


def moment(text: str | None) -> int | None:
    """Microseconds since 1970 of a time as Spark's records spell it."""
    if not text or text.startswith("1970-01-01"):
        return None
    return int(datetime.fromisoformat(text).timestamp() * 1_000_000)
