"""Tables drawn in a terminal and in a notebook."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.table import Table

from medallion.errors import UsageError
from medallion.streams.display import Screen, draw_table, refuse_invalid_bar
from tests.support.screen import rows_of


def table_of(title: str, cell: str) -> Table:
    table = Table("door", title=title)
    table.add_row(cell)
    return table


def test_draw_table_formats_values_and_bars(spark: SparkSession) -> None:
    rows = "('[red]front\\u0007', 4, 4D), (NULL, 1, 1D), (repeat('a', 300), 0, double('NaN'))"
    frame = spark.sql(f"SELECT * FROM VALUES {rows} AS rows(door, n, n)")
    table = draw_table(frame, 20, None)
    assert [column.justify for column in table.columns] == ["left", "right", "right"]
    assert rows_of(table) == [
        ("[red]front\\x07", "4", "4.0"),
        ("NULL", "1", "1.0"),
        ("a" * 199 + "…", "0", "NaN"),
    ]
    with_bars = draw_table(frame.toDF("door", "n", "m"), 20, "m")
    # A quarter of the longest bar, and no bar without a number.
    assert [len(row[-1]) for row in rows_of(with_bars)] == [32, 8, 0]
    assert rows_of(draw_table(frame, 1, None, newest=True))[0][1] == "0"


def test_refuse_invalid_bar_names_numbers(spark: SparkSession) -> None:
    with pytest.raises(UsageError, match="bar='door' is not a column of numbers; these are n"):
        refuse_invalid_bar(spark.sql("SELECT 'front' AS door, 1 AS n"), "door")


def test_screen_of_a_terminal_prints_each_table(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.draw(table_of("first", "front"))
    screen.draw(table_of("second", "back"))
    words = [word for word in capsys.readouterr().out.split() if word.isalpha()]
    assert words == ["first", "door", "front", "second", "door", "back"]


def test_notebook_screen_updates_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[Table] = []

    def display(table: Table, display_id: bool) -> Any:
        assert display_id
        displayed.append(table)
        return SimpleNamespace(update=displayed.append)

    module = ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    notebook = SimpleNamespace(is_jupyter=True)
    monkeypatch.setattr(sys.modules["medallion.streams.display"], "Console", lambda: notebook)
    screen, table = Screen(), table_of("doors", "front")
    assert screen.is_notebook
    screen.draw(table)
    screen.draw(table)
    assert displayed == [table, table]
