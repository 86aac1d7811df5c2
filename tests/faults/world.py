"""What has landed, and by arithmetic what the tables must hold once all of it is taken in."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

DAY = datetime(2018, 3, 2, tzinfo=UTC)
ACTIONS = ("open", "close", "swipe")
Event = tuple[datetime, str | None, str]


@dataclass
class World:
    """The files of one source, `event`, landed one after the other.

    Each line is a new event, one told again, one without a device (which is never a duplicate), or
    one that no rule lets pass: where it must be in the end depends on nothing but the lines.
    """

    root: Path
    random: Random
    lines: int = 0  # all but blank ones
    broken: int = 0
    events: list[Event] = field(default_factory=list)  # as landed, those told again among them
    hashes: dict[str, str] = field(default_factory=dict)  # of the bytes of each file
    refused: set[str] = field(default_factory=set)  # names of files that must be set aside
    number: int = 0

    @property
    def landing(self) -> Path:
        """Where the files land."""
        return self.root / "landing/event"

    def land(self, folder: Path | None = None) -> Path:
        """One more file, with up to twelve lines; now and then packed, and now and then torn."""
        self.number += 1
        is_packed = self.random.random() < 0.3
        is_torn = is_packed and self.random.random() < 0.3
        lines = [self._line(counts=not is_torn) for _ in range(self.random.randint(1, 12))]
        content = "".join(f"{line}\n" for line in lines).encode()
        if is_packed:
            content = gzip.compress(content, mtime=0)
        name = f"{self.number:05}.json{'.gz' if is_packed else ''}"
        if is_torn:
            content = content[: -self.random.randint(9, len(content) // 2)]
            if folder is None:  # elsewhere it stays where its owner keeps it
                self.refused.add(name)
        return self._show(folder or self.landing, name, content)

    def land_namesake(self) -> Path | None:
        """Another file under the name of one that is taken in: it must be output, and stay."""
        there = {file.name for file in self.landing.glob("*")}
        archive = self.root / "archive/event"
        names = sorted({f.name for f in archive.glob("*.json")} - there) if archive.is_dir() else []
        if not names:
            return None
        self.number += 1
        content = f'{{"id": "namesake", "action": "open", "time": {self.number}}}\n'.encode()
        return self._show(self.landing, self.random.choice(names), content)

    def _show(self, folder: Path, name: str, content: bytes) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        self.hashes[f"{name}#{self.number}"] = hashlib.sha256(content).hexdigest()
        hidden, shown = folder / f".{name}", folder / name
        hidden.write_bytes(content)
        if self.random.random() < 0.2:  # a sender's clock is not ours
            at = hidden.stat().st_mtime + self.random.choice((-90, -3, 2, 30)) * 86_400
            os.utime(hidden, (at, at))
        hidden.rename(shown)
        return shown

    def _line(self, counts: bool) -> str:
        draw = self.random.random()
        if draw < 0.05:
            return ""
        line, event = self._next_line(draw)
        if counts:
            self.lines += 1
            if event:
                self.events.append(event)
            else:
                self.broken += 1
        return line

    def _next_line(self, draw: float) -> tuple[str, Event | None]:
        if draw < 0.12:
            return self.random.choice(("{not json", '{"id": "p", "ts": "2018-03-02"}', "[]")), None
        known = [event for event in self.events if event[1]]
        if draw < 0.3 and known:
            return _as_line(*self.random.choice(known))
        # Over ten hours, and a watermark of one: much of it comes late.
        at = DAY + timedelta(seconds=self.random.randrange(36_000))
        action = self.random.choice(ACTIONS)
        if draw < 0.4:
            return _as_line(at, None, action)
        # A number of its own: a device is never in the same second twice by chance.
        return _as_line(at, f"phone{self.number}-{self.lines}", action)

    def silver(self) -> Counter[Event]:
        """The rows of silver, each as often as it must be there."""
        found = Counter(self.events)
        return Counter({event: n if event[1] is None else 1 for event, n in found.items()})

    @property
    def duplicates(self) -> int:
        """The lines that only told again what was known."""
        return len(self.events) - self.silver().total()

    def windows(self) -> Counter[tuple[datetime, str]]:
        """Silver's rows by their windows of ten minutes and their actions."""
        found: Counter[tuple[datetime, str]] = Counter()
        for (at, _, action), n in self.silver().items():
            found[at - timedelta(seconds=at.timestamp() % 600), action] += n
        return found

    def actions(self) -> Counter[str]:
        """Silver's rows by their actions."""
        found: Counter[str] = Counter()
        for (_, _, action), n in self.silver().items():
            found[action] += n
        return found


def _as_line(at: datetime, device: str | None, action: str) -> tuple[str, Event]:
    if device is None:
        line = {"time": int(at.timestamp()), "action": action.capitalize()}
    else:
        line = {"id": device, "action": action, "ts": at.isoformat().replace("+00:00", "")}
    return json.dumps(line), (at, device, action)
