"""Times as the records have them."""

from __future__ import annotations

import time


def now() -> int:
    """Microseconds since 1970."""
    return time.time_ns() // 1000
