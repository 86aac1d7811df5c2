"""Every row accounted for: runs are settled and recorded, and the rows of a source balanced."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from pyspark.sql import SparkSession

from medallion.config.loader import Config, Source
from medallion.lakehouse import tables
from medallion.layers.bronze import flow as bronze
from medallion.layers.silver import late
from medallion.ops.runs import Runs, Sums
from medallion.spark import checkpoints
from medallion.spark.query import Check, Run


@dataclass(frozen=True)
class Balance:
    """The rows of one source: what came in, and where it went."""

    landed_lines: int
    bronze_rows: int
    silver_rows: int
    quarantined_rows: int
    duplicate_rows: int
    late_rows: int
    waiting_rows: int

    @property
    def is_even(self) -> bool:
        """Whether both equations of the contract hold, less what silver has not read yet."""
        carried = self.silver_rows + self.quarantined_rows + self.duplicate_rows
        return (
            self.landed_lines == self.bronze_rows
            and self.bronze_rows == carried + self.waiting_rows
        )


def balances(config: Config, runs: Runs) -> dict[str, Balance]:
    """The balance of each source: lines, duplicates and late rows from the engine's records,
    the other rows from the tables."""
    sums = runs.standing.sums
    return {name: _balance(config, source, sums) for name, source in config.sources.items()}


def _balance(config: Config, source: Source, sums: Mapping[str, Sums]) -> Balance:
    layout = config.layout
    from_bronze = sums.get(f"bronze.{source.name}")
    from_silver = sums.get(f"silver.{source.name}")
    checkpoint = layout.checkpoint(f"silver.{source.name}")
    read = checkpoints.delta_offset(checkpoint, checkpoints.last_committed(checkpoint)).version
    return Balance(
        landed_lines=from_bronze.rows_in if from_bronze else 0,
        bronze_rows=tables.row_count(layout.table(f"bronze.{source.name}")),
        silver_rows=tables.row_count(layout.table(f"silver.{source.name}")),
        quarantined_rows=tables.row_count(layout.table(f"quarantine.{source.name}")),
        duplicate_rows=from_silver.duplicate_rows if from_silver else 0,
        late_rows=from_silver.late_rows if from_silver else 0,
        waiting_rows=tables.rows_written(layout.table(f"bronze.{source.name}"), after=read - 1),
    )


def unsettled(config: Config, runs: Runs) -> list[str]:
    """Queries with batches that no run has recorded: their process was cut off."""
    names = [f"{layer}.{name}" for layer in ("bronze", "silver") for name in config.sources]
    return [
        name
        for name in names
        if checkpoints.last_committed(config.layout.checkpoint(name)) > runs.last_batch(name)
    ]


def settle_bronze(
    spark: SparkSession, config: Config, source: Source, run: Run, since: int
) -> dict[str, Any]:
    """The figures of bronze's batches after `since`."""
    last = _last_batch(config, run)
    lines = 0
    for batch in range(since + 1, last + 1):
        counted = bronze.recorded(run, batch)
        if counted is None:
            counted = bronze.lines_of_batch(spark, config, source, batch)
        lines += counted
    return {"rows_in": lines, "first_batch": since + 1, "last_batch": last}


def settle_silver(
    spark: SparkSession, config: Config, source: Source, run: Run, since: int
) -> dict[str, Any]:
    """Admit the late rows of silver's batches after `since`, and give the batches' figures."""
    last = _last_batch(config, run)
    check = cast(Check, run.check)
    rows = duplicates = admitted = 0
    for batch in range(since + 1, last + 1):
        known = run.batches.get(batch)
        if known:
            rows += sum(metric["rows"] for metric in known.observed.values())
            duplicates += known.duplicates
        else:
            rows += late.rows_of_batch(spark, config, source, batch).count()
        if known is None or known.late:
            dropped = known.late if known else None
            settled = late.settle(spark, config, source, batch, dropped, check)
            admitted += settled.late
            duplicates += settled.duplicates
    return {
        "rows_in": rows,
        "duplicate_rows": duplicates,
        "late_rows": admitted,
        "first_batch": since + 1,
        "last_batch": last,
    }


def _last_batch(config: Config, run: Run) -> int:
    """Up to which batch to settle: of a running query, the record of its last may be to come.

    Those that a cut-off run has left are among them: Spark keeps the offsets of 100 batches only.
    """
    if run.ended is None:
        return run.last_batch
    return checkpoints.last_committed(config.layout.checkpoint(run.name))


def row_of(config: Config, runs: Runs, run: Run, figures: dict[str, Any]) -> dict[str, Any]:
    """The row of `ops.runs` for one query, with what its tables' logs say was written."""
    layer, source = run.name.split(".")
    table = config.layout.table(run.name)
    quarantine = config.layout.table(f"quarantine.{source}")
    sums = runs.standing.sums.get(run.name)
    before = (sums.table_version, sums.quarantine_version) if sums else (0, 0)
    error = run.error()
    row = {
        "kind": "query",
        "query": run.name,
        "state": "failed" if error else "done",
        "error": error,
        "started_at": int(run.started * 1_000_000),
        "seconds": round((run.ended or time.time()) - run.started, 3),
        "batches": len(run.batches),
        "rows_out": tables.rows_written(table, before[0]),
        "table_version": tables.version(table),
        "watermark": run.watermark(),
        **figures,
    }
    if layer == "silver":
        row["quarantined_rows"] = tables.rows_written(quarantine, before[1])
        row["quarantine_version"] = tables.version(quarantine)
    return row


def uneven(balances: Iterable[tuple[str, Balance]]) -> list[str]:
    """The sources whose balance does not add up."""
    return [name for name, balance in balances if not balance.is_even]
