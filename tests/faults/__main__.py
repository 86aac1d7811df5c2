"""The long forms: `make faults`, with `--s3` `make faults-s3`, with `--aim` `make faults-sites`.

The first two walk at random; the last kills a process before each write of the code.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from tests.faults import damage, disk
from tests.faults.actions import Outcome
from tests.faults.child import Child
from tests.faults.events import Events
from tests.faults.report import Results, provenance
from tests.faults.shop import Shop
from tests.faults.walk import LostError, Walk
from tests.faults.world import World
from tests.support import PROJECT
from tests.support.s3_server import S3Server, running

WORLDS: dict[str, type[World]] = {"events": Events, "shop": Shop}
STEPS_PER_WORLD = 30
AIMED_STEPS = 10  # some sites are reached only in a lakehouse's first run


def main() -> int:
    """Walk and write the report; return 1 if rows were lost or a refusal named no remedy."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="medallion-faults-"))
    started, results, failures = time.monotonic(), Results(), list[str]()
    cleanup, server = ExitStack(), None
    if options.s3:
        server = cleanup.enter_context(running(folder / "s3"))
        os.environ |= server.environment()
    slots = [_Slot(folder / f"place{n}", server) for n in range(options.workers)]
    steps_per_world = AIMED_STEPS if options.aim else STEPS_PER_WORLD
    worlds = deque(range(-(-options.steps // steps_per_world)))

    def work(slot: _Slot) -> None:
        while worlds and time.monotonic() - started < options.minutes * 60:
            world = worlds.popleft()
            steps = min(steps_per_world, options.steps - world * steps_per_world)
            world_results = results.for_world()
            name = options.world or list(WORLDS)[world % len(WORLDS)]
            output = slot.walk(
                world_results, name, (options.seed, world), steps, options.aim, options.keep
            )
            results.add(world_results)
            failures.extend([f"seed {options.seed}, world {world}: {output}"] if output else [])
            minutes = (time.monotonic() - started) / 60
            print(
                f"world {world}: {results.steps} steps in all, {minutes:.0f} minutes, killed at "
                f"{len(results.killed)} places",
                flush=True,
            )
            if output:
                print(output, flush=True)
            processes = sum(slot.child.starts for slot in slots)
            text = _report(options, results, failures, processes, minutes)
            options.report.write_text(text, encoding="utf-8")

    try:
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(work, slots))
    finally:
        for slot in slots:
            slot.clear()
        cleanup.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults", description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=120, help="begin no new lakehouse after")
    parser.add_argument("--aim", action="store_true", help="kill at each write at least once")
    parser.add_argument("--s3", action="store_true", help="lakehouses in buckets of a test server")
    parser.add_argument("--world", choices=WORLDS, help="only this one, instead of each in turn")
    parser.add_argument("--workers", type=int, default=2, help="lakehouses side by side")
    parser.add_argument("--keep", type=Path, help="copy each lakehouse with a finding to here")
    parser.add_argument("--report", type=Path, default=PROJECT / "docs/faults.md")
    return parser.parse_args()


class _Slot:
    """Walks one lakehouse at a time, with a worker process and, if possible, a small disk.

    The server, if any, stores each bucket as a directory, in which the walk reads and damages
    what the worker knows as objects.
    """

    def __init__(self, folder: Path, server: S3Server | None = None) -> None:
        folder.mkdir()
        self.folder, self.server = folder, server
        self.is_small = server is None and disk.mount(folder)
        self.child = Child(folder)

    def walk(
        self,
        results: Results,
        name: str,
        seed: tuple[int, int],
        steps: int,
        is_aimed: bool,
        keep: Path | None,
    ) -> str | None:
        """Walk over one lakehouse; return its failure or None."""
        world_dir = self.folder / f"world{seed[1]}"
        root, random = world_dir / "lakehouse", Random(f"{seed[0]}/{seed[1]}")
        address = str(root)
        if self.server:
            root = self.server.folder / f"bucket-{seed[1]}/lakehouse"
            address = f"s3://{root.parent.name}/lakehouse"
        root.mkdir(parents=True)
        world = WORLDS[name](root, random, has_tags=self.server is not None)
        conf = damage.new_conf(world_dir / "conf", world)
        paths = {"conf": str(conf), "root": str(root)}

        def act(step: Mapping[str, Any]) -> Outcome:
            text = json.dumps({**step, **paths})
            return self.child(json.loads(text.replace(str(root), address)))

        walk = Walk(
            world,
            conf,
            act,
            results,
            can_kill=True,
            can_fill=self.is_small,
            is_aimed=is_aimed,
            commands=("layers", *Walk.commands, "nightly"),
        )
        try:
            walk.run_steps(steps)
        except LostError as error:
            if keep:
                kept = keep / f"seed{seed[0]}-world{seed[1]}"
                shutil.copytree(world_dir, kept)
                shutil.copytree(root, kept / "lakehouse", dirs_exist_ok=True)
            return str(error).replace(str(world_dir), "")
        finally:
            shutil.rmtree(world_dir, ignore_errors=True)
            shutil.rmtree(root, ignore_errors=True)
        return None

    def clear(self) -> None:
        """End the process, and unmount the disk."""
        self.child.kill()
        if self.is_small:
            disk.unmount(self.folder)


_WALK = (
    "Written by `make faults`: random commands that are killed, or whose writes fail, and damage "
    "to the files on disk."
)
_ON_S3 = (
    "Written by `make faults-s3`: random commands on a root in a bucket that are killed, or whose "
    "writes fail, and damage to the objects."
)
_AIMED = (
    "Written by `make faults-sites`: a process is killed (`kill -9`) before each write, between "
    "damaged checkpoints and changed settings."
)


def _report(
    options: argparse.Namespace,
    results: Results,
    failures: list[str],
    processes: int,
    minutes: float,
) -> str:
    lines = [
        "# Faults at each write" if options.aim else f"# Faults{' on S3' if options.s3 else ''}",
        "",
        f"{_AIMED if options.aim else _ON_S3 if options.s3 else _WALK} After a few steps "
        "a run without faults ingests the rest, does what its messages ask for, and the tables are "
        "compared with the lines that landed.",
        "",
        f"{provenance(options.seed)}, {minutes:.0f} minutes, {processes} processes.",
        "",
        *results.lines(),
    ]
    if failures:
        output = [f"- {failure.splitlines()[0]}" for failure in failures]
        lines += ["", "## Not repaired", "", *output]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
