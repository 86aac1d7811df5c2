"""Print the slowest tests, files and kinds of a run; record the files' seconds for the next runs.

python tools/durations.py [--record] [build/tests.xml | build/tests-slow.xml]
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.support.durations import file_of, record_of

_LAST = Path("build/tests.xml")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", nargs="?", type=Path, default=_LAST)
    parser.add_argument("--record", action="store_true", help="keep the seconds of files")
    options = parser.parse_args()
    if not options.report.is_file():
        parser.exit(2, f"{options.report} is missing: run make test first\n")
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it
    tests = read_report(options.report)
    total = sum(seconds for _, _, seconds in tests)
    print(f"{len(tests):,} tests, {total / 60:.1f} worker minutes")
    print_sums("kind", [(kind, seconds) for _, kind, seconds in tests])
    print_sums("file", [(file_of(name), seconds) for name, _, seconds in tests], first=25)
    print_sums("test", [(name, seconds) for name, _, seconds in tests], first=40)
    if options.record:
        files = sums((file_of(name), seconds) for name, _, seconds in tests)
        long = {file: round(seconds, 1) for file, (_, seconds) in sorted(files.items())}
        text = json.dumps(long, indent=0) + "\n"
        record_of(options.report.stem).write_text(text, encoding="utf-8")


def read_report(report: Path) -> list[tuple[str, str, float]]:
    """Return id, kind and seconds of each test in a report in JUnit's XML."""
    tests = []
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = [p.get("value", "") for p in case.iter("property") if p.get("name") == "kind"]
        file = case.get("file") or f"{case.get('classname', '').replace('.', '/')}.py"
        seconds = float(case.get("time", 0))
        tests.append((f"{file}::{case.get('name')}", (kinds or ["unknown"])[0], seconds))
    return tests


def sums(entries: Iterable[tuple[str, float]]) -> dict[str, tuple[int, float]]:
    """Return count and seconds by name, the longest first."""
    result: dict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for name, seconds in entries:
        count, total = result[name]
        result[name] = (count + 1, total + seconds)
    return dict(sorted(result.items(), key=lambda entry: -entry[1][1]))


def print_sums(title: str, entries: list[tuple[str, float]], first: int | None = None) -> None:
    print(f"\nseconds  tests  {title}")
    for name, (count, seconds) in list(sums(entries).items())[:first]:
        print(f"{seconds:7.1f}  {count:5}  {name}")


if __name__ == "__main__":
    main()
