"""The lines of a file: recordings and events, clean or with counted defects.

A line has at most one defect. Recordings are in the style of the real ones to the byte.
"""

from __future__ import annotations

import json
import struct
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sin
from random import Random
from typing import Any, Final

from medallion.factory.plan import HOUR, LONGEST_JITTER, FilePlan, Landed, clock_text

MALFORMED_LINE = "malformed_line"

MISSING: Final = object()
"""Stands for "the key is not there at all", where None stands for JSON's null."""

UNREADABLE_TIMES = ("soon", "n/a", "23/02/2015 10:18", "2015-13-45T10:18:54")
"""Texts that no reader of timestamps takes for one. Beware: Spark reads "2015" and "10:18"."""

EXTRA_FIELDS: tuple[tuple[str, Any], ...] = (
    ("battery", 81),
    ("firmware", {"v": "1.2"}),
    ("tags", ["left", "wrist"]),
    ("note", "recalibrated"),
)

TIME_FIELDS = ("Recorded_At", "ts", "time")
STRING_FIELDS = ("Device", "action")
"""The fields that have faults and take any string."""


@dataclass(frozen=True)
class Fault:
    """A rule of the pipeline, and what makes a row break it and no other.

    Without `bad_values` the row is moved into the future instead. Without a `field` it is the time,
    whichever the row has.
    """

    rule: str
    field: str
    bad_values: tuple[object, ...] = ()

    def rescue_rules(self, row: dict[str, Any]) -> tuple[str, ...]:
        """Return the rule that a spoilt row breaks besides, if its value does not fit."""
        names = TIME_FIELDS if not self.field else (self.field,)
        texts = [name for name in names if isinstance(row.get(name), str)]
        is_rescued = self.bad_values and texts and texts[0] not in STRING_FIELDS
        return (f"rescued_{texts[0]}",) if is_rescued else ()

    def spoil(self, row: dict[str, Any], random: Random) -> dict[str, Any]:
        """The row with one bad value in it."""
        field = self.field or next(name for name in TIME_FIELDS if name in row)
        value = self.bad_values[random.randrange(len(self.bad_values))]
        if value is MISSING:
            return {name: kept for name, kept in row.items() if name != field}
        return {**row, field: value}


def malformed(line: str, random: Random) -> str:
    """Something in place of the line that is not one JSON object."""
    kind = random.randrange(6)
    if kind == 0:
        return line[: random.randrange(1, len(line) - 1)]
    if kind == 1:
        return "!! sensor buffer overrun, recording lost"
    if kind == 2:
        return line + random.choice(("}", " garbage", f",{line}"))
    if kind == 3:
        return line.replace('":', ":", 1)
    return "42" if kind == 4 else "[1,2]"


def with_extra_field(row: dict[str, Any], random: Random) -> dict[str, Any]:
    """The row with one field that the schema does not know."""
    name, value = random.choice(EXTRA_FIELDS)
    return {**row, name: value}


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

