"""Recordings of three nightly runs, with late rows and duplicates, and the expected results."""

from __future__ import annotations

from medallion.inspect.balance import Balance
from tests.support.lines import recording

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
