"""What grows with history: large first runs, and then a run of one more file.

    .venv/bin/python -m benchmarks.growth [--short] [--runs N]

A first night of few files and one of four times as many, the few beside plain Spark; then one more
file on each history, beside one on an empty history, the sample's first night, and DuckDB, which
computes all of it anew. Whole processes, and the most memory that they held.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import NIGHTLY, Figure, Taken, configured, say, show, timed, timed_peer
from medallion.factory import DataFactory, sample
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath

SOURCE = "activity"
ROWS = 78_000  # a file
FULL = (80, 320, 3)  # files of the two histories, runs of the night after
SHORT = (2, 4, 1)
PLAIN, DUCKDB = "plain_spark", "duckdb_delta"


def main() -> int:
    """Measure, and print it as one table."""
    parser = argparse.ArgumentParser(description="what grows with history")
    parser.add_argument("--short", action="store_true", help="a few files, once")
    parser.add_argument("--runs", type=int, help="runs of the night of one more file")
    options = parser.parse_args()
    few, many, runs = SHORT if options.short else FULL
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as name:
        figures = measure(Path(name), few, many, options.runs or runs)
    show(figures, "seconds")
    return 0


def measure(folder: Path, few: int, many: int, runs: int) -> list[Figure]:
    """The figures of two histories."""
    files = land(folder / "all", many + runs)
    first = {count: first_night(folder, files, count) for count in (1, few, many)}
    plain = peer(folder, files[:few], PLAIN)
    after: dict[int, list[Taken]] = {count: [] for count in first}
    recomputed: dict[int, list[Taken]] = {few: [], many: []}
    samples: list[Taken] = []
    for number in range(1, runs + 1):
        for count in first:
            link(files[count : count + number], root_of(folder, count))
            after[count].append(night(root_of(folder, count), f"{count} files, and one more"))
        samples.append(of_the_sample(folder / f"sample{number}"))
        for count in recomputed:
            recomputed[count].append(peer(folder, files[: count + number], DUCKDB))

    def middle(taken: list[Taken]) -> float:
        return statistics.median(run.seconds for run in taken)

    million = (many - few) * ROWS / 1e6
    further = (first[many].seconds - first[few].seconds) / million
    say(f"each further million rows: {further:.1f} s")
    gib = [first[count].peak / 2**20 for count in (few, many)]
    return [
        Figure(f"first night, {few} files | plain Spark", first[few].seconds, plain.seconds, 1.2),
        Figure(f"peak GiB, {many} files | {few}", gib[1], gib[0], 1.15),
        Figure(f"one more after {few} | the sample", middle(after[few]), middle(samples), 1.3),
        Figure(f"one more after {many} | after 1", middle(after[many]), middle(after[1]), 1.2),
        *(
            Figure(f"one more after {n} | DuckDB, all anew", middle(after[n]), middle(taken))
            for n, taken in recomputed.items()
        ),
    ]


def land(folder: Path, count: int) -> list[Path]:
    """Files of `ROWS` recordings, in the order in which they landed."""
    DataFactory(folder / "landing").land(rows=count * ROWS, files=count, source=SOURCE)
    files = sorted((folder / "landing" / SOURCE).iterdir())
    say(f"{count} files of {ROWS:,} rows landed")
    return files


def root_of(folder: Path, count: int) -> Path:
    """Return the root of the lakehouse whose first run has `count` files."""
    return folder / f"after{count}"


def link(files: list[Path], root: Path) -> None:
    """Land files that no other lakehouse is to lose."""
    landing = root / "landing" / SOURCE
    landing.mkdir(parents=True, exist_ok=True)
    archive = root / "archive" / SOURCE
    for file in files:
        if not list(archive.rglob(file.name)):
            os.link(file, landing / file.name)


def first_night(folder: Path, files: list[Path], count: int) -> Taken:
    """Run the first `count` files as a first run."""
    root = root_of(folder, count)
    link(files[:count], root)
    return night(root, f"first night of {count} files")


def night(root: Path, name: str) -> Taken:
    """A nightly of medallion."""
    taken = timed([*NIGHTLY], root)
    say(f"{name:<32} {taken.seconds:6.1f} s, {taken.cpu:5.0f} CPU s, {taken.peak / 2**20:.1f} GiB")
    return taken


def of_the_sample(root: Path) -> Taken:
    """Run the sample for the first time."""
    root.mkdir()
    sample.land(configured(root))
    return night(root, "first night of the sample")


def peer(folder: Path, files: list[Path], name: str) -> Taken:
    """Run all files by a peer."""
    root = folder / name
    link(files, root)
    taken = timed_peer(name, root)
    say(f"{name}, {len(files):<20} {taken.seconds:6.1f} s, {taken.peak / 2**20:.1f} GiB")
    if delta_tables.row_count(StoragePath(root / "silver" / SOURCE)) != len(files) * ROWS:
        raise SystemExit(
            f"{name} made {delta_tables.row_count(StoragePath(root / 'silver' / SOURCE)):,} rows"
        )
    shutil.rmtree(root)
    return taken


if __name__ == "__main__":
    sys.exit(main())
