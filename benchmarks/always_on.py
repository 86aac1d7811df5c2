"""How long a row takes from its file's rename to gold while all layers are on: a file a second.

Beside medallion, plain Spark with the same layers and two of its tables of gold.

    .venv/bin/python -m benchmarks.always_on [--short] [--trigger "1 second"]

A file is in gold when a version of gold.device_totals counts its rows; versions have the time of
their commit. What lands in the first minute, while Java is warming up, is not counted.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from deltalake import DeltaTable, QueryBuilder

from benchmarks.measure import PROJECT, say
from medallion.factory import DataFactory
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

SOURCE = "activity"
ROWS = 100  # a file
GOLD = "gold/device_totals"
FULL = (60, 240)  # files that warm it up, and files that count
SHORT = (10, 10)
_PATIENCE = 300  # seconds for the first row, and for the last


def main() -> int:
    """Measure; 1 where not every row came to gold."""
    parser = argparse.ArgumentParser(description="from rename to gold, always on")
    parser.add_argument("--short", action="store_true", help="twenty files")
    parser.add_argument("--trigger", default="1 second", help="of all queries")
    options = parser.parse_args()
    warm, counted = SHORT if options.short else FULL
    say(f"trigger {options.trigger}, a file of {ROWS} rows a second; from rename to gold:")
    for name, process in {
        "medallion": ["medallion", "stream", "--trigger", options.trigger],
        "plain Spark": ["benchmarks.peers.plain_spark", options.trigger],
    }.items():
        with tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder:
            ordered = sorted(latencies(Path(folder), warm + counted, process)[warm:])
        say(
            f"{name}: median {statistics.median(ordered):.1f} s, 99th percentile "
            f"{ordered[int(0.99 * (len(ordered) - 1))]:.1f} s, longest {ordered[-1]:.1f} s, "
            f"{len(ordered)} files; "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
        )
    return 0


def latencies(folder: Path, files: int, process: list[str]) -> list[float]:
    """Seconds of each file from its rename to gold, by a module of Python's with its arguments."""
    root, staged = folder / "lakehouse", folder / "staged"
    DataFactory(staged).land(rows=files * ROWS, files=files, source=SOURCE)
    waiting = sorted((staged / SOURCE).iterdir())
    landing = root / "landing" / SOURCE
    landing.mkdir(parents=True)
    with (folder / "output.txt").open("w") as output:
        stream = subprocess.Popen(
            [sys.executable, "-m", *process],
            env={**os.environ, "MEDALLION_HOME": str(root)},
            cwd=PROJECT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            renamed = land(waiting, landing, root, stream)
            until_counted(root, files * ROWS, stream)
        finally:
            stream.send_signal(signal.SIGTERM)
            stream.wait()
    if stream.returncode:
        raise SystemExit((folder / "output.txt").read_text())
    seen = arrivals(root, files)
    return [at - landed for at, landed in zip(seen, renamed, strict=True)]


def land(
    waiting: list[Path], landing: Path, root: Path, stream: subprocess.Popen[bytes]
) -> list[float]:
    """Rename a file a second, once the first one is in gold; when each was."""
    renamed = []
    for number, file in enumerate(waiting):
        started = time.time()
        file.rename(landing / file.name)
        renamed.append(started)
        if number == 0:
            until_counted(root, ROWS, stream)
        time.sleep(max(0.0, started + 1 - time.time()))
    return renamed


def until_counted(root: Path, rows: int, stream: subprocess.Popen[bytes]) -> None:
    """Wait until gold counts so many rows."""
    end = time.monotonic() + _PATIENCE
    while (
        not delta_tables.table_exists(StoragePath(root / GOLD))
        or total(DeltaTable(root / GOLD)) < rows
    ):
        if time.monotonic() > end or stream.poll() is not None:
            output = (root.parent / "output.txt").read_text()
            raise SystemExit(f"{root}: gold does not come to count {rows:,} rows\n{output}")
        time.sleep(1)


def arrivals(root: Path, files: int) -> list[float]:
    """When gold first counted the rows of each file, in the order in which they landed."""
    table = DeltaTable(root / GOLD)
    seen: list[float] = []
    for commit in sorted(table.history(), key=lambda commit: int(commit["version"])):
        count = total(DeltaTable(root / GOLD, version=int(commit["version"])))
        seen += [commit["timestamp"] / 1000] * (count // ROWS - len(seen))
    if len(seen) != files:
        raise SystemExit(f"{root}: gold counts {len(seen)} of {files} files")
    return seen


def total(table: DeltaTable) -> int:
    """The recordings that gold counts."""
    found = QueryBuilder().register("gold", table).execute("SELECT sum(total_recordings) FROM gold")
    return int(found.read_all().column(0)[0].as_py() or 0)


if __name__ == "__main__":
    sys.exit(main())
