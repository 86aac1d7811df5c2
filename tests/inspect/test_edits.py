"""Edits of a plan that a user selects; runtime/test_check.py finds them in a project."""

from __future__ import annotations

import pytest

from medallion.config.queries import queries
from medallion.errors import UsageError
from medallion.inspect import edits
from medallion.inspect.edits import Edit, EditAction, select_edits
from medallion.storage import delta_tables
from tests.support.home import Home
from tests.support.runs import record

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


@pytest.mark.parametrize(
    ("last_rows", "rows", "seconds"),
    [(200_000, 600_000, 30.0), (200_000, 50_000, 10.0), (5, 50_000, 10.0)],
)
def test_cost_of_a_rebuild_grows_with_the_rows(
    home: Home, monkeypatch: pytest.MonkeyPatch, last_rows: int, rows: int, seconds: float
) -> None:
    """The last run took ten seconds; below 100,000 rows, a run takes as long as for one."""
    record(home.config, "silver.activity", seconds=10.0, rows_in=last_rows, batches=1)
    monkeypatch.setattr(delta_tables, "row_count", lambda _: rows)
    (silver,) = queries(home.config, ["silver"])
    assert edits._cost(home.config, silver) == (rows, seconds)