ACTIVITY_JITTER_MS = 90_000

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
        jitter = min(ACTIVITY_JITTER_MS, LONGEST_JITTER * 1000 // 2)
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


PHONES = 400
# Doors open and close; the rest is rare.
ACTIONS = ("open",) * 7 + ("close",) * 7 + ("swipe", "crash")
NAMED_SHARE = 0.75
EVENT_JITTER_MS = 120_000
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
        jitter = min(EVENT_JITTER_MS, plan.width_ms // 2)
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


Source = ActivitySource | EventSource
SOURCES: dict[str, Source] = {source.name: source for source in (ActivitySource(), EventSource())}

# The share of a dirty file's lines that each defect has.
SHARES = {
    "malformed": 0.005,
    "invalid": 0.010,
    "unknown_fields": 0.005,
    "late": 0.005,
    "same_file": 0.004,
    "same_batch": 0.003,
    "earlier_batch": 0.003,
    "blank_lines": 0.002,
}
ORIGINS = ("same_file", "same_batch", "earlier_batch")
BLANKS = ("", "   ", "\t")


def file_lines(plan: FilePlan) -> tuple[list[str], Landed]:
    """What to write into the file, and the figures of it. Some items hold several lines."""
    source = SOURCES[plan.batch.source]
    if not plan.batch.dirty:
        return source.clean_lines(plan, plan.rows), Landed(files=1, lines=plan.rows)
    random = plan.random("dirt")
    counts = _counts(plan, random)
    base = plan.rows - sum(counts[origin] for origin in ORIGINS)
    lines = source.clean_lines(plan, base)
    spoilt, rules, rescued = _spoil(lines, plan, counts, random)
    after = _repeats(lines, plan, counts, spoilt, random)
    for _ in range(counts["blank_lines"]):
        after[random.randrange(base)].append(random.choice(BLANKS))
    for place, additions in after.items():
        lines[place] = "\n".join((lines[place], *additions))
    return lines, _landed(plan, counts, rules, rescued)


def _counts(plan: FilePlan, random: Random) -> Counter[str]:
    """How many of each defect. A share that comes to 2.3 is 2, or by chance 3."""
    counts = Counter(
        {kind: int(plan.rows * share + random.random()) for kind, share in SHARES.items()}
    )
    if plan.previous is None:
        # Nothing came before: nothing can be late, and what is repeated is the file's own.
        del counts["late"]
        counts["same_file"] += counts.pop("earlier_batch")
    if plan.file == 1:
        counts["same_file"] += counts.pop("same_batch")
    kinds = [kind for kind in counts if kind != "blank_lines"]
    while sum(counts[kind] for kind in kinds) > plan.rows - plan.head:
        counts[max(kinds, key=lambda kind: counts[kind])] -= 1
    return counts


def _spoil(
    lines: list[str], plan: FilePlan, counts: Counter[str], random: Random
) -> tuple[set[int], Counter[str], Counter[str]]:
    """Put a defect into lines beyond the head.

    Returns:
        Which lines; the rules that invalid ones break, one each; and the rules about rescued values
        that some of them break besides.

    The head stays as it is, because other files and the next batch repeat its rows.
    """
    source = SOURCES[plan.batch.source]
    kinds = [
        kind
        for kind in ("malformed", "invalid", "unknown_fields", "late")
        for _ in range(counts[kind])
    ]
    places = random.sample(range(plan.head, len(lines)), len(kinds))
    rules, rescued = Counter[str](), Counter[str]()
    for ordinal, (kind, place) in enumerate(zip(kinds, places, strict=True)):
        if kind == "malformed":
            lines[place] = malformed(lines[place], random)
            continue
        row = json.loads(lines[place])
        if kind == "invalid":
            fault: Fault = random.choice(source.faults)
            rules[fault.rule] += 1
            row = fault.spoil(row, random) if fault.bad_values else source.made_future(row)
            rescued.update(fault.rescue_rules(row))
        elif kind == "unknown_fields":
            row = with_extra_field(row, random)
        else:
            row = source.made_late(row, plan, random, ordinal)
        lines[place] = source.dump(row)
    return set(places), rules, rescued


def _repeats(
    lines: list[str], plan: FilePlan, counts: Counter[str], spoilt: set[int], random: Random
) -> defaultdict[int, list[str]]:
    """Copies of good rows, by the place after which each is to stand."""
    source = SOURCES[plan.batch.source]
    after: defaultdict[int, list[str]] = defaultdict(list)
    near = max(1, len(lines) // 20)
    for _ in range(counts["same_file"]):
        place = random.randrange(len(lines))
        if place in spoilt or not source.has_identity(lines[place]):
            place = 0
        target = min(len(lines) - 1, place + random.randrange(near))
        after[target].append(source.retold(lines[place], random))
    if counts["same_batch"]:
        heads = _head(source, FilePlan(plan.batch, plan.previous, plan.file - 1))
        for _ in range(counts["same_batch"]):
            after[random.randrange(near)].append(source.retold(random.choice(heads), random))
    if counts["earlier_batch"] and plan.previous is not None:
        file = 1 + random.randrange(plan.previous.files)
        heads = _head(source, FilePlan(plan.previous, None, file))
        for _ in range(counts["earlier_batch"]):
            place = random.randrange(len(lines))
            after[place].append(source.retold(random.choice(heads), random))
    return after


def _head(source: Source, plan: FilePlan) -> list[str]:
    """Rows of another file that are surely as they were recorded, and can be repeated."""
    return [line for line in source.clean_lines(plan, plan.head) if source.has_identity(line)]


def _landed(
    plan: FilePlan, counts: Counter[str], rules: Counter[str], rescued: Counter[str]
) -> Landed:
    lost = counts["malformed"]
    quarantine = rules + rescued
    if lost:
        # Of a malformed line nothing is known, so that it breaks every rule about missing values.
        missing = {f.rule for f in SOURCES[plan.batch.source].faults if f.bad_values}
        quarantine.update(dict.fromkeys((*missing, MALFORMED_LINE), lost))
    origins = {origin: counts[origin] for origin in ORIGINS if counts[origin]}
    return Landed(
        files=1,
        lines=plan.rows,
        malformed=lost,
        invalid=counts["invalid"],
        duplicates=sum(origins.values()),
        late=counts["late"],
        unknown_fields=counts["unknown_fields"],
        blank_lines=counts["blank_lines"],
        invalid_by_rule=dict(sorted(rules.items())),
        expected_quarantine=dict(sorted(quarantine.items())),
        duplicates_by_origin=origins,
    )
