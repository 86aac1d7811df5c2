"""What the benchmarks share: processes that are timed, and bronze as plain Spark would write it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from medallion.config import Config

PROJECT = Path(__file__).resolve().parents[1]
NIGHTLY = ("-m", "medallion", "nightly")


def timed(arguments: list[str], root: Path, **environment: str) -> tuple[float, int]:
    """Seconds from start to exit of one process, and the most KiB that it and its children held."""
    log = root / "output.txt"
    peak, ended = [0], threading.Event()
    with log.open("w") as output:
        started = time.monotonic()
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "MEDALLION_HOME": str(root), **environment},
            cwd=PROJECT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

        def watch() -> None:
            while not ended.wait(0.5):
                peak[0] = max(peak[0], resident(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        taken = time.monotonic() - started
        ended.set()
        watcher.join()
    if status:
        raise SystemExit(f"{arguments} ended with {status}:\n{log.read_text()}")
    return taken, peak[0]


def resident(parent: int) -> int:
    """KiB of memory that a process and all below it hold (Linux; 0 elsewhere)."""
    held: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text().splitlines()
        except OSError:  # it has ended
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        pid = int(fields["Pid"])
        held[pid] = int(fields.get("VmRSS", "0 kB").split()[0])
        children.setdefault(int(fields["PPid"]), []).append(pid)
    total, waiting = 0, [parent]
    while waiting:
        pid = waiting.pop()
        total += held.get(pid, 0)
        waiting += children.get(pid, [])
    return total


def plain_bronze(spark: SparkSession, config: Config, source: str) -> StreamingQuery:
    """Spark's own file stream to Delta, by the declared schema: no rescue, ledger, or archive."""
    schema = config.sources[source].schema or {}
    declared = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
    lines = spark.readStream.schema(declared).json(str(config.layout.landing(source)))
    landed = lines.withColumn("_source_file", F.col("_metadata.file_path"))
    return write(
        config, landed.withColumn("_ingested_at", F.current_timestamp()), f"bronze.{source}"
    )


def write(config: Config, rows: DataFrame, table: str, mode: str = "append") -> StreamingQuery:
    """Start a query that writes all that is available to a table."""
    return (
        rows.writeStream.format("delta")
        .outputMode(mode)
        .option("checkpointLocation", str(config.layout.checkpoint(table)))
        .trigger(availableNow=True)
        .start(str(config.layout.table(table)))
    )
