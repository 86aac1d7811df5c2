"""A stream that runs through outages of what it depends on: `make faults-outages`.

Files land and messages are sent, some each second. A broker stops or hangs, a lookup table is
replaced, the disk is full, and the stream itself is killed. After each outage all rows must reach
silver, and the final tables must match the input.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

import yaml

from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from tests.faults import damage, disk
from tests.faults.events import ACTIONS, Events
from tests.faults.feed import SOURCE, TOPIC, Feed, differences_of
from tests.faults.report import provenance
from tests.faults.walk import LostError
from tests.support import PROJECT
from tests.support.broker import running
from tests.support.command import Cli
from tests.support.lakehouse import Lakehouse

PATIENCE = 600.0  # seconds until all rows must be in silver; generous, as other work may run


class Outages:
    """A lakehouse, its running stream, and the outages."""

    def __init__(self, disk_dir: Path, conf: Path, feed: Feed, is_small: bool) -> None:
        self.disk_dir, self.root, self.feed = disk_dir, feed.world.root, feed
        lakehouse = Lakehouse(None, self.root)
        lakehouse.use_conf(conf)
        self.cli = Cli(lakehouse)
        self.log = (conf.parent / "stream.log").open("a")
        broker = feed.broker
        self.outages: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "the broker ends": lambda: self._without_broker(broker.stop, broker.start),
            "the broker hangs": lambda: self._without_broker(broker.pause, broker.resume),
            "the lookup table is missing": self._lookup_is_missing,
            "the stream is killed": self._stream_is_killed,
        }
        if is_small:
            self.outages["the disk is full"] = self._disk_is_full
        self.start()

    def start(self) -> None:
        """Start the stream."""
        arguments = ("stream", "--trigger", "1 second")
        options = {"stdout": self.log, "stderr": self.log, "start_new_session": True}
        self.stream = self.cli.start(*arguments, **options)

    def end(self) -> None:
        """Ask the stream to stop; it must do so without an error."""
        self.stream.send_signal(signal.SIGTERM)
        if status := self.stream.wait(300):
            raise LostError(f"the stream ended with {status}")

    def kill(self) -> None:
        """Kill the stream and its JVM."""
        os.killpg(self.stream.pid, signal.SIGKILL)
        self.stream.wait()

    def wait(self) -> float:
        """Wait until silver has all input up to now; return the seconds."""
        with self.feed.blocked:
            events, messages = self.feed.world.silver().total(), self.feed.sent
        started = time.monotonic()
        while True:
            row_counts = [
                delta_tables.row_count(StoragePath(self.root / "silver" / name))
                for name in ("event", SOURCE)
            ]
            if row_counts[0] >= events and row_counts[1] >= messages:
                return time.monotonic() - started
            if self.stream.poll() is not None:
                raise LostError(f"the stream has ended by itself, with {self.stream.returncode}")
            if time.monotonic() - started > PATIENCE:
                raise LostError(f"silver has {row_counts} rows, and not {[events, messages]}")
            time.sleep(0.5)

    @contextmanager
    def _without_broker(
        self, stop: Callable[[], None], restart: Callable[[], None]
    ) -> Iterator[None]:
        with self.feed.blocked:
            self.feed.is_broker_up = False
        stop()
        yield
        restart()
        self.feed.is_broker_up = True

    @contextmanager
    def _lookup_is_missing(self) -> Iterator[None]:
        file = self.root / "reference/weights.csv"
        file.rename(file.with_suffix(".new"))
        yield
        file.with_suffix(".new").rename(file)

    @contextmanager
    def _stream_is_killed(self) -> Iterator[None]:
        self.kill()
        yield
        self.start()

    @contextmanager
    def _disk_is_full(self) -> Iterator[None]:
        with self.feed.blocked, disk.full(self.disk_dir):
            yield


def configure(conf: Path, world: Events, server: str) -> None:
    """Write the walk's configuration, with a lookup table for events and a Kafka source."""
    damage.new_conf(conf, world)
    document = world.document()
    document["sources"]["event"]["enrich"] = {
        "file": "reference/weights.csv",
        "on": "action",
        "columns": {"weight": "long"},
    }
    document["sources"][SOURCE] = {
        "format": "kafka",
        "servers": [server],
        "topics": [TOPIC],
        "schema": {"at": "timestamp", "number": "long"},
        "silver": {"at": "at", "number": "number"},
        "event_time": "at",
        "keys": ["number", "at"],
    }
    (conf / "pipeline.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    suites = conf / "great_expectations/expectations/silver"
    suite = json.loads((PROJECT / "conf" / suites.relative_to(conf) / "event.json").read_text())
    text = json.dumps({**suite, "expectations": suite["expectations"][:2], "name": "silver.clicks"})
    (suites / f"{SOURCE}.json").write_text(text.replace("event_at", "at"), encoding="utf-8")
    reference = world.root / "reference/weights.csv"
    reference.parent.mkdir(parents=True)
    lines = [f"{action},{n}" for n, action in enumerate(ACTIONS)]
    reference.write_text("\n".join(["action,weight", *lines, ""]), encoding="utf-8")


def walk(outages: Outages, rounds: int, seconds: float) -> list[tuple[str, float, float]]:
    """Run each outage in turn; return its length, and the seconds until silver was complete."""
    outages.wait()
    results = []
    for _ in range(rounds):
        for name, outage in outages.outages.items():
            length = outages.feed.world.random.uniform(0.5, 1.5) * seconds
            with outage():
                time.sleep(length)
            results.append((name, length, outages.wait()))
            print(f"{name}: {length:.0f} s, all in silver after {results[-1][2]:.0f} s", flush=True)
            time.sleep(5)
    return results


def check_final_state(outages: Outages) -> None:
    """Stop the stream, run nightly and audit, and compare the tables."""
    outages.end()
    for command in (("nightly",), ("audit", "--deep")):
        process = outages.cli(*command)
        if process.returncode:
            raise LostError(
                f"{command} ended with {process.returncode}: {process.stdout}{process.stderr}"
            )
    if output := differences_of(outages.feed):
        raise LostError("; ".join(output))


def main() -> int:
    """Run the outages and write a report; return 1 if rows were lost."""
    parser = argparse.ArgumentParser(prog="make faults-outages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each outage befalls it")
    parser.add_argument("--seconds", type=float, default=20, help="how long one is, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=PROJECT / "docs/outages.md")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="medallion-outages-"))
    disk_dir = folder / "disk"
    disk_dir.mkdir()
    is_small, started = disk.mount(disk_dir), time.monotonic()
    outages: Outages | None = None
    try:
        with running(folder) as broker:
            broker.create(TOPIC)
            world = Events(disk_dir / "lakehouse", Random(options.seed))
            configure(folder / "conf", world, broker.server)
            feed = Feed(world, broker)
            outages = Outages(disk_dir, folder / "conf", feed, is_small)
            with feed:
                results = walk(outages, options.rounds, options.seconds)
            check_final_state(outages)
    except (LostError, OSError, subprocess.SubprocessError) as error:
        print(f"{error}\nLog of the stream: {folder / 'stream.log'}", file=sys.stderr)
        return 1
    finally:
        if outages and outages.stream.poll() is None:
            outages.kill()
        if is_small:
            disk.unmount(disk_dir)
    options.report.write_text(report(options, feed, results, time.monotonic() - started))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def report(
    options: argparse.Namespace,
    feed: Feed,
    results: list[tuple[str, float, float]],
    seconds: float,
) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Outages",
        "",
        'Written by `make faults-outages`: `medallion stream --trigger "1 second"` on two sources,'
        " files with a lookup table and Kafka messages, while a file lands and messages are sent"
        " each second. After each outage all rows reached silver; at the end a nightly run and"
        " `audit --deep` found nothing, and the tables were what the lines add up to.",
        "",
        f"{provenance(options.seed)}, {seconds / 60:.0f} minutes, {feed.world.number} files, "
        f"{feed.world.lines} lines, {feed.sent} messages.",
        "",
        "| outage | duration | all rows in silver after |",
        "| --- | --- | --- |",
        *(f"| {name} | {length:.0f} s | {back:.0f} s |" for name, length, back in results),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
