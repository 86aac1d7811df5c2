"""The cost of ingesting files, each figure beside its reference, in one run.

    .venv/bin/python -m benchmarks.ingestion [--short] [rescue] [files] [nights]

rescue  what bronze does to keep all of a line, beside Spark's own JSON source: see `rescue`
files   many files of one row: bronze beside Spark's own stream of files, and then a nightly that
        finds nothing new, beside one on a landing zone that never had more than one file
nights  the same few files every night: a late night beside an early one, by layer
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import yaml
from pyspark.sql import SparkSession

from benchmarks.measure import (
    NIGHTLY,
    PROJECT,
    Figure,
    bronze,
    clocked,
    configured,
    expect,
    only,
    plain,
    say,
    show,
    timed,
)
from benchmarks.rescue import rescue
from medallion.config.model import Config
from medallion.factory import DataFactory
from medallion.inspect import balance
from medallion.runtime.nightly import Nightly
from medallion.runtime.pipeline import Pipeline
from medallion.spark.session import spark_session
from medallion.storage.layout import LAYERS

FIGURES = ("rescue", "files", "nights")
STEPS = (*LAYERS, "balance")


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rows: int  # rescue: rows of the landing
    parts: int  # and its files
    runs: int  # runs of each side
    files: int  # files of one row
    idle_runs: int  # nightly processes of each kind
    thorough: bool  # as processes, with clean_source archive as well, early nights beside late ones
    early: range  # the nights that are held against each other
    late: range
    processes: int  # nights after those, as processes


FULL = Scale(1_560_000, 20, 3, 20_000, 3, True, range(3, 8), range(198, 203), 3)
SHORT = Scale(78_000, 2, 1, 300, 0, False, range(3, 6), range(10, 13), 0)


def main() -> int:
    """Measure what is asked for, and print it as one table."""
    parser = argparse.ArgumentParser(description="what taking files in costs")
    parser.add_argument("--short", action="store_true", help="little of each, in about a minute")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(FIGURES)}")
    options = parser.parse_args()
    unknown = set(options.figures) - set(FIGURES)
    if unknown:
        parser.error(f"there is no figure {', '.join(sorted(unknown))}")
    scale = SHORT if options.short else FULL
    measure: dict[str, Callable[[SparkSession, Path, Scale], list[Figure]]] = {
        "rescue": lambda spark, folder, s: rescue(spark, folder, s.rows, s.parts, s.runs),
        "files": many_files,
        "nights": nights,
    }
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    with tempfile.TemporaryDirectory(prefix="medallion-bench-") as name:
        folder = Path(name)
        spark = spark_session(configured(folder), "bench ingestion")
        found: list[Figure] = []
        for figure in options.figures or FIGURES:
            found += measure[figure](spark, folder / figure, scale)
        spark.stop()
    show(found, "medians of seconds")
    return 0


def many_files(spark: SparkSession, folder: Path, scale: Scale) -> list[Figure]:
    """Time files of one row, and then runs that find nothing new."""
    off = conf_without_cleaning(folder / "conf")
    lies: dict[str, dict[str, str]] = {
        "archived": {},
        "lying": {"MEDALLION_CONF": str(off)},
        "empty": {},
    }
    if not scale.thorough:
        del lies["archived"]
    land_small(folder / "warm", scale.files // 10)  # the first batches of a session are slow
    bronze(spark, configured(folder / "warm"), "event")
    shutil.rmtree(folder / "warm/bronze")
    shutil.copytree(folder / "warm/archive", folder / "warm/landing", dirs_exist_ok=True)
    shutil.rmtree(folder / "warm/_checkpoints")
    plain(spark, configured(folder / "warm"), "event")

    seconds: dict[str, float] = {}
    for side in ("plain", *lies):
        root = folder / side
        if side == "empty":
            continue
        land_small(root, scale.files)
        config = configured(root, **lies.get(side, {}))
        if side == "plain":
            seconds[side] = plain(spark, config, "event")
        else:
            seconds[side] = bronze(spark, config, "event")
        expect(root, "event", scale.files)
        rate = scale.files / seconds[side]
        say(f"files     {side:<9} {seconds[side]:6.2f} s, {rate:7,.0f} files/s")
    names = {"archived": "clean_source archive", "lying": "clean_source off"}
    found = []
    for side in (side for side in names if side in seconds):
        rates = " | ".join(f"{scale.files / seconds[name]:,.0f}" for name in (side, "plain"))
        note = f"{scale.files:,} files: {rates} a second"
        name = f"bronze, {names[side]} | plain files"
        found.append(Figure(name, seconds[side], seconds["plain"], None, note))
    if scale.idle_runs:
        idle = idle_nights(spark, folder, lies, scale)
        for side, name in names.items():
            found.append(Figure(f"idle nightly, {name} | empty", idle[side], idle["empty"], 1.2))
    return found


def idle_nights(
    spark: SparkSession, folder: Path, lies: dict[str, dict[str, str]], scale: Scale
) -> dict[str, float]:
    """Return the seconds of complete processes that find nothing new."""
    land_small(folder / "empty", 1)
    for side, environment in lies.items():  # once before, so that there is nothing new
        settle(spark, configured(folder / side, **environment))
    seconds: dict[str, list[float]] = {side: [] for side in lies}
    for number in range(1, scale.idle_runs + 1):
        for side, environment in lies.items():
            taken = timed([*NIGHTLY], folder / side, **environment).seconds
            seconds[side].append(taken)
            say(f"files     idle nightly {number}: {side:<9} {taken:6.2f} s")
    return {side: statistics.median(taken) for side, taken in seconds.items()}


def nights(spark: SparkSession, folder: Path, scale: Scale) -> list[Figure]:
    """Night after night in one session, without gates. Early nights are timed beside the late
    ones, on a root of their own: so both run in a warm session, under the same load."""
    old, young = Nights(spark, folder / "old"), Nights(spark, folder / "young")
    cold, late, early = [], [], []
    for number in range(1, scale.late.start):
        taken = old.next()
        if number in scale.early:
            cold.append(taken)
        if number % 20 == 0 or number in scale.early:
            say(f"nights    night {number:3}: {told(taken)}")
    if scale.thorough:
        for _ in range(1, scale.early.start):
            young.next()
    for number, other in zip(scale.late, scale.early, strict=True):
        late.append(old.next())
        say(f"nights    night {number:3}: {told(late[-1])}")
        if scale.thorough:
            early.append(young.next())
            say(f"nights    night {other:3}: {told(early[-1])} (other root)")
    first = medians(cold)
    say(f"nights    as they came, nights {named(scale.early)}: {told(first)}")
    ours, beside = medians(late), medians(early or cold)
    name = f"night {named(scale.late)} | {named(scale.early)}"
    found = [Figure(f"{name}, {step}", ours[step], beside[step]) for step in STEPS]
    note = "5 files of 200 rows a night, no gates"
    found.append(Figure(f"{name}, all", sum(ours.values()), sum(beside.values()), None, note))
    if scale.processes:
        found.append(as_processes(spark, old, young, scale.processes))
    return found


def as_processes(spark: SparkSession, old: Nights, young: Nights, count: int) -> Figure:
    """The nights after those, as whole `medallion nightly` processes: session, gates, documents."""
    seconds: dict[Nights, list[float]] = {old: [], young: []}
    for some in seconds:
        settle(spark, configured(some.root))
    for _ in range(count):
        for some, taken in seconds.items():
            some.land()
            taken.append(timed([*NIGHTLY], some.root).seconds)
            say(f"nights    nightly process on {some.root.name:<5} {taken[-1]:6.2f} s")
    ours, beside = (statistics.median(taken) for taken in seconds.values())
    return Figure("the nights after these, as processes", ours, beside, None, "with gates")


class Nights:
    """A root that gets files of activity before each run."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark, self.root = spark, root

    def land(self) -> None:
        """Return the files of one run."""
        DataFactory(self.root / "landing").land(rows=1000, files=5, source="activity")

    def next(self) -> dict[str, float]:
        """Land files and run once; return the seconds of each step."""
        self.land()
        return layers(self.spark, configured(self.root), "activity")


