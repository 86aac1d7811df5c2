"""A stream that stays on while what it needs goes away and comes back: `make faults-outages`.

Files land and messages are sent, some a second. A broker ends or hangs, a reference is being
replaced, the disk is full, and the stream itself is killed; after each of them all that has come
must be in silver again, and in the end the tables are what the lines add up to.
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
from tests.faults.feed import SOURCE, TOPIC, Feed, unlike
from tests.faults.report import made_by
from tests.faults.walk import LostError
from tests.support import PROJECT
from tests.support.broker import running
from tests.support.command import Cli

PATIENCE = 600.0  # seconds until all is in silver again: other work may be on


class Outages:
    """One lakehouse, the stream that is on, and what may befall them."""

    def __init__(self, place: Path, conf: Path, feed: Feed, is_small: bool) -> None:
        self.place, self.root, self.feed = place, feed.world.root, feed
        self.cli = Cli(self.root)
        self.cli.environment["MEDALLION_CONF"] = str(conf)
        self.log = (conf.parent / "stream.log").open("a")
        broker = feed.broker
        self.kinds: dict[str, Callable[[], AbstractContextManager[None]]] = {
            "the broker ends": lambda: self._without_broker(broker.stop, broker.start),
            "the broker hangs": lambda: self._without_broker(broker.pause, broker.go_on),
            "the lookup table is missing": self._lookup_is_missing,
            "the stream is killed": self._stream_is_killed,
        }
        if is_small:
            self.kinds["the disk is full"] = self._disk_is_full
        self.start()

    def start(self) -> None:
        """Start the stream."""
        arguments = ("stream", "--trigger", "1 second")
        options = {"stdout": self.log, "stderr": self.log, "start_new_session": True}
        self.stream = self.cli.start(*arguments, **options)

    def end(self) -> None:
        """Ask the stream to end; it has to, without complaint."""
        self.stream.send_signal(signal.SIGTERM)
        if status := self.stream.wait(300):
            raise LostError(f"the stream ended with {status}")

    def kill(self) -> None:
        """End it, and its Java."""
        os.killpg(self.stream.pid, signal.SIGKILL)
        self.stream.wait()

    def wait(self) -> float:
        """Seconds until all that has come up to now is in silver."""
        with self.feed.held:
            events, messages = self.feed.world.silver().total(), self.feed.sent
        started = time.monotonic()
        while True:
            there = [
                delta_tables.row_count(StoragePath(self.root / "silver" / name))
                for name in ("event", SOURCE)
            ]
            if there[0] >= events and there[1] >= messages:
                return time.monotonic() - started
            if self.stream.poll() is not None:
                raise LostError(f"the stream has ended by itself, with {self.stream.returncode}")
            if time.monotonic() - started > PATIENCE:
                raise LostError(f"silver has {there} rows, and not {[events, messages]}")
            time.sleep(0.5)

    @contextmanager
    def _without_broker(
        self, goes: Callable[[], None], comes_back: Callable[[], None]
    ) -> Iterator[None]:
        with self.feed.held:
            self.feed.is_broker_there = False
        goes()
        yield
        comes_back()
        self.feed.is_broker_there = True

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
        with self.feed.held, disk.full(self.place):
            yield


def configure(conf: Path, world: Events, server: str) -> None:
    """The walk's configuration; and a reference for its events, and a source of messages."""
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
    """Each outage in turn; its length, and how long silver took to have all again."""
    outages.wait()
    found = []
    for _ in range(rounds):
        for name, outage in outages.kinds.items():
            length = outages.feed.world.random.uniform(0.5, 1.5) * seconds
            with outage():
                time.sleep(length)
            found.append((name, length, outages.wait()))
            print(f"{name}: {length:.0f} s, all in silver after {found[-1][2]:.0f} s", flush=True)
            time.sleep(5)
    return found


def at_rest(outages: Outages) -> None:
    """End the stream, run a night, and have the tables compared."""
    outages.end()
    for command in (("nightly",), ("audit", "--deep")):
        done = outages.cli(*command)
        if done.returncode:
            raise LostError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
    if found := unlike(outages.feed):
        raise LostError("; ".join(found))


def main() -> int:
    """Go through the outages, and write down what happened; 1 where something was lost."""
    parser = argparse.ArgumentParser(prog="make faults-outages", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each outage befalls it")
    parser.add_argument("--seconds", type=float, default=20, help="how long one is, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, default=PROJECT / "docs/outages.md")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="medallion-outages-"))
    place = folder / "disk"
    place.mkdir()
    is_small, started = disk.mount(place), time.monotonic()
    outages: Outages | None = None
    try:
        with running(folder) as broker:
            broker.create(TOPIC)
            world = Events(place / "lakehouse", Random(options.seed))
            configure(folder / "conf", world, broker.server)
            feed = Feed(world, broker)
            outages = Outages(place, folder / "conf", feed, is_small)
            with feed:
                found = walk(outages, options.rounds, options.seconds)
            at_rest(outages)
    except (LostError, OSError, subprocess.SubprocessError) as error:
        print(f"{error}\nThe stream's words: {folder / 'stream.log'}", file=sys.stderr)
        return 1
    finally:
        if outages and outages.stream.poll() is None:
            outages.kill()
        if is_small:
            disk.unmount(place)
    options.report.write_text(report(options, feed, found, time.monotonic() - started))
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def report(
    options: argparse.Namespace,
    feed: Feed,
    found: list[tuple[str, float, float]],
    seconds: float,
) -> str:
    """What befell the stream, as a page."""
    lines = [
        "# Outages",
        "",
        'Written by `make faults-outages`: `medallion stream --trigger "1 second"` on two sources,'
        " files with a lookup table and Kafka messages, while a file lands and messages are sent"
        " each second. After each outage all rows reached silver; at the end a nightly run and"
        " `audit --deep` found nothing, and the tables were what the lines add up to.",
        "",
        f"{made_by(options.seed)}, {seconds / 60:.0f} minutes, {feed.world.number} files, "
        f"{feed.world.lines} lines, {feed.sent} messages.",
        "",
        "| outage | duration | all rows in silver after |",
        "| --- | --- | --- |",
        *(f"| {name} | {length:.0f} s | {back:.0f} s |" for name, length, back in found),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
