"""Mistakes in statements: the error points at the word, and names the nearest match."""

from __future__ import annotations

from pathlib import Path

import pytest

from medallion.errors import StatementError
from medallion.sql.engine import query
from tests.support.sql import write


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lakehouse")
    write(root, "gold.device_counts", "SELECT 'a' AS device, 1 AS total, 2 AS \"Index\"")
    return root


COUNTS = "FROM gold.device_counts"


@pytest.mark.parametrize(
    ("statement", "message", "word"),
    [
        (f"SELECT devce {COUNTS}", "no column devce: did you mean device?", "devce"),
        (f"SELECT c.index {COUNTS} c", "no column c.index: did you mean c.Index?", "c.index"),
        (f'SELECT "Device" {COUNTS}', "no column Device: did you mean device?", "Device"),
        (f"SELECT q {COUNTS}", "no column q; the columns are device, total, Index", "q"),
        ("SELECT open", "no column open; a string is written in single quotes", "open"),
        ("SELECT * FROM gold.device_count", "mean gold.device_counts?", "gold.device_count"),
        (f"SELECT coun(*) {COUNTS}", "no function coun: did you mean count?", "coun"),
        ("SELECT * FROM device_counts", "mean gold.device_counts?", "device_counts"),
        ("SELECT * FROM Device_Conts", "mean gold.device_counts?", "Device_Conts"),
        ("SELECT * FROM landing.device_counts", "mean gold.dev", "landing.device_counts"),
        ("device_counts", "did you mean SELECT * FROM gold.device_counts?", "device_counts"),
        (" GOLD.device_counts;", "did you mean SELECT * FROM gold.dev", "GOLD.device_counts"),
        (f"SELECT device, count(*) {COUNTS}", "device must be in GROUP BY, or in", "device"),
        (f"SELECT sum(device) {COUNTS}", "sum does not take string: convert the argu", "sum"),
        ("SELECT device\nFRM gold.device_counts", "found: gold", "gold"),
    ],
)
def test_mistake_points_at_the_word(root: Path, statement: str, message: str, word: str) -> None:
    with pytest.raises(StatementError) as raised:
        query(root, statement)
    error = raised.value
    assert message in str(error)
    assert error.span is not None
    assert error.statement[slice(*error.span)] == word
    line, marks = error.pointer
    assert line.strip() in statement
    assert line[marks.index("^") : marks.rindex("^") + 1] == word


def test_mistake_at_the_end(root: Path) -> None:
    with pytest.raises(StatementError, match="expected: an expression") as raised:
        query(root, "SELECT 1 +")
    assert raised.value.pointer == ["  SELECT 1 +", "            ^"]


def test_mistake_in_a_view_names_it(root: Path) -> None:
    views = {"v": "SELECT nope FROM gold.device_counts"}
    with pytest.raises(StatementError, match=r"^view v: there is no column nope; ") as raised:
        query(root, "SELECT * FROM v", views)
    assert raised.value.statement == views["v"]


def test_pointer_of_an_unknown_part_is_empty() -> None:
    assert StatementError("it failed", "SELECT 1").pointer == []
