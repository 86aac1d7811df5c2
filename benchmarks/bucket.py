"""The sample project on a bucket of an S3 server on this machine, beside the same on a disk.

    .venv/bin/python -m benchmarks.bucket [--short] [--rows N]

Three nightly runs, each a whole process, in turn on both: the first one, one with a new file of
each source, and one with nothing new. The server (versitygw) runs on the same cores; its processor
time is not counted, its answers take well below a millisecond.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import NIGHTLY, Figure, Taken, say, show, timed
from tests.support import s3_server

LAND = ("-m", "medallion", "land", "--batches", "1", "--files", "1")
RUNS = ("first run", "one new file of each source", "nothing new")
FULL, SHORT = 100_000, 1_000  # rows of a file


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="a bucket beside a disk")
    parser.add_argument("--short", action="store_true", help=f"{SHORT} rows of each file")
    parser.add_argument("--rows", type=int, help="rows of each file")
    options = parser.parse_args()
    rows = options.rows or (SHORT if options.short else FULL)
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start, files of {rows} rows")
    with (
        tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder,
        s3_server.running(Path(folder)) as server,
    ):
        disk, bucket = Path(folder, "disk"), server.create_bucket("lakehouse")
        disk.mkdir()
        places = {"disk": str(disk), "bucket": bucket.url("root")}
        taken = measure(disk, places, server.environment(), str(rows))
    for unit in ("seconds", "cpu"):
        of_unit = {place: [getattr(each, unit) for each in runs] for place, runs in taken.items()}
        pairs = zip(RUNS, of_unit["bucket"], of_unit["disk"], strict=True)
        show((Figure(*pair) for pair in pairs), f"bucket beside disk: {unit}")
    return 0


def measure(
    logs: Path, places: dict[str, str], environment: dict[str, str], rows: str
) -> dict[str, list[Taken]]:
    """Return what the runs took in each place.

    Args:
        logs: the folder for what they print.
        places: the roots of the lakehouses by their names.
        environment: address and credentials of the server.
        rows: rows of each file.
    """
    taken: dict[str, list[Taken]] = {name: [] for name in places}
    for run in RUNS:
        for name, root in places.items():
            settings = {**environment, "MEDALLION_HOME": root}
            if run != RUNS[-1]:
                timed([*LAND, "--rows", rows, "--seed", str(RUNS.index(run))], logs, **settings)
            taken[name].append(timed([*NIGHTLY], logs, **settings))
            last = taken[name][-1]
            say(f"{name:<7} {run:<28} {last.seconds:6.2f} s, {last.cpu:5.1f} CPU s")
    return taken


if __name__ == "__main__":
    sys.exit(main())
