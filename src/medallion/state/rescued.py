"""The values of a run that did not fit their columns, as `ops.runs` keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from medallion.storage.text import counted, visible

MOST_FIELDS, _NAME_LENGTH, _EXAMPLE_LENGTH = 20, 100, 40


@dataclass(frozen=True)
class RescuedField:
    """A field: the rows in which its value did not fit, and the start of one such value."""

    rows: int
    example: str


@dataclass(frozen=True)
class RescuedSummary:
    """The rows of bronze in which a value did not fit, and the fields, by their dotted names."""

    rows: int = 0
    fields: Mapping[str, RescuedField] = field(default_factory=dict)

    @classmethod
    def of_record(cls, rows: int | None, fields: str | None) -> RescuedSummary:
        """Return what two columns of `ops.runs` say."""
        found = json.loads(fields or "{}")
        return cls(rows or 0, {name: RescuedField(**each) for name, each in found.items()})

    def record(self) -> dict[str, Any]:
        """Return the columns of `ops.runs`: at most 20 fields, long values cut."""
        shown = {
            visible(name)[:_NAME_LENGTH]: asdict(
                RescuedField(each.rows, visible(each.example)[:_EXAMPLE_LENGTH])
            )
            for name, each in list(self.fields.items())[:MOST_FIELDS]
        }
        fields = json.dumps(shown, ensure_ascii=False) if shown else None
        return {"rescued_rows": self.rows, "rescued_fields": fields}

    def __str__(self) -> str:
        """Return them in words: `3 rows have values that do not fit: amount (3, such as 12.5)`."""
        names = ", ".join(
            f"{name} ({each.rows:,}, such as {each.example})" for name, each in self.fields.items()
        )
        have = "has" if self.rows == 1 else "have"
        return visible(f"{counted(self.rows, 'row')} {have} values that do not fit: {names}")
