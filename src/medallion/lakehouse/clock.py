"""Times as the records have them, in microseconds since 1970."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def now() -> int:
    """What the clock says."""
    return time.time_ns() // 1000


def in_words(micros: int) -> str:
    """A time for people, to the second."""
    return datetime.fromtimestamp(micros / 1e6, UTC).isoformat(timespec="seconds")
