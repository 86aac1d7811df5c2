"""A stream of many small micro-batches in one warm session, with maintenance and without.

`make bench-maintain`: how large the tables are and how long a batch takes at the end, beside both
at the hundredth batch. BENCH_ARGS: --batches N (1,000), --every '1 minute', --without.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.measure import PROJECT, cpu_seconds, family_of, say
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.inspect.audit import run_audit
from medallion.runtime import maintenance
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.stream import Stream
from medallion.spark.session import spark_session
from medallion.storage.layout import LAYERS, Layout

FIRST, EVERY, WINDOW = 100, 250, 20  # at which batches figures are taken, and over how many


@dataclass
class Figures:
    """What there is on disk after so many batches of bronze, and the median seconds of the last.

    `cpu` is what all of it took for each of the last batches of bronze, in seconds of processor
    time, which a busy machine distorts less.
    """

    batches: int
    seconds: dict[str, float]
    cpu: float
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        taken = ", ".join(f"{query} {s:.2f} s" for query, s in self.seconds.items())
        lines = [f"after {self.batches} batches of bronze: {taken}; {self.cpu:.2f} CPU s each"]
        for name, (files, size) in self.sizes.items():
            lines.append(f"  {name:<24}{files:>8,} files {size / 2**20:>9.2f} MiB")
        return "\n".join(lines)


def main() -> None:
    """Run the stream, and print the figures as they come."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--every", default="1 minute", help="how often maintenance is due")
    parser.add_argument("--without", action="store_true", help="without any maintenance")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="medallion-maintain-"))
    try:
        config = _config(root, Duration.parse("1 day" if options.without else options.every))
        for figures in _run(config, options.batches):
            say(str(figures))
    finally:
        shutil.rmtree(root)


def _config(root: Path, every: Duration) -> Config:
    """Return one source and one gold table that every batch overwrites."""
    known = load({}, PROJECT)
    policy = replace(known.maintain, every=every, retention=Duration.parse("1 minute"))
    return replace(
        known,
        layout=Layout(root),
        sources={"event": known.sources["event"]},
        gold={"action_counts": known.gold["action_counts"]},
        maintain=policy,
    )


def _run(config: Config, batches: int) -> Iterator[Figures]:
    spark = spark_session(config, "bench maintain")
    told: list[str] = []
    pipeline = Pipeline(spark, config, "stream", told.append)
    stream = Stream(pipeline, LAYERS, "1 second")
    taken: dict[str, dict[int, float]] = {}
    spent: dict[int, float] = {}
    landed = 0
    try:
        _land(config, landed)
        for layer in LAYERS:
            pipeline.run(layer)
        maintenance.apply_properties(config, LAYERS)  # as a stream does that finds its tables there
        landed += 1
        _land(config, landed)
        stream.start()
        done = 0
        while done < batches - 1:
            stream.step()
            if stream.failures:
                raise SystemExit("; ".join(stream.failures.values()))
            for query in spark.streams.active:
                progress = query.lastProgress
                if progress and "addBatch" in progress["durationMs"]:
                    seconds = progress["durationMs"]["triggerExecution"] / 1000
                    taken.setdefault(query.name, {})[progress["batchId"]] = seconds
            reached = max(taken.get("bronze.event", {-1: 0.0}))
            if reached > done:
                done = reached
                spent[done] = cpu_seconds(family_of(os.getpid()))
                landed += 1
                _land(config, landed)
                stream.poll()
                if done + 1 in {FIRST, *range(EVERY, batches, EVERY), batches}:
                    yield _figures(config, done + 1, taken, spent)
            time.sleep(0.2)
    finally:
        stream.stop()
    found = run_audit(config, everything=True)
    say(f"audit --deep: {'balanced' if found.is_balanced else found.findings}")
    spark.stop()
    for line in told:
        if "batch" not in line:
            say(line)


def _land(config: Config, number: int) -> None:
    """Ten events, a minute later than those before."""
    landing = config.layout.landing("event")
    landing.local.mkdir(parents=True, exist_ok=True)
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=number)
    lines = (
        {"id": f"d{at}", "action": "open", "ts": (start + timedelta(seconds=at)).isoformat()}
        for at in range(10)
    )
    hidden = landing / f".{number}.json"
    hidden.local.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    hidden.local.rename(landing / f"{number}.json")


def _figures(
    config: Config, batches: int, taken: dict[str, dict[int, float]], spent: dict[int, float]
) -> Figures:
    seconds = {
        name: statistics.median([some[batch] for batch in sorted(some)[-WINDOW:]])
        for name, some in sorted(taken.items())
    }
    before, *_, last = sorted(spent)[-WINDOW - 1 :]
    figures = Figures(batches, seconds, (spent[last] - spent[before]) / (last - before))
    layout = config.layout
    for name in ("bronze.event", "silver.event", "gold.action_counts", "ops.files", "ops.runs"):
        figures.sizes[name] = _size(layout.table(name).local)
    figures.sizes["_intake.event"] = _size(layout.queue("event").local)
    figures.sizes["_checkpoints"] = _size((layout.root / "_checkpoints").local)
    whole, archive = _size(layout.root.local), _size(layout.archive("event").local)
    figures.sizes["all but archive"] = whole[0] - archive[0], whole[1] - archive[1]
    return figures


def _size(folder: Path) -> tuple[int, int]:
    """Files below a folder, and their bytes; some go while they are counted."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                sizes.append(path.stat().st_size)
        except FileNotFoundError:
            continue
    return len(sizes), sum(sizes)


if __name__ == "__main__":
    main()
