"""Events of both shapes: with a device, and the older one that knows only when and what."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from medallion.factory.faults import MISSING, UNREADABLE_TIMES, Fault
from medallion.factory.plan import FilePlan, clock_text

PHONES = 400
# Doors open and close; the rest is rare.
ACTIONS = ("open",) * 7 + ("close",) * 7 + ("swipe", "crash")
NAMED_SHARE = 0.75
JITTER_MS = 120_000
YEAR_2099 = 4_070_908_800

# Late rows lie in the quiet time before the previous batch, which only this batch's late rows use,
# each at a place of its own: that keeps them unique without remembering anything.
LATE_FIRST, LATE_SECONDS, LATE_STRIDE = 110 * 60, 45 * 60, 1543


class EventSource:
    """Event lines. Rows with a device never share device, action and time."""

    name = "event"
    faults = (
        Fault("missing_event_time", "", (MISSING, None, *UNREADABLE_TIMES)),
        Fault("future_event_time", ""),
        Fault("missing_action", "action", (MISSING, None)),
    )

    def clean_lines(self, plan: FilePlan, count: int) -> list[str]:
        """The first `count` rows of a file as it would be without defects."""
        random = plan.random("rows")
        draw, pick = random.random, random.randrange
        # Files keep to their own time, so that a file's keys are unique if they are so within it.
        jitter = min(JITTER_MS, plan.width_ms // 2)
        first, step = plan.start_ms, (plan.width_ms - jitter) / plan.rows
        # Past the file's first second: its part before `start_ms` is the file's before.
        first_second = -(-first // 1000)
        seen: set[tuple[int, int, str]] = set()
        lines: list[str] = []
        for place in range(count):
            second = max(first_second, int(first + place * step + draw() * jitter) // 1000)
            action = ACTIONS[pick(len(ACTIONS))]
            # The first row always has a device, so that a file has at least one to repeat.
            if place and draw() >= NAMED_SHARE:
                lines.append(f'{{"time":{second},"action":"{action.capitalize()}"}}')
                continue
            phone = 1 + pick(PHONES)
            while (second, phone, action) in seen:
                phone, action = 1 + pick(PHONES), ACTIONS[pick(len(ACTIONS))]
            seen.add((second, phone, action))
            lines.append(_named_line(f"phone{phone}", action, second))
        return lines

    def has_identity(self, line: str) -> bool:
        """Whether the event says which device it came from."""
        return line.startswith('{"id":')

    def dump(self, row: dict[str, Any]) -> str:
        """A row as the sample's lines have it, without blanks."""
        return json.dumps(row, separators=(",", ":"))

    def made_late(
        self, row: dict[str, Any], plan: FilePlan, random: Random, ordinal: int
    ) -> dict[str, Any]:
        """A new event, 65 to 110 minutes before the previous batch began."""
        assert plan.previous is not None
        turn, place = divmod(ordinal * plan.batch.files + plan.file - 1, LATE_SECONDS)
        second = plan.previous.start - LATE_FIRST + place * LATE_STRIDE % LATE_SECONDS
        phone = 1 + (place + turn) % PHONES
        action = row["action"].lower()
        return {"id": f"phone{phone}", "action": action, "ts": clock_text(second)}

    def made_future(self, row: dict[str, Any]) -> dict[str, Any]:
        """The same event on New Year's Day of 2099."""
        if "ts" in row:
            return {**row, "ts": f"2099-01-01{row['ts'][10:]}"}
        return {**row, "time": YEAR_2099 + row["time"] % 86_400}

    def retold(self, line: str, random: Random) -> str:
        """The line again, now and then with its action in other letters."""
        if random.random() < 0.7:
            return line
        row = json.loads(line)
        return self.dump({**row, "action": row["action"].capitalize()})


def _named_line(phone: str, action: str, second: int) -> str:
    return f'{{"id":"{phone}","action":"{action}","ts":"{clock_text(second)}"}}'
