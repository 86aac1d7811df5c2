"""Kills from outside that must cost no file and no row: `make faults-kills`.

Before each kill a file of 400 rows lands and `medallion nightly` starts; SIGKILL goes to its
process group some seconds later. One undisturbed run follows: each row is in silver once, no file
is rejected, and the balance is right.
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
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

from tests.faults.check import rows
from tests.faults.events import ACTIONS, DAY
from tests.support.command import Cli

ROWS = 400


def land(root: Path, number: int) -> list[str]:
    """Land one more file, each row with a device of its own; the devices."""
    devices = [f"{number}-{row}" for row in range(ROWS)]
    lines = [
        {"id": device, "action": ACTIONS[row % 3], "ts": (DAY + timedelta(seconds=row)).isoformat()}
        for row, device in enumerate(devices)
    ]
    landing = root / "landing/event"
    landing.mkdir(parents=True, exist_ok=True)
    hidden = landing / f".{number}.json"
    hidden.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    hidden.rename(landing / f"{number}.json")
    return devices


def kill_within(cli: Cli, delay: float, log: Path) -> str:
    """Kill a nightly run after so many seconds; how it ended."""
    with log.open("a", encoding="utf-8") as file:
        process = cli.start("nightly", stdout=file, stderr=file, start_new_session=True)
        try:
            return f"had ended with {process.wait(delay)}"
        except subprocess.TimeoutExpired:
            return "killed"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def differences(root: Path, devices: list[str]) -> list[str]:
    """What is not as it must be after the undisturbed run."""
    silver = Counter(device for (device,) in rows(root, "silver/event", "device"))
    missing, more = Counter(devices) - silver, silver - Counter(devices)
    rejected = [file.name for file in (root / "rejected").rglob("*") if file.is_file()]
    found = {"rows missing": missing.total(), "rows too many": more.total(), "rejected": rejected}
    return [f"{what}: {it}" for what, it in found.items() if it]


def main() -> int:
    """Kill runs, and compare what is there in the end; 1 if it is not what landed."""
    parser = argparse.ArgumentParser(prog="make faults-kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--first", type=float, default=4, help="seconds before the earliest kill")
    parser.add_argument("--last", type=float, default=26, help="seconds before the latest kill")
    options = parser.parse_args()
    random, devices = Random(options.seed), list[str]()
    folder = Path(tempfile.mkdtemp(prefix="medallion-kills-"))
    root, log = folder / "lakehouse", folder / "nightly.log"
    cli, started = Cli(root), time.monotonic()
    cli.about(folder / "conf", "event", "action_counts")
    for number in range(options.kills):
        devices += land(root, number)
        delay = random.uniform(options.first, options.last)
        ended = kill_within(cli, delay, log)
        there = sum(1 for _ in (root / "landing/event").glob("*.json"))
        print(f"{number}: {ended}, after {delay:.0f} s; {there} files still in landing", flush=True)
    found = []
    for command in ("nightly", "audit"):
        done = cli(command)
        print(done.stdout, flush=True)
        if done.returncode:
            found.append(f"{command} ended with {done.returncode}: {done.stderr}")
    found += differences(root, devices)
    minutes = (time.monotonic() - started) / 60
    print(f"seed {options.seed}: {len(devices)} rows landed, {minutes:.0f} minutes; ", end="")
    if found:
        print(f"{'; '.join(found)}\nThe killed runs' words: {log}")
        return 1
    print("each is in silver once, no file was rejected")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
