"""Values in Spark's progress records."""

from __future__ import annotations

from medallion.spark.query import BatchProgress, parse_timestamp, watermark_of


def test_watermark_that_is_not_set_is_none() -> None:
    assert watermark_of({}) is None
    assert watermark_of({"eventTime": {}}) is None
    assert watermark_of({"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}) is None
    record = {"eventTime": {"watermark": "1970-01-02T00:00:00.000Z"}}
    assert parse_timestamp(watermark_of(record)) == 86_400_000_000


def test_batch_progress_of_a_record() -> None:
    operators = [{"numRowsDroppedByWatermark": 2}, {"numRowsDroppedByWatermark": 5}]
    record = {
        "batchId": 4,
        "numInputRows": 20,
        "observedMetrics": {"identified": {"rows": 9}},
        "stateOperators": operators,
        "eventTime": {"watermark": "2018-03-02T10:00:00.000Z"},
        "durationMs": {"triggerExecution": 1500},
    }
    batch = BatchProgress.from_record(record)
    assert (batch.id, batch.rows, batch.late) == (4, 20, 7)
    assert (batch.observed, batch.seconds) == ({"identified": {"rows": 9}}, 1.5)
    assert parse_timestamp(batch.watermark) == 1_519_984_800_000_000


def test_batch_progress_without_state() -> None:
    record = {"batchId": 0, "numInputRows": 1, "durationMs": {}}
    batch = BatchProgress.from_record(record)
    assert (batch.late, batch.watermark, batch.seconds) == (0, None, 0)
