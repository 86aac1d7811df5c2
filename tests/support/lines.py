"""Input lines of the project's two sources."""

from __future__ import annotations

import json
from typing import Any


def event(time: str, device: str | None = "p", action: str = "open") -> str:
    """Return a line of `event`, at this time of 2 March 2018."""
    return json.dumps({"id": device, "action": action, "ts": f"2018-03-02T{time}"})


def recording(
    time: str = "10:10:00", device: str = "phone", index: int = 0, x: float = 0.1, **more: Any
) -> str:
    """Return a line of `activity`, at this time of 23 February 2015; `more` adds fields."""
    at = f"2015-02-23T{time}.000Z"
    fields = {"Recorded_At": at, "Device": device, "Index": index, "x": x, "y": 0.2, "z": 9.8}
    return json.dumps({**fields, **more})


def row(index: int, **more: Any) -> str:
    """Return a line of two fields, for tests that do not depend on its content."""
    return json.dumps({"Index": index, "Device": "phone", **more})
