"""Recorded times: microseconds since 1970, in UTC."""

import time
from datetime import UTC, datetime

DAY = 86_400_000_000


def now_micros() -> int:
    """Return the current time in microseconds since 1970."""
    return time.time_ns() // 1000


def format_time(micros: int) -> str:
    """Format a recorded time to the second, as SQL shows it: 2018-03-02T10:02:33Z."""
    return f"{datetime.fromtimestamp(micros // 1_000_000, UTC).replace(tzinfo=None).isoformat()}Z"
