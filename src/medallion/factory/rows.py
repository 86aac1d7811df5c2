"""The lines of a file: recordings and events, clean or with counted defects.

A line has at most one defect. The lines look like those of the sample files.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from math import pi, sin
from random import Random
from typing import Any, Final

from medallion.factory.plan import HOUR, FilePlan, Landed, clock_text

Row = dict[str, Any]

MISSING: Final = object()  # a key that is absent; None is JSON's null
NULLS = (MISSING, None)
# Strings that no reader takes for a timestamp. Spark reads "2015" and "10:18".
UNREADABLE_TIMES = ("soon", "n/a", "23/02/2015 10:18", "2015-13-45T10:18:54")
EXTRA_FIELDS = (("battery", 81), ("firmware", {"v": "1.2"}), ("tags", ["left", "wrist"]))
TIME_FIELDS = ("Recorded_At", "ts", "time")
STRING_FIELDS = ("Device", "action")
YEAR_2099 = 4_070_908_800


@dataclass(frozen=True)
class Fault:
    """A rule of the pipeline, and the bad values by which a row breaks it and no other.

    Without values the event time is 2099. Without a field the row's time field is used.
    """

    rule: str
    field: str = ""
    values: tuple[object, ...] = ()

    def apply(self, row: Row, random: Random) -> tuple[Row, list[str]]:
        """Return the row with one bad value, and the rules that it breaks."""
        field = self.field or next(name for name in TIME_FIELDS if name in row)
        old = row[field]
        if not self.values:
            future = YEAR_2099 + old % 86_400 if isinstance(old, int) else f"2099-01-01{old[10:]}"
            return {**row, field: future}, [self.rule]
        value = random.choice(self.values)
        if value is MISSING:
            return {name: kept for name, kept in row.items() if name != field}, [self.rule]
        # A string that does not fit its column is rescued as well.
        is_rescued = isinstance(value, str) and field not in STRING_FIELDS
        return {**row, field: value}, [self.rule, *([f"rescued_{field}"] if is_rescued else [])]


def _make_malformed(line: str, random: Random) -> str:
    """Return a string that is not one JSON object."""
    interrupted = line[: random.randrange(1, len(line) - 1)]
    longer = line + random.choice(("}", " garbage", f",{line}"))
    noise = "!! sensor buffer overrun, recording lost"
    return random.choice((interrupted, noise, longer, line.replace('":', ":", 1), "42", "[1,2]"))


MODELS = ("nexus4", "s3", "s3mini", "samsungold", "lgwatch", "gear")
DEVICES = tuple(f"{model}_{number}" for model in MODELS for number in (1, 2))
USERS = "abcdefghi"
# "null" is the recorders' own word for "not labelled".
MOVES = ("stand", "sit", "null", "bike", "walk", "stairsup", "stairsdown")
SWINGS = dict(zip(MOVES, (0.05, 0.05, 0.05, 2.0, 2.0, 8.0, 8.0), strict=True))  # of the axes
PACES = (0, 2, 3, 4, 4, 4, 4, 5, 5, 5, 6, 6, 7, 8, 10, 14)  # ms between two recordings
STRETCH = 200  # maximum number of consecutive recordings of one device
ACTIVITY_JITTER_MS = 90_000


def _activity_lines(plan: FilePlan, count: int) -> list[str]:
    """Return the first `count` recordings of a file, which never share device and `Index`."""
    random = plan.random("rows")
    start, width = plan.time_range
    stretch = min(STRETCH, max(10, plan.rows // 10))
    stretches = -(-plan.rows // stretch)
    indexes: dict[str, int] = defaultdict(lambda: plan.first_index)
    lines: list[str] = []
    for number in range(stretches):
        length = min(stretch, count - len(lines))
        if length <= 0:
            break
        first_ms = start + width * number // stretches + random.randrange(ACTIVITY_JITTER_MS)
        device = random.choice(DEVICES)
        _append_stretch(lines, random, device, first_ms, indexes[device], length)
        indexes[device] += length
    return lines


@lru_cache(maxsize=8)
def _wave(swing: float) -> tuple[str, ...]:
    """Return one period of an axis in 1024 values, without zeros at the end, as JSON writers do."""
    values = (swing * sin(2 * pi * at / 1024) - 0.0003814697 for at in range(1024))
    return tuple(f"{value:.8f}".rstrip("0") for value in values)


def _append_stretch(
    lines: list[str], random: Random, device: str, start_ms: int, index: int, length: int
) -> None:
    """Append recordings of one device. This loop determines the factory's speed.

    Args:
        lines: the lines to extend.
        random: the file's generator.
        device: the device's name.
        start_ms: epoch milliseconds of the first recording.
        index: the first `Index`.
        length: number of recordings.
    """
    move, user = random.choice(MOVES), random.choice(USERS)
    wave, bits = _wave(SWINGS[move]), random.getrandbits
    x, y, z = bits(10), bits(10), bits(10)
    middle = f'", "Device": "{device}", "Index": '
    after = f', "Model": "{device.partition("_")[0]}", "User": "{user}", "gt": "{move}", "x": '
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
            f"{before}.{ms:03d}+0000{middle}{number}{after}{wave[x & 1023]}"
            f', "y": {wave[y & 1023]}, "z": {wave[z & 1023]}}}'
        )
        ms += PACES[draw >> 9]
        if ms >= 1000:
            ms -= 1000
            second += 1
            before = f'{{"Recorded_At": "{clock_text(second)}'


PHONES = 400
ACTIONS = ("open",) * 7 + ("close",) * 7 + ("swipe", "crash")
NAMED_SHARE = 0.75
EVENT_JITTER_MS = 120_000
# Late events are in the quiet time before the previous batch, each at a second of its own: that
# keeps them unique without state.
LATE_FIRST, LATE_SECONDS, LATE_STRIDE = 110 * 60, 45 * 60, 1543


def _event_lines(plan: FilePlan, count: int) -> list[str]:
    """Return the first `count` events of a file; those of a device never share action and time."""
    random = plan.random("rows")
    draw, pick = random.random, random.randrange
    start, width = plan.time_range
    # Files keep to their own time, so that keys are unique if they are so within a file.
    jitter = min(EVENT_JITTER_MS, width // 2)
    step, first_second = (width - jitter) / plan.rows, -(-start // 1000)
    seen: set[tuple[int, int, str]] = set()
    lines: list[str] = []
    for at in range(count):
        second = max(first_second, int(start + at * step + draw() * jitter) // 1000)
        action = ACTIONS[pick(len(ACTIONS))]
        # The first row always has a device, so that a file has at least one to repeat.
        if at and draw() >= NAMED_SHARE:
            lines.append(f'{{"time":{second},"action":"{action.capitalize()}"}}')
            continue
        phone = 1 + pick(PHONES)
        while (second, phone, action) in seen:
            phone, action = 1 + pick(PHONES), ACTIONS[pick(len(ACTIONS))]
        seen.add((second, phone, action))
        lines.append(f'{{"id":"phone{phone}","action":"{action}","ts":"{clock_text(second)}"}}')
    return lines


def _make_late(row: Row, plan: FilePlan, random: Random, ordinal: int) -> Row:
    """Return a row that is more than an hour older than the previous batch.

    Args:
        row: a recording, which gets a time 2 to 26 hours before that batch; or an event, which a
            new one replaces, 65 to 110 minutes before that batch.
        plan: the file.
        random: the file's generator.
        ordinal: number of the file's defect.
    """
    assert plan.previous is not None
    if "Recorded_At" in row:
        ms = plan.previous.start * 1000 - random.randrange(2 * HOUR * 1000, 26 * HOUR * 1000)
        return {**row, "Recorded_At": f"{clock_text(ms // 1000)}.{ms % 1000:03d}+0000"}
    turn, at = divmod(ordinal * plan.batch.files + plan.number - 1, LATE_SECONDS)
    second = plan.previous.start - LATE_FIRST + at * LATE_STRIDE % LATE_SECONDS
    phone = f"phone{1 + (at + turn) % PHONES}"
    return {"id": phone, "action": row["action"].lower(), "ts": clock_text(second)}


def _duplicate_of(line: str, random: Random) -> str:
    """Return a duplicate of a line; some events have their action capitalized."""
    if line.startswith('{"Recorded_At"') or random.random() < 0.7:
        return line
    row = json.loads(line)
    return json.dumps({**row, "action": row["action"].capitalize()}, separators=(",", ":"))


def _has_identity(line: str) -> bool:
    """Return True if a clean line has a device."""
    return not line.startswith('{"time"')


CLEAN_LINES = {"activity": _activity_lines, "event": _event_lines}
SEPARATORS = {"activity": (", ", ": "), "event": (",", ":")}
FAULTS = {
    "activity": (
        Fault("missing_event_time", "Recorded_At", (*NULLS, *UNREADABLE_TIMES)),
        Fault("future_event_time", "Recorded_At"),
        Fault("missing_device", "Device", (*NULLS, "", "  ")),
        Fault("missing_index", "Index", (*NULLS, "seven")),
        *(Fault(f"missing_{axis}", axis, (*NULLS, "fast", "n/a")) for axis in "xyz"),
    ),
    "event": (
        Fault("missing_event_time", values=(*NULLS, *UNREADABLE_TIMES)),
        Fault("future_event_time"),
        Fault("missing_action", "action", NULLS),
    ),
}
# The share of a dirty file's lines that have each defect.
SHARES = {
    "malformed": 0.005,
    "invalid": 0.010,
    "unknown_fields": 0.005,
    "late": 0.005,
    "same_file": 0.006,  # duplicates, by where their original is
    "earlier_batch": 0.004,
    "blank_lines": 0.002,
}

DEFECTS = ("malformed", "invalid", "unknown_fields", "late")


def file_lines(plan: FilePlan) -> tuple[list[str], Landed]:
    """Return a file's lines and their figures. An item may contain several lines."""
    clean_lines = CLEAN_LINES[plan.batch.source]
    if not plan.batch.dirty:
        return clean_lines(plan, plan.rows), Landed(files=1, lines=plan.rows)
    random = plan.random("dirt")
    counts = _defect_counts(plan, random)
    duplicates = counts["same_file"] + counts["earlier_batch"]
    base = plan.rows - duplicates
    lines = clean_lines(plan, base)
    changed, quarantine = _add_defects(lines, plan, counts, random)
    after = _duplicates(lines, plan, counts, changed, random)
    for _ in range(counts["blank_lines"]):
        after[random.randrange(base)].append(random.choice(("", "   ", "\t")))
    for at, additions in after.items():
        lines[at] = "\n".join((lines[at], *additions))
    return lines, Landed(
        files=1,
        lines=plan.rows,
        duplicates=duplicates,
        **{name: counts[name] for name in (*DEFECTS, "blank_lines")},
        expected_quarantine=dict(quarantine),
    )


