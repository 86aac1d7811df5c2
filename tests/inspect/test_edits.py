"""Edits of a plan that a user selects; runtime/test_check.py finds them in a project."""

from __future__ import annotations

import pytest

from medallion.errors import UsageError
from medallion.inspect.edits import Edit, EditAction, select_edits

EDITS = [
    Edit("silver.a", EditAction.REBUILD),
    Edit("silver.b", EditAction.REBUILD),
    Edit("gold.a", EditAction.REBUILD, reads=("silver.a",)),
    Edit("gold.ab", EditAction.REBUILD, reads=("silver.a", "silver.b")),
    Edit("gold.top", EditAction.REBUILD, reads=("gold.a",)),
    Edit("silver.new", EditAction.NEW),
]


@pytest.mark.parametrize(
    ("tables", "selected"),
    [
        ([], [edit.table for edit in EDITS]),
        (["silver.b", "silver.a"], ["silver.a", "silver.b", "gold.a", "gold.ab", "gold.top"]),
    ],
)
def test_select_edits_adds_readers(tables: list[str], selected: list[str]) -> None:
    assert [edit.table for edit in select_edits(EDITS, tables)] == selected


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (["silver.new"], "silver.new has no edit to apply; these have: silver.a, silver.b, gold.a"),
        (["gold.a"], "gold.a reads silver.a, which has to be rebuilt: name both."),
        (["silver.a"], "gold.ab reads silver.b, which has to be rebuilt: name both."),
    ],
)
def test_select_edits_refuses(tables: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        select_edits(EDITS, tables)
