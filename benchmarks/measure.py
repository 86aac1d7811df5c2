"""What the benchmarks share: what is timed, and bronze as plain Spark would write it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from medallion.config.loader import load
from medallion.config.model import Config
from medallion.runtime.pipeline import Pipeline
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

PROJECT = Path(__file__).resolve().parents[1]
NIGHTLY = ("-m", "medallion", "nightly")


# What medallion sets to write and list faster; the plain side runs with Spark's own defaults.
SPARKS_OWN = {
    "spark.sql.files.openCostInBytes": "4194304",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "32",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "10000",
    "spark.sql.parquet.outputTimestampType": "INT96",
}


@dataclass(frozen=True)
class Figure:
    """One line of the table at the end: seconds of medallion, and of what stands beside it."""

    name: str
    ours: float
    beside: float
    target: float | None = None
    note: str = ""

    def __str__(self) -> str:
        ratio = self.ours / self.beside if self.beside else math.nan
        target = f"{self.target:.2f}" if self.target else "-"
        verdict = "" if self.target is None else "met" if ratio <= self.target else "MISSED"
        cells = f"{self.ours:9.2f} {self.beside:9.2f} {ratio:7.2f} {target:>7} {verdict:<7}"
        return f"{self.name:<46}{cells}{self.note}".rstrip()


def show(figures: Iterable[Figure], what: str) -> None:
    """Print figures as one table, at its head what they are."""
    head = f"{'medallion':>9} {'beside':>9} {'ratio':>7} {'target':>7}"
    print(f"\n{what:<46}{head}")
    print("\n".join(map(str, figures)))


class Taken(NamedTuple):
    """What a process took, with all that it started.

    `seconds` from start to exit, the most KiB that it held (`peak`), and processor seconds (`cpu`).
    """

    seconds: float
    peak: int
    cpu: float


def timed(arguments: list[str], root: Path, **environment: str) -> Taken:
    """Run Python with these arguments; memory and processor time are looked at twice a second."""
    log = root / "output.txt"
    peak, cpu, ended = [0], [0.0], threading.Event()
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
                family = family_of(process.pid)
                peak[0] = max(peak[0], resident(family))
                cpu[0] = max(cpu[0], cpu_seconds(family))

        watcher = threading.Thread(target=watch)
        watcher.start()
        status = process.wait()
        taken = time.monotonic() - started
        ended.set()
        watcher.join()
    if status:
        raise SystemExit(f"{arguments} ended with {status}:\n{log.read_text()}")
    return Taken(taken, peak[0], cpu[0])


def timed_peer(name: str, root: Path, **environment: str) -> Taken:
    """Run one of `benchmarks.peers`, without the classes that are kept for medallion's Java."""
    no_settings = root / "no-settings"
    no_settings.mkdir(exist_ok=True)
    peer = ["-m", f"benchmarks.peers.{name}"]
    return timed(peer, root, SPARK_CONF_DIR=str(no_settings), **environment)


def timed_side(name: str, root: Path, **environment: str) -> Taken:
    """Run a nightly run of medallion, or one of its peers."""
    if name == "medallion":
        return timed([*NIGHTLY], root, **environment)
    return timed_peer(name, root, **environment)


def resident(processes: Iterable[int]) -> int:
    """KiB of memory that processes hold (Linux; 0 elsewhere)."""
    held = {}
    for status in map(_status, processes):
        # A child that is about to become another program has its parent's memory until it does,
        # and so the same size: Java starts hundreds of them.
        held[status.get("VmSize")] = int(status.get("VmRSS", "0 kB").split()[0])
    return sum(held.values())


def cpu_seconds(processes: Iterable[int]) -> float:
    """Processor time that processes have taken (Linux; 0 elsewhere)."""
    ticks = 0
    for pid in processes:
        with suppress(OSError):  # it has ended
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])  # utime and stime of proc(5)
    return ticks / os.sysconf("SC_CLK_TCK")


