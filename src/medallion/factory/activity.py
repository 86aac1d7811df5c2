"""Accelerometer recordings, in the style of the real ones to the byte."""

from __future__ import annotations

import json
import struct
from collections import defaultdict
from functools import lru_cache
from math import pi, sin
from random import Random
from typing import Any

from medallion.factory.faults import MISSING, UNREADABLE_TIMES, Fault
from medallion.factory.plan import HOUR, LONGEST_JITTER, FilePlan, clock_text

DEVICES = tuple(
    f"{model}_{number}"
    for model in ("nexus4", "s3", "s3mini", "samsungold", "lgwatch", "gear")
    for number in (1, 2)
)
USERS = "abcdefghi"

# How far the needle swings for each activity; "null" is the recorders' own word for "not labelled".
SWINGS = {
    "stand": 0.05,
    "sit": 0.05,
    "null": 0.05,
    "bike": 2.0,
    "walk": 2.0,
    "stairsup": 8.0,
    "stairsdown": 8.0,
}
MOVES = tuple(SWINGS)

# Milliseconds between two recordings of a device, as the phones do it: about 5, sometimes none.
PACES = (0, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8, 10, 14)

STRETCH = 200
"""The most recordings in a row that one device makes before another one's follow."""

JITTER_MS = 90_000

_NULLS = (MISSING, None)
_AXIS_NONSENSE = (*_NULLS, "fast", "n/a")


def shortest_float32(value: float) -> str:
    """A number as a sensor's 32-bit float prints: the fewest digits that give it back."""
    packed = struct.pack("f", value)
    for digits in range(6, 9):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == packed:
            return text
    return f"{value:.9g}"


@lru_cache(maxsize=8)
def _needle(swing: float) -> tuple[str, ...]:
    """A whole swing to and fro in 1024 places, on the grid of values that the sensors know."""
    grid, offset = 0.001068115234375, -0.0003814697265625
    places = (round(swing * sin(2 * pi * place / 1024) / grid) for place in range(1024))
    return tuple(shortest_float32(offset + grid * place) for place in places)


@lru_cache(maxsize=1)
def _millisecond_texts() -> tuple[str, ...]:
    return tuple(f".{ms:03d}+0000" for ms in range(1000))


class ActivitySource:
    """Activity lines. No two rows ever share device and `Index`: indexes only go up."""

    name = "activity"
    faults = (
        Fault("missing_event_time", "Recorded_At", (*_NULLS, *UNREADABLE_TIMES)),
        Fault("future_event_time", "Recorded_At"),
        Fault("missing_device", "Device", (*_NULLS, "", "  ")),
        Fault("missing_index", "Index", (*_NULLS, "seven")),
        Fault("missing_x", "x", _AXIS_NONSENSE),
        Fault("missing_y", "y", _AXIS_NONSENSE),
        Fault("missing_z", "z", _AXIS_NONSENSE),
    )

    def clean_lines(self, plan: FilePlan, count: int) -> list[str]:
        """The first `count` rows of a file as it would be without defects."""
        random = plan.random("rows")
        stretch = min(STRETCH, max(10, plan.rows // 10))
        stretches = -(-plan.rows // stretch)
        jitter = min(JITTER_MS, LONGEST_JITTER * 1000 // 2)
        indexes: dict[str, int] = defaultdict(lambda: plan.first_index)
        lines: list[str] = []
        for number in range(stretches):
            length = min(stretch, count - len(lines))
            if length <= 0:
                break
            start = plan.start_ms + plan.width_ms * number // stretches + random.randrange(jitter)
            device = DEVICES[random.randrange(len(DEVICES))]
            _record(lines, random, device, start, indexes[device], length)
            indexes[device] += length
        return lines

    def has_identity(self, line: str) -> bool:
        """Every recording is made by a device."""
        return True

    def dump(self, row: dict[str, Any]) -> str:
        """A row as the sample's lines have it, with blanks after commas and colons."""
        return json.dumps(row)

    def made_late(
        self, row: dict[str, Any], plan: FilePlan, random: Random, ordinal: int
    ) -> dict[str, Any]:
        """The same recording, 2 to 26 hours before the previous batch began."""
        assert plan.previous is not None
        ms = plan.previous.start * 1000 - random.randrange(2 * HOUR * 1000, 26 * HOUR * 1000)
        stamp = clock_text(ms // 1000) + _millisecond_texts()[ms % 1000]
        return {**row, "Recorded_At": stamp}

    def made_future(self, row: dict[str, Any]) -> dict[str, Any]:
        """The same recording on New Year's Day of 2099."""
        return {**row, "Recorded_At": f"2099-01-01{row['Recorded_At'][10:]}"}

    def retold(self, line: str, random: Random) -> str:
        """The line again, as a sender does that did not hear the acknowledgement."""
        return line


def _record(
    lines: list[str], random: Random, device: str, start_ms: int, index: int, length: int
) -> None:
    """Append one stretch of recordings. This loop is the factory's speed: keep it plain."""
    move = MOVES[random.randrange(len(MOVES))]
    user = USERS[random.randrange(len(USERS))]
    needle, ms_texts, bits = _needle(SWINGS[move]), _millisecond_texts(), random.getrandbits
    x, y, z = bits(10), bits(10), bits(10)
    middle = f'", "Device": "{device}", "Index": '
    model = device.partition("_")[0]
    after = f', "Model": "{model}", "User": "{user}", "gt": "{move}", "x": '
    second, ms = divmod(start_ms, 1000)
    before = f'{{"Recorded_At": "{clock_text(second)}'
    append = lines.append
    for number in range(index, index + length):
        # One draw gives the three axes' steps and the pause.
        draw = bits(13)
        x += draw & 7
        y += draw >> 3 & 7
        z += draw >> 6 & 7
        append(
            f"{before}{ms_texts[ms]}{middle}{number}{after}{needle[x & 1023]}"
            f', "y": {needle[y & 1023]}, "z": {needle[z & 1023]}}}'
        )
        ms += PACES[draw >> 9]
        if ms >= 1000:
            ms -= 1000
            second += 1
            before = f'{{"Recorded_At": "{clock_text(second)}'