def _defect_counts(plan: FilePlan, random: Random) -> Counter[str]:
    """Return how many lines have each defect; 2.3 lines are randomly 2 or 3."""
    counts = Counter({n: int(plan.rows * share + random.random()) for n, share in SHARES.items()})
    if plan.previous is None:  # nothing can be late, and a file can only repeat its own rows
        del counts["late"]
        counts["same_file"] += counts.pop("earlier_batch")
    names = [name for name in counts if name != "blank_lines"]
    while sum(counts[name] for name in names) > plan.rows - plan.head:
        counts[max(names, key=lambda name: counts[name])] -= 1
    return counts


def _add_defects(
    lines: list[str], plan: FilePlan, counts: Counter[str], random: Random
) -> tuple[set[int], Counter[str]]:
    """Put defects into lines after the head, whose rows other files and batches repeat.

    Args:
        lines: the file's lines, which are changed.
        plan: the file.
        counts: how many lines have each defect.
        random: the file's generator.

    Returns:
        The changed lines, and how many of them break each rule.
    """
    faults, separators = FAULTS[plan.batch.source], SEPARATORS[plan.batch.source]
    quarantine = Counter[str]()
    defects = [defect for defect in DEFECTS for _ in range(counts[defect])]
    places = random.sample(range(plan.head, len(lines)), len(defects))
    # A malformed line breaks every rule about missing values.
    missing = ["malformed_line", *(fault.rule for fault in faults if fault.values)]
    for ordinal, (defect, at) in enumerate(zip(defects, places, strict=True)):
        if defect == "malformed":
            lines[at] = _make_malformed(lines[at], random)
            quarantine.update(missing)
            continue
        row = json.loads(lines[at])
        if defect == "invalid":
            row, rules = random.choice(faults).apply(row, random)
            quarantine.update(rules)
        elif defect == "unknown_fields":
            row.update([random.choice(EXTRA_FIELDS)])
        else:
            row = _make_late(row, plan, random, ordinal)
        lines[at] = json.dumps(row, separators=separators)
    return set(places), quarantine


def _duplicates(
    lines: list[str], plan: FilePlan, counts: Counter[str], changed: set[int], random: Random
) -> defaultdict[int, list[str]]:
    """Return copies of rows by the line after which they are inserted.

    Args:
        lines: the file's lines.
        plan: the file.
        counts: how many duplicates have their original in the file or an earlier batch.
        changed: lines with a defect, which are not repeated.
        random: the file's generator.
    """
    after: defaultdict[int, list[str]] = defaultdict(list)
    near = max(1, len(lines) // 20)
    for _ in range(counts["same_file"]):
        at = random.randrange(len(lines))
        if at in changed or not _has_identity(lines[at]):
            at = 0
        target = min(len(lines) - 1, at + random.randrange(near))
        after[target].append(_duplicate_of(lines[at], random))
    if counts["earlier_batch"] and plan.previous is not None:
        file = FilePlan(plan.previous, None, 1 + random.randrange(plan.previous.files))
        clean = CLEAN_LINES[plan.batch.source](file, file.head)
        head = [line for line in clean if _has_identity(line)]
        for _ in range(counts["earlier_batch"]):
            after[random.randrange(len(lines))].append(_duplicate_of(random.choice(head), random))
    return after
