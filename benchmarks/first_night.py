"""The first run of a large landing: `medallion nightly` beside its `peers`, on the same files.

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import Taken, say, timed_side
from benchmarks.peers import declarative, lakehouse_engine
from medallion.factory import DataFactory
from tests.support.lakehouse import rows_of

SOURCE = "activity"
GOLD = {
    "device_counts": ("window_start", "window_end", "device", "total_recordings"),
    "device_totals": ("device", "total_recordings"),
}
PEERS = ("plain_spark", "notebook", "declarative", "lakehouse_engine", "duckdb_delta")
SIDES = ("medallion", *PEERS)
FULL = (1_560_000, 20, 3)  # rows, files, runs of each
SHORT = (78_000, 2, 1)


def main() -> int:
    """Run the comparison; 1 where the tables of gold differ."""
    parser = argparse.ArgumentParser(description="medallion nightly beside its peers")
    parser.add_argument("--short", action="store_true", help="a small landing, once each")
    parser.add_argument("--runs", type=int, help="runs of each side")
    options = parser.parse_args()
    rows, files, runs = SHORT if options.short else FULL
    runs = options.runs or runs
    declarative.prepare()
    lakehouse_engine.prepare()
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder:
        return compare(Path(folder), rows, files, runs)


def compare(folder: Path, rows: int, files: int, runs: int) -> int:
    """Time all sides in turn."""
    landing = folder / "landing"
    DataFactory(landing).land(rows=rows, files=files, source=SOURCE)
    size = sum(file.stat().st_size for file in (landing / SOURCE).iterdir()) / 2**20
    say(f"{rows:,} rows, {files} files, {size:,.0f} MiB, {os.cpu_count()} cores")
    sides: dict[str, list[Taken]] = {name: [] for name in SIDES}
    expected = None
    for number in range(1, runs + 1):
        for name in SIDES:
            root = folder / name
            shutil.copytree(landing, root / "landing", copy_function=os.link)
            run = timed_side(name, root)
            sides[name].append(run)
            say(f"{name:<12} run {number}  {run.seconds:6.1f} s")
            gold = [rows_of(root / "gold" / table, *columns) for table, columns in GOLD.items()]
            expected = expected or gold
            if gold != expected or any(total(found) != rows for found in gold):
                print(f"gold of {name} is not that of medallion, or not whole", file=sys.stderr)
                return 1
            shutil.rmtree(root)
    say("| | seconds: median (all) | processor seconds | GiB at most | medallion to it |")
    ours = statistics.median(run.seconds for run in sides["medallion"])
    for name, taken in sides.items():
        say(row(name, taken, ours))
    say(f"the tables of gold are the same in every run, and count {rows:,} rows")
    return 0


def total(rows: list[tuple[Any, ...]]) -> int:
    """What the last column of a table of gold counts."""
    return sum(row[-1] for row in rows)


def row(name: str, runs: Sequence[Taken], ours: float) -> str:
    """A row of the table; `ours` is medallion's median."""
    seconds = [run.seconds for run in runs]
    median, cpu = statistics.median(seconds), statistics.median(run.cpu for run in runs)
    peak = max(run.peak for run in runs) / 2**20
    cells = f"{median:.1f} ({min(seconds):.1f} to {max(seconds):.1f}) | {cpu:.0f} | {peak:.1f}"
    return f"| {name} | {cells} | {ours / median:.2f} |"


if __name__ == "__main__":
    sys.exit(main())
