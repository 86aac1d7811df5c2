"""Silver's two tables: each batch writes its rows once, also after an interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from medallion.errors import MedallionError
from medallion.inspect.audit import run_audit
from medallion.layers.silver import writer
from medallion.spark import delta_writes
from medallion.storage.paths import StoragePath
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event

GOOD = (event("10:00:00"), event("10:00:01"), event("10:00:02", None))
BROKEN = (event("10:00:03").replace("2018", "2999"), "{")
TIMES = ["2018-03-02 10:00:00", "2018-03-02 10:00:01", "2018-03-02 10:00:02"]
QUARANTINED = [
    ("2999-03-02 10:00:03", None, ["future_event_time"]),
    (None, "{", ["malformed_line"]),
]


def tables(lakehouse: Lakehouse) -> tuple[list[Any], list[Any]]:
    """Return the times of silver's rows, and time, line and rule of quarantine's rows."""
    silver = [time for (time,) in lakehouse.rows("silver.event", "event_at")]
    quarantined = lakehouse.rows("quarantine.event", "ts", "_corrupt_record", "_failed_rules")
    return silver, [(time, line, rules[:1]) for time, line, rules in quarantined]


def test_batch_interrupted_between_its_tables_is_completed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silver's rows are not written again, quarantined rows are.

    The next batch then has no row for silver.
    """
    lakehouse = Lakehouse(spark, tmp_path / "lakehouse")
    lakehouse.keep_only("event")
    lakehouse.land("event", "1.json", *GOOD, GOOD[0], *BROKEN)
    lakehouse.fill("bronze")

    append = delta_writes.write_once

    def append_silver_only(rows: Any, table: StoragePath, options: Any, **more: Any) -> None:
        if table.parent.name == "quarantine":
            raise MedallionError("interrupted")
        append(rows, table, options, **more)

    with monkeypatch.context() as patch:
        patch.setattr(writer, "write_once", append_silver_only)
        with pytest.raises(MedallionError, match="interrupted"):
            lakehouse.fill("silver")
    assert tables(lakehouse) == (TIMES, [])
    lakehouse.fill("silver")
    assert tables(lakehouse) == (TIMES, QUARANTINED)
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.balances["event"].duplicate_rows) == ((), 1)

    lakehouse.land("event", "2.json", *GOOD[:2], BROKEN[1])
    lakehouse.fill("bronze", "silver")
    assert tables(lakehouse) == (TIMES, [*QUARANTINED, QUARANTINED[1]])
    audit = run_audit(lakehouse.config)
    assert (audit.findings, audit.balances["event"].duplicate_rows) == ((), 3)
