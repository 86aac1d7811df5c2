"""What was landed, in figures that the pipeline's own can be held against."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Landed:
    """The lines landed for one source, each counted once.

    `lines` (all but blank ones) = `expected_silver` + `malformed` + `invalid` + `duplicates`.
    `late` and `unknown_fields` rows are valid, and part of `expected_silver`. Late rows are late
    for the pipeline only if an earlier run of it took in the batch before them.
    """

    files: int = 0
    lines: int = 0
    malformed: int = 0
    invalid: int = 0
    duplicates: int = 0
    late: int = 0
    unknown_fields: int = 0
    blank_lines: int = 0
    batches: int = 0
    invalid_by_rule: dict[str, int] = field(default_factory=dict)
    """The invalid rows by the one rule that each of them breaks. Malformed lines are not here."""
    expected_quarantine: dict[str, int] = field(default_factory=dict)
    """For each rule, the rows that name it: invalid ones, and malformed lines, which break many."""
    duplicates_by_origin: dict[str, int] = field(default_factory=dict)
    """Where the repeated row had been: `same_file`, `same_batch` or `earlier_batch`."""

    @property
    def expected_silver(self) -> int:
        """The rows that belong in silver once every landed line is processed."""
        return self.lines - self.malformed - self.invalid - self.duplicates

    @property
    def expected_quarantined(self) -> int:
        """The rows that belong in quarantine."""
        return self.malformed + self.invalid

    def __add__(self, other: Landed) -> Landed:
        """Both together."""
        total: dict[str, Any] = {}
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            if isinstance(mine, dict):
                total[each.name] = dict(sorted((Counter(mine) + Counter(theirs)).items()))
            else:
                total[each.name] = mine + theirs
        return Landed(**total)

    def figures(self) -> dict[str, Any]:
        """Those that programs rely on first, then the factory's own."""
        return {
            **asdict(self),
            "expected_silver": self.expected_silver,
            "expected_quarantined": self.expected_quarantined,
        }
