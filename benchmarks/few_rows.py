"""A run of few rows: the sample's first run beside a bare session, and a run with nothing new.

    .venv/bin/python -m benchmarks.few_rows [--short] [--runs N]

20 rows of two sources and four tables of gold, as whole processes, in turn; what the gates took is
what the night itself says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import NIGHTLY, Figure, Taken, configured, say, show, timed, timed_peer
from medallion.factory import sample

FULL, SHORT = 5, 1  # runs of each
BARE = "bare_session"


def main() -> int:
    """Measure, and print it as one table."""
    parser = argparse.ArgumentParser(description="a night of few rows")
    parser.add_argument("--short", action="store_true", help="once each")
    parser.add_argument("--runs", type=int, help="runs of each")
    options = parser.parse_args()
    runs = options.runs or (SHORT if options.short else FULL)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as name:
        figures = measure(Path(name), runs)
    show(figures, "medians of seconds")
    return 0


def measure(folder: Path, runs: int) -> list[Figure]:
    """The figures of so many runs of each."""
    seconds: dict[str, list[float]] = {"bare": [], "sample": [], "gates": [], "idle": []}
    for number in range(runs):
        bare, root = folder / f"bare{number}", folder / f"sample{number}"
        bare.mkdir()
        root.mkdir()
        seconds["bare"].append(told("bare session", timed_peer(BARE, bare)))
        sample.land(configured(root))
        first = timed([*NIGHTLY, "--json"], root)
        seconds["sample"].append(told("the sample's first night", first))
        seconds["gates"].append(of_the_gates(root / "output.txt"))
        seconds["idle"].append(told("a night with nothing new", timed([*NIGHTLY], root)))
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    return [
        Figure("the sample's first night | bare session", middle["sample"], middle["bare"], 2),
        Figure("its gates | 2 s", middle["gates"], 2, 1),
        Figure("a night with nothing new | 1 s", middle["idle"], 1, 1),
    ]


def told(name: str, taken: Taken) -> float:
    """Say what a process took."""
    say(f"{name:<26} {taken.seconds:6.2f} s, {taken.cpu:5.1f} CPU s, {taken.peak / 2**20:.1f} GiB")
    return taken.seconds


def of_the_gates(output: Path) -> float:
    """Return the seconds that a run waited for its gates, by its own report."""
    report = json.loads(output.read_text().splitlines()[-1])
    return float(report["seconds"]["gates"])


if __name__ == "__main__":
    sys.exit(main())
