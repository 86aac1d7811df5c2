"""Expected counts of three runs of events, by window and action."""

from __future__ import annotations

WINDOWS = "window_start", "action", "total_events"
BY_WINDOWS = [
    ("2018-03-02 08:00:00", "open", 2),
    ("2018-03-02 10:00:00", "close", 1),
    ("2018-03-02 10:00:00", "open", 2),
    ("2018-03-02 10:00:00", "other", 1),
    ("2018-03-02 13:00:00", "close", 1),
    ("2018-03-02 13:00:00", "open", 2),
]
