"""Continuous input for a running stream, and the expected tables."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

from tests.faults.check import differences, rows
from tests.faults.events import Events
from tests.support.broker import Broker

TOPIC = SOURCE = "clicks"


class Feed:
    """Lands a file and sends some messages each second, unless `blocked` is locked."""

    def __init__(self, world: Events, broker: Broker) -> None:
        self.world, self.broker = world, broker
        self.blocked = threading.Lock()
        self.is_broker_up = True
        self.sent = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feed)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _feed(self) -> None:
        while not self._is_over.wait(1):
            with self.blocked:
                self.world.land()
                if self.is_broker_up:
                    self._send(self.world.random.randint(1, 5))

    def _send(self, count: int) -> None:
        first = datetime(2024, 1, 1, tzinfo=UTC)
        for number in range(self.sent, self.sent + count):
            at = (first + timedelta(seconds=number)).isoformat()
            self.broker.send(TOPIC, json.dumps({"at": at, "number": number}))
        self.sent += count


def differences_of(feed: Feed) -> list[str]:
    """Return the differences between the final tables and the input."""
    output = differences(feed.world)
    root = feed.world.root
    numbers = Counter(number for (number,) in rows(root, f"silver/{SOURCE}", "number"))
    if numbers != Counter(range(feed.sent)):
        output.append(f"silver.{SOURCE}: {numbers.total()} rows where {feed.sent} belong")
    unmatched = [a for a, weight in rows(root, "silver/event", "action, weight") if weight is None]
    return output + (
        [f"silver.event: {len(unmatched)} rows without their reference"] if unmatched else []
    )