def family_of(parent: int) -> list[int]:
    """A process and all below it (Linux; none elsewhere)."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        if above := _status(int(process.name)).get("PPid"):
            children.setdefault(int(above), []).append(int(process.name))
    family = [parent] if children else []
    for pid in family:  # which grows
        family += children.get(pid, [])
    return family


def _status(pid: int) -> dict[str, str]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:  # it has ended
        return {}
    return dict(line.split(":", 1) for line in lines if ":" in line)


def plain_bronze(
    spark: SparkSession, config: Config, source: str, interval: str | None = None
) -> StreamingQuery:
    """Spark's own file stream to Delta, by the declared schema: no rescue, ledger, or archive."""
    schema = config.sources[source].schema or {}
    declared = ", ".join(f"`{name}` {kind}" for name, kind in schema.items())
    lines = spark.readStream.schema(declared).json(str(config.layout.landing(source)))
    landed = lines.withColumn("_source_file", F.col("_metadata.file_path"))
    rows = landed.withColumn("_ingested_at", F.current_timestamp())
    return write(config, rows, f"bronze.{source}", interval=interval)


def stream_table(spark: SparkSession, config: Config, table: str) -> DataFrame:
    """Return a stream of a table of plain Spark."""
    return spark.readStream.format("delta").load(str(config.layout.table(table)))


def plain_silver(
    spark: SparkSession, config: Config, name: str, interval: str | None = None
) -> StreamingQuery:
    """Columns and deduplication within the watermark: no rules, quarantine or late rows."""
    source = config.sources[name]
    columns = [F.expr(sql).alias(column) for column, sql in source.silver.items()]
    bronze = stream_table(spark, config, f"bronze.{name}")
    typed = bronze.select(*columns, "_source_file", "_ingested_at")
    on_time = typed.withWatermark(source.event_time, source.watermark.text)
    rows = on_time.dropDuplicates(list(source.keys))
    return write(config, rows, f"silver.{name}", interval=interval)


def write(
    config: Config,
    rows: DataFrame,
    table: str,
    mode: str = "append",
    interval: str | None = None,
) -> StreamingQuery:
    """Start a query that writes to a table all that is available, or what comes in an interval."""
    trigger: dict[str, Any] = {"processingTime": interval} if interval else {"availableNow": True}
    return (
        rows.writeStream.format("delta")
        .outputMode(mode)
        .option("checkpointLocation", str(config.layout.checkpoint(table)))
        .trigger(**trigger)
        .start(str(config.layout.table(table)))
    )


def bronze(spark: SparkSession, config: Config, source: str) -> float:
    """Seconds of medallion's bronze, with all that it does besides the query."""
    pipeline = Pipeline(spark, only(config, source), "bench", lambda _: None)
    return clocked(lambda: pipeline.run("bronze"))


@contextmanager
def sparks_own(spark: SparkSession) -> Iterator[None]:
    """Spark's own defaults, for as long as this lasts."""
    ours = {key: str(spark.conf.get(key)) for key in SPARKS_OWN}
    for key, value in SPARKS_OWN.items():
        spark.conf.set(key, value)
    yield
    for key, value in ours.items():
        spark.conf.set(key, value)


def plain(spark: SparkSession, config: Config, source: str) -> float:
    """Seconds of Spark's own stream of files, by Spark's own defaults."""
    with sparks_own(spark):
        return clocked(lambda: plain_bronze(spark, config, source).awaitTermination())


def configured(root: Path, **environment: str) -> Config:
    """The project's configuration on a root."""
    return load({"MEDALLION_HOME": str(root), **environment}, PROJECT)


def only(config: Config, source: str) -> Config:
    """A configuration with one source, and nothing that reads several."""
    return replace(config, sources={source: config.sources[source]}, gold={}, views={})


def expect(root: Path, source: str, rows: int) -> None:
    """Both sides must have done the same work."""
    found = delta_tables.row_count(StoragePath(root / "bronze" / source))
    if found != rows:
        raise SystemExit(f"{root}: bronze.{source} has {found:,} rows, not {rows:,}")


def clocked(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def say(text: str) -> None:
    """Progress, at once."""
    print(text, flush=True)
