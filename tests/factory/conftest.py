"""An independent count of landed files from their bytes."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

HOUR = timedelta(hours=1)
KNOWN = {
    "activity": {"Recorded_At", "Device", "Index", "Model", "User", "gt", "x", "y", "z"},
    "event": {"id", "action", "ts", "time"},
}


@dataclass
class Recount:
    """The counts of a source's directory, and the rows of silver."""

    figures: Counter[str] = field(default_factory=Counter)
    quarantine: Counter[str] = field(default_factory=Counter)
    silver: list[tuple[int, datetime, dict[str, Any]]] = field(default_factory=list)
    """Batch number, event time and row, in the order of landing."""

    def times(self) -> dict[int, list[datetime]]:
        """Return the event times of each batch, in the order of landing."""
        times: dict[int, list[datetime]] = defaultdict(list)
        for batch, event_time, _ in self.silver:
            times[batch].append(event_time)
        return times


def _event_time(source: str, row: dict[str, Any]) -> datetime | None:
    value = row.get("Recorded_At") if source == "activity" else row.get("ts", row.get("time"))
    if isinstance(value, int):
        return datetime.fromtimestamp(value, UTC)
    try:
        return datetime.fromisoformat(str(value)).replace(tzinfo=UTC)
    except ValueError:
        return None


def _broken_rules(source: str, row: dict[str, Any]) -> Iterator[str]:
    event_time = _event_time(source, row)
    if event_time is None:
        yield "missing_event_time"
    elif event_time > datetime.now(UTC) + timedelta(days=1):
        yield "future_event_time"
    if source == "event":
        if row.get("action") is None:
            yield "missing_action"
        return
    if not str(row.get("Device") or "").strip():
        yield "missing_device"
    if not isinstance(row.get("Index"), int):
        yield "missing_index"
    for axis in "xyz":
        if not isinstance(row.get(axis), float):
            yield f"missing_{axis}"


def _rescue_rules(source: str, row: dict[str, Any]) -> Iterator[str]:
    """Yield the rules for strings in columns of other types, whose values may not fit."""
    times = {"activity": ("Recorded_At",), "event": ("ts", "time")}[source]
    for name in times:
        if isinstance(row.get(name), str) and _event_time(source, {name: row[name]}) is None:
            yield f"rescued_{name}"
    if source == "activity":
        yield from (f"rescued_{n}" for n in ("Index", *"xyz") if isinstance(row.get(n), str))


def _key(source: str, row: dict[str, Any]) -> tuple[Any, ...] | None:
    if source == "activity":
        return row["Device"], row["Index"], row["Recorded_At"]
    return (row["id"], row["action"].lower(), row["ts"]) if row.get("id") else None


def _lines(folder: Path, count: Recount) -> Iterator[tuple[int, str]]:
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(rf"{folder.name}-(\d{{6}})-\d{{5}}\.json", path.name)
        assert match, path
        data = path.read_bytes().decode()
        assert data.endswith("\n")
        count.figures["files"] += 1
        for line in data[:-1].split("\n"):
            if line.strip():
                count.figures["lines"] += 1
                yield int(match[1]), line
            else:
                count.figures["blank_lines"] += 1


def recount_folder(folder: Path) -> Recount:
    """Count all figures of the factory from the files."""
    source, count = folder.name, Recount()
    keys: set[tuple[Any, ...]] = set()
    latest: dict[int, datetime] = {}
    for batch, line in _lines(folder, count):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            count.figures["malformed"] += 1
            count.quarantine.update(("malformed_line", *_broken_rules(source, {})))
            continue
        unknown = row.keys() - KNOWN[source]
        count.figures["unknown_fields"] += bool(unknown)
        broken = list(_broken_rules(source, row))
        if broken:
            assert len(broken) == 1, line
            assert not unknown, line
            count.figures["invalid"] += 1
            count.quarantine.update((*broken, *_rescue_rules(source, row)))
            continue
        key = _key(source, row)
        if key is not None and key in keys:
            assert not unknown, line
            count.figures["duplicates"] += 1
            continue
        if key is not None:
            keys.add(key)
        event_time = _event_time(source, row)
        assert event_time is not None
        before = max((time for number, time in latest.items() if number < batch), default=None)
        if before is not None and event_time < before - HOUR:
            assert not unknown, line
            count.figures["late"] += 1
        latest[batch] = max(event_time, latest.get(batch, event_time))
        count.silver.append((batch, event_time, row))
    return count


@pytest.fixture
def recount() -> Callable[[Path], Recount]:
    """Return a function that counts a source's directory."""
    return recount_folder
