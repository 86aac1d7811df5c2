"""The two equations of the balance, by arithmetic."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from medallion.inspection.balance import Balance, uneven

# 10 lines landed are 10 rows; of those 4 went to silver, 3 to quarantine, 1 twice, 2 wait.
EVEN = Balance(
    landed_lines=10,
    bronze_rows=10,
    silver_rows=4,
    quarantined_rows=3,
    duplicate_rows=1,
    late_rows=2,
    waiting_rows=2,
)


def test_what_adds_up_is_even() -> None:
    assert EVEN.is_even
    assert replace(EVEN, late_rows=0).is_even  # they are part of silver's rows
    assert replace(EVEN, landed_lines=11, bronze_rows=11, waiting_rows=3).is_even


@pytest.mark.parametrize("figure", [name for name in asdict(EVEN) if name != "late_rows"])
@pytest.mark.parametrize("by", [1, -1])
def test_one_row_more_or_less_is_not(figure: str, by: int) -> None:
    off = replace(EVEN, **{figure: getattr(EVEN, figure) + by})
    assert not off.is_even
    assert uneven([("a", EVEN), ("b", off), ("c", off)]) == ["b", "c"]


def test_two_wrongs_of_one_size_do_not_add_up() -> None:
    assert not replace(EVEN, landed_lines=11, silver_rows=5).is_even
    assert not replace(EVEN, bronze_rows=9, waiting_rows=1).is_even