def layers(spark: SparkSession, config: Config, source: str) -> dict[str, float]:
    """Run one source without gates; return the seconds of each step."""
    gold = {
        name: table for name, table in config.gold.items() if table.tables == (f"silver.{source}",)
    }
    pipeline = Pipeline(spark, replace(only(config, source), gold=gold), "bench", lambda _: None)
    taken = {layer: clocked(lambda: pipeline.run(layer)) for layer in LAYERS}  # noqa: B023
    taken["balance"] = clocked(lambda: balance.take_snapshot(pipeline.config, pipeline.runs))
    return taken


def settle(spark: SparkSession, config: Config) -> None:
    """A nightly that is not timed."""
    report = Nightly(Pipeline(spark, config, "bench", lambda _: None)).run()
    if not report.is_good:
        raise SystemExit(f"{config.layout.root}: {report.errors or report.snapshot.balances}")


def conf_without_cleaning(conf: Path) -> Path:
    """A copy of conf/ where the files of all sources stay in landing."""
    shutil.copytree(PROJECT / "conf", conf)
    file = conf / "pipeline.yaml"
    document = yaml.safe_load(file.read_text())
    for source in document["sources"].values():
        source["clean_source"] = "off"
    file.write_text(yaml.safe_dump(document, sort_keys=False))
    return conf


def land_small(root: Path, files: int) -> None:
    """Files of one event each, a second apart."""
    landing = root / "landing/event"
    landing.mkdir(parents=True)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    for number in range(files):
        at = (start + timedelta(seconds=number)).isoformat(timespec="seconds")[:19]
        line = f'{{"id":"phone{number % 5}","action":"open","ts":"{at}"}}\n'
        (landing / f"{number:05}.json").write_text(line)


def medians(some: Sequence[dict[str, float]]) -> dict[str, float]:
    """The median of each step."""
    return {step: statistics.median(taken[step] for taken in some) for step in STEPS}


def told(taken: dict[str, float]) -> str:
    """Steps with their seconds."""
    steps = ", ".join(f"{step} {seconds:.2f}" for step, seconds in taken.items())
    return f"{sum(taken.values()):.2f} s ({steps})"


def named(some: range) -> str:
    """`3-7`."""
    return f"{some[0]}-{some[-1]}"


if __name__ == "__main__":
    sys.exit(main())
