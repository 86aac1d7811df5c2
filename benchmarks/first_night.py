"""The first night of a large landing: `medallion nightly` beside its `peers`, on the same files.

    .venv/bin/python -m benchmarks.first_night [--short] [--runs N]

All are whole processes, run in turn on roots of their own, and all have to give the same gold.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import duckdb
from deltalake import DeltaTable

from benchmarks.measure import NIGHTLY, say, timed
from medallion.factory import DataFactory

SOURCE = "activity"
GOLD = ("device_counts", "device_totals")
PEERS = ("plain_spark", "notebook", "duckdb_delta")
FULL = (1_560_000, 20, 3)  # rows, files, runs of each
SHORT = (78_000, 2, 1)


@dataclass
class Runs:
    """The seconds, processor seconds and GiB at most of each run of one side."""

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    peak: list[float] = field(default_factory=list)

    def row(self, name: str, ours: float) -> str:
        """A row of the table in docs/benchmarks.md; `ours` is medallion's median."""
        median, low, high = statistics.median(self.seconds), min(self.seconds), max(self.seconds)
        cells = f"{median:.1f} ({low:.1f} to {high:.1f}) | {statistics.median(self.cpu):.0f}"
        return f"| {name} | {cells} | {max(self.peak):.1f} | {ours / median:.2f} |"


def main() -> int:
    """Run the comparison; 1 where the tables of gold differ."""
    parser = argparse.ArgumentParser(description="medallion nightly beside its peers")
    parser.add_argument("--short", action="store_true", help="a small landing, once each")
    parser.add_argument("--runs", type=int, help="runs of each side")
    options = parser.parse_args()
    rows, files, runs = SHORT if options.short else FULL
    runs = options.runs or runs
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder:
        return compare(Path(folder), rows, files, runs)


def compare(folder: Path, rows: int, files: int, runs: int) -> int:
    """Time all sides in turn."""
    landing = folder / "landing"
    DataFactory(landing).land(rows=rows, files=files, source=SOURCE)
    size = sum(file.stat().st_size for file in (landing / SOURCE).iterdir()) / 2**20
    say(f"{rows:,} rows, {files} files, {size:,.0f} MiB, {os.cpu_count()} cores")
    sides = {name: Runs() for name in ("medallion", *PEERS)}
    expected = None
    for number in range(1, runs + 1):
        for name, side in sides.items():
            root = folder / name
            shutil.copytree(landing, root / "landing", copy_function=os.link)
            command = [*NIGHTLY] if name == "medallion" else ["-m", f"benchmarks.peers.{name}"]
            taken = timed([*command, *([] if name == "medallion" else [str(root)])], root)
            side.seconds.append(taken.seconds)
            side.cpu.append(taken.cpu)
            side.peak.append(taken.peak / 2**20)
            say(f"{name:<12} run {number}  {taken.seconds:6.1f} s")
            gold = {table: rows_of(root / "gold" / table) for table in GOLD}
            expected = expected or gold
            if gold != expected or total(gold) != [rows] * len(GOLD):
                print(f"gold of {name} is not that of medallion, or not whole", file=sys.stderr)
                return 1
            shutil.rmtree(root)
    say("| | seconds: median (all) | processor seconds | GiB at most | medallion to it |")
    ours = statistics.median(sides["medallion"].seconds)
    for name, side in sides.items():
        say(side.row(name, ours))
    say(f"the tables of gold are the same in every run, and count {rows:,} rows")
    return 0


def rows_of(table: Path) -> list[tuple[object, ...]]:
    """The rows of a Delta table in order, times as text in UTC."""
    duck = duckdb.connect()
    duck.execute("SET TimeZone = 'UTC'")
    files = DeltaTable(table).file_uris()
    found = duck.read_parquet(files)
    # Spark's default has no zone in its files.
    times = {
        name for name, kind in zip(found.columns, found.types, strict=True) if "TIME" in str(kind)
    }
    shown = (
        f"CAST({n}::TIMESTAMP AS VARCHAR)" if n in times else f"CAST({n} AS VARCHAR)"
        for n in sorted(found.columns)
    )
    return sorted(found.project(", ".join(shown)).fetchall())


def total(gold: dict[str, list[tuple[object, ...]]]) -> list[int]:
    """The rows that each table counts: `total_recordings` is the second of its columns by name."""
    return [sum(int(str(row[1])) for row in rows) for rows in gold.values()]


if __name__ == "__main__":
    sys.exit(main())
