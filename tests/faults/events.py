"""A world of events: one append-only source with duplicates and late rows."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from tests.faults.world import Rows, World
from tests.support import PROJECT

DAY = datetime(2018, 3, 2, tzinfo=UTC)
ACTIONS = ("open", "close", "swipe")
Event = tuple[datetime, str | None, str]


@dataclass
class Events(World):
    """Lines are new events, duplicates, events without a device, or break a rule.

    Events without a device are never duplicates.
    """

    broken: int = 0
    events: list[Event] = field(default_factory=list)  # as landed, with duplicates
    counted: int = 0

    sources: tuple[str, ...] = ("event",)
    queries: tuple[str, ...] = (
        "bronze.event",
        "silver.event",
        "gold.by_window",
        "gold.by_action",
        "publish.by_action.files",
    )
    # Settings that take effect at once, that change the batches, or that require a refresh; the
    # walk edits one at a time.
    edits: tuple[tuple[tuple[str, ...], tuple[Any, ...]], ...] = (
        (("sources", "event", "watermark"), ("1 hour", "10 minutes", "2 hours")),
        (("sources", "event", "max_files_per_trigger"), (1, 2, 1000)),
        (("sources", "event", "schema_evolution"), ("addNewColumns", "rescue")),
        (("sources", "event", "silver", "shown"), ("action", "trim(action)")),
        (("gold", "by_window", "output_mode"), ("update", "complete")),
    )
    published: str = "by_action"

    def document(self) -> dict[str, Any]:
        """Return the project's source, and gold in both output modes, one table published."""
        project = yaml.safe_load((PROJECT / "conf/pipeline.yaml").read_text(encoding="utf-8"))
        event = project["sources"]["event"]
        event["silver"]["shown"] = "action"  # not a key column, so a refresh may change it
        gold = {"source": "silver.event", "group_by": ["action"], "measure": {"total": "count(*)"}}
        published = {"output_mode": "update", "publish": {"files": {"format": "json"}}}
        return {
            "sources": {"event": event},
            "gold": {"by_window": {**gold, "window": "10 minutes"}, "by_action": gold | published},
        }

    def expected(self) -> dict[str, Rows]:
        """Return the rows of each table."""
        windows: Counter[Any] = Counter({(*key, n): 1 for key, n in self.windows().items()})
        return {
            "bronze/event": ((), Counter({(): self.lines})),
            "quarantine/event": ((), Counter({(): self.broken})),
            "silver/event": (("event_at", "device", "action"), self.silver()),
            "gold/by_window": (("window_start", "action", "total"), windows),
            "gold/by_action": (("action", "total"), Counter(self.actions().items())),
        }

    @property
    def lines(self) -> int:
        """The number of rows in bronze: all lines but blank ones."""
        return self.broken + len(self.events)

    def key_condition(self, source: str, key: str) -> str:
        """Return SQL for the events of a device."""
        return f"device = '{key}'"

    def keys(self, source: str) -> list[str]:
        """Return the devices."""
        return sorted({device for _, device, _ in self.events if device})

    def _forget(self, source: str, key: str) -> None:
        self.events = [event for event in self.events if event[1] != key]

    def _line(self, source: str, is_readable: bool) -> tuple[str, str | None]:
        draw = self.random.random()
        if draw < 0.05:
            return "", None
        line, event = self._next_line(draw)
        if is_readable:
            self.counted += 1
            if event:
                self.events.append(event)
            else:
                self.broken += 1
        return line, event[1] if event else None

    def _next_line(self, draw: float) -> tuple[str, Event | None]:
        if draw < 0.12:
            return self.random.choice(("{not json", '{"id": "p", "ts": "2018-03-02"}', "[]")), None
        known = [event for event in self.events if event[1]]
        if draw < 0.3 and known:
            return _as_line(*self.random.choice(known))
        # Over ten hours with a watermark of one hour: many rows are late.
        at = DAY + timedelta(seconds=self.random.randrange(36_000))
        action = self.random.choice(ACTIONS)
        if draw < 0.4:
            return _as_line(at, None, action)
        # A unique device: duplicates occur only on purpose.
        return _as_line(at, f"phone{self.number}-{self.counted}", action)

    def silver(self) -> Counter[Event]:
        """Return silver's rows with their expected counts."""
        counts = Counter(self.events)
        return Counter({event: n if event[1] is None else 1 for event, n in counts.items()})

    @property
    def duplicates(self) -> int:
        """The number of duplicate lines."""
        return len(self.events) - self.silver().total()

    def windows(self) -> Counter[tuple[datetime, str]]:
        """Count silver's rows by ten-minute window and action."""
        counts: Counter[tuple[datetime, str]] = Counter()
        for (at, _, action), n in self.silver().items():
            counts[at - timedelta(seconds=at.timestamp() % 600), action] += n
        return counts

    def actions(self) -> Counter[str]:
        """Count silver's rows by action."""
        counts: Counter[str] = Counter()
        for (_, _, action), n in self.silver().items():
            counts[action] += n
        return counts


def _as_line(at: datetime, device: str | None, action: str) -> tuple[str, Event]:
    if device is None:
        line = {"time": int(at.timestamp()), "action": action.capitalize()}
    else:
        line = {"id": device, "action": action, "ts": at.isoformat().replace("+00:00", "")}
    return json.dumps(line), (at, device, action)
