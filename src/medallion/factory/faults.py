"""The ways in which a single row goes wrong: lines that are not JSON objects, and bad values."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, Final

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
        return line + random.choice(("}", " garbage", line))
    if kind == 3:
        return line.replace('":', ":", 1)
    return "42" if kind == 4 else "[1,2]"


def with_extra_field(row: dict[str, Any], random: Random) -> dict[str, Any]:
    """The row with one field that the schema does not know."""
    name, value = random.choice(EXTRA_FIELDS)
    return {**row, name: value}
