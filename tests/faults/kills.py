"""Kills from outside, after which no file and no row may be lost: `make faults-kills`.

Before each kill a file of 400 rows lands and `medallion nightly` starts; its process group gets
SIGKILL some seconds later. After one undisturbed run, each row must be in silver once, no file
rejected, and the balance correct.
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
from tests.support.lakehouse import Lakehouse

ROWS = 400


def land(root: Path, number: int) -> list[str]:
    """Land a file whose rows have unique devices; return the devices."""
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
    """Kill a nightly run after `delay` seconds; return how it ended."""
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
    """Return the differences after the undisturbed run."""
    silver = Counter(device for (device,) in rows(root, "silver/event", "device"))
    missing, surplus = Counter(devices) - silver, silver - Counter(devices)
    rejected = [file.name for file in (root / "rejected").rglob("*") if file.is_file()]
    mismatches = {
        "rows missing": missing.total(),
        "rows too many": surplus.total(),
        "rejected": rejected,
    }
    return [f"{name}: {value}" for name, value in mismatches.items() if value]


def main() -> int:
    """Kill runs and compare the result; return 1 if it differs from the landed rows."""
    parser = argparse.ArgumentParser(prog="make faults-kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--first", type=float, default=4, help="seconds before the earliest kill")
    parser.add_argument("--last", type=float, default=26, help="seconds before the latest kill")
    options = parser.parse_args()
    random, devices = Random(options.seed), list[str]()
    folder = Path(tempfile.mkdtemp(prefix="medallion-kills-"))
    root, log = folder / "lakehouse", folder / "nightly.log"
    cli, started = Cli(Lakehouse(None, root)), time.monotonic()
    cli.lakehouse.keep_only("event", "action_counts", to=folder)
    cli.write_spark_settings()
    for number in range(options.kills):
        devices += land(root, number)
        delay = random.uniform(options.first, options.last)
        ending = kill_within(cli, delay, log)
        waiting = sum(1 for _ in (root / "landing/event").glob("*.json"))
        print(
            f"{number}: {ending}, after {delay:.0f} s; {waiting} files still in landing", flush=True
        )
    output = []
    for command in ("nightly", "audit"):
        process = cli(command)
        print(process.stdout, flush=True)
        if process.returncode:
            output.append(f"{command} ended with {process.returncode}: {process.stderr}")
    output += differences(root, devices)
    minutes = (time.monotonic() - started) / 60
    print(f"seed {options.seed}: {len(devices)} rows landed, {minutes:.0f} minutes; ", end="")
    if output:
        print(f"{'; '.join(output)}\nLog of the killed runs: {log}")
        return 1
    print("each is in silver once, no file was rejected")
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
