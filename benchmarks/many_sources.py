"""The first night of many small sources, and a second one: what each further source takes.

    .venv/bin/python -m benchmarks.many_sources [--short] [--sources N ...] [--rows N]

Each source has one file of 40 rows, a silver table and a gold table. medallion and plain Spark
run in turn, as whole processes on roots of their own, and have to give the same gold.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import PROJECT, Taken, say, timed_side
from tests.support.lakehouse import rows_of

FULL, SHORT = (5, 15), (2, 4)  # sources
NIGHTS = ("first night", "second night")
SIDES = ("medallion", "plain_sources")
ENTRY = """
  {name}:
    schema: {{at: timestamp, id: string, value: double}}
    silver: {{at: at, id: id, value: value}}
    event_time: at
    keys: [id, at]
    watermark: 1 hour
"""
GOLD = """
  {name}_hours:
    source: silver.{name}
    window: 1 hour
    group_by: [id]
    measure: {{rows: count(*), total: sum(value)}}
"""
GUARDS: dict[str, dict[str, Any]] = {
    "missing_event_time": {
        "type": "expect_column_values_to_not_be_null",
        "kwargs": {"column": "at"},
    },
    "future_event_time": {
        "type": "unexpected_rows_expectation",
        "kwargs": {
            "unexpected_rows_query": (
                "SELECT * FROM {batch} WHERE at > _ingested_at + INTERVAL 1 DAY"
            )
        },
    },
}


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description="many small sources")
    parser.add_argument("--short", action="store_true", help="fewer sources")
    parser.add_argument("--sources", type=int, nargs="+", help="numbers of sources")
    parser.add_argument("--rows", type=int, default=40, help="rows of each file")
    options = parser.parse_args()
    counts = options.sources or (SHORT if options.short else FULL)
    say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start")
    taken = {count: measure(count, options.rows) for count in counts}
    say("| | " + " | ".join(f"{count} sources" for count in counts) + " | each further source |")
    few, many = min(counts), max(counts)
    for number, name in enumerate(NIGHTS):
        for side in SIDES:
            nights = {count: sides[side][number] for count, sides in taken.items()}
            cells = [f"{t.seconds:.0f} s, {t.cpu:.0f} CPU" for t in nights.values()]
            more = nights[many].cpu - nights[few].cpu
            further = f"{more / (many - few):.1f} CPU s" if many > few else ""
            say(f"| {name}, {side} | {' | '.join(cells)} | {further} |")
    return 0


def measure(count: int, rows: int) -> dict[str, list[Taken]]:
    """Return for each side what the nights of so many sources took."""
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as folder:
        conf = Path(folder, "conf")
        names = [f"s{number:02}" for number in range(count)]
        configure(conf, names)
        taken: dict[str, list[Taken]] = {side: [] for side in SIDES}
        for number, night in enumerate(NIGHTS):
            for side, nights in taken.items():
                root = Path(folder, side)
                for name in names:
                    land(root, name, number, rows)
                nights.append(timed_side(side, root, MEDALLION_CONF=str(conf)))
                if (side, night) == ("medallion", NIGHTS[0]) and "BENCH_OUTPUT" in os.environ:
                    shutil.copy(root / "output.txt", os.environ["BENCH_OUTPUT"])
                last = nights[-1]
                say(
                    f"{count:>3} sources, {night}, {side}: {last.seconds:.1f} s, {last.cpu:.1f} CPU"
                )
            for name in names:
                compare(Path(folder), name, rows * (number + 1))
        return taken


def compare(folder: Path, name: str, rows: int) -> None:
    """Both sides must have the same gold, and all rows in it."""
    columns = ("window_start", "window_end", "id", "rows", "total")
    gold = [rows_of(folder / side / f"gold/{name}_hours", *columns) for side in SIDES]
    counted = [sum(row[3] for row in found) for found in gold]
    if gold[0] != gold[1] or counted != [rows, rows]:
        raise SystemExit(f"gold.{name}_hours counts {counted} rows, and both should have {rows}")


def configure(conf: Path, names: list[str]) -> None:
    """Write the configuration of so many sources."""
    shutil.copytree(PROJECT / "conf", conf)
    suites = conf / "great_expectations/expectations"
    shutil.rmtree(suites)
    (suites / "silver").mkdir(parents=True)
    sources = "".join(ENTRY.format(name=name) for name in names)
    gold = "".join(GOLD.format(name=name) for name in names)
    (conf / "pipeline.yaml").write_text(f"sources:{sources}\ngold:{gold}")
    for name in names:
        expectations = [
            {**guard, "meta": {"name": rule, "on_failure": "quarantine"}}
            for rule, guard in GUARDS.items()
        ]
        suite = {"name": f"silver.{name}", "expectations": expectations}
        meta = {"great_expectations_version": "1.24.1"}
        (suites / f"silver/{name}.json").write_text(json.dumps({**suite, "meta": meta}))


def land(root: Path, name: str, number: int, rows: int) -> None:
    """Land one file; each file's rows are an hour later than those of the file before."""
    folder = root / "landing" / name
    folder.mkdir(parents=True, exist_ok=True)
    lines = (
        {"at": f"2026-01-02T{10 + number}:{n % 60:02}:00Z", "id": f"d{n % 7}", "value": n / 8}
        for n in range(rows)
    )
    (folder / f"{number}.json").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
