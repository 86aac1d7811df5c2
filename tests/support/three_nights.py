"""Recordings of three nightly runs, with late rows and duplicates, and the expected results."""

from __future__ import annotations

import json
from typing import Any

from medallion.inspect.balance import Balance

NAME = "recordings"
# The keys of the project's source `activity`, without its other columns and rules.
RECORDINGS: dict[str, Any] = {
    "sources": {
        NAME: {
            "schema": {"Recorded_At": "timestamp", "Device": "string", "Index": "long"},
            "silver": {"recorded_at": "Recorded_At", "device": "Device", "user_id": "Index"},
            "event_time": "recorded_at",
            "keys": ["device", "user_id", "recorded_at"],
            "watermark": "1 hour",
        }
    },
    "gold": {
        "device_totals": {
            "source": f"silver.{NAME}",
            "group_by": ["device"],
            "measure": {"recordings": "count(*)"},
        }
    },
}


def recording(time: str, device: str = "phone", index: int = 0) -> str:
    """Return a line at this time of 23 February 2015."""
    at = f"2015-02-23T{time}.000Z"
    return json.dumps({"Recorded_At": at, "Device": device, "Index": index})


FIRST = (
    recording("10:00:00"),
    recording("10:00:00"),  # a duplicate within the file
    recording("10:00:00", index=1),
    recording("10:00:01"),
    "{broken",
    recording("13:00:00"),  # moves the watermark to 12:00
)

SECOND = (
    recording("09:00:00"),  # late
    recording("09:00:00"),  # late, and a duplicate of a late row
    recording("09:00:01", "other"),  # late
    recording("10:00:00"),  # late, and already in silver
    recording("13:00:00"),  # on time, and already in silver
    recording("13:30:00"),
    recording("13:30:00"),  # a duplicate within the file
    '{"Device": "phone"}',
)

THIRD = (
    recording("09:00:00"),  # late, and in silver since the second run
    recording("08:00:00"),  # late
    recording("13:30:01"),
)

BY_HAND = Balance(
    landed_lines=17,
    bronze_rows=17,
    silver_rows=4 + 3 + 2,
    quarantined_rows=2,
    duplicate_rows=1 + 4 + 1,
    late_rows=2 + 1,
    waiting_rows=0,
)

DEVICES = [("other", 1), ("phone", 8)]
