"""The lessons, from the first cell to the last, with the numbers in them."""

from __future__ import annotations

import ast
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import medallion
from tests.support import PROJECT

NOTEBOOKS = PROJECT / "notebooks"
NAMES = sorted(path.stem for path in NOTEBOOKS.glob("[0-9]*.py"))


def cells(notebook: Path) -> list[str]:
    """Return the cells of code, padded so that a failure names the right line."""
    text = notebook.read_text(encoding="utf-8")
    marks = [*re.finditer(r"^# %%(.*)$", text, re.MULTILINE)]
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    return [
        "\n" * text.count("\n", 0, mark.end()) + text[mark.end() : end].lstrip("\n")
        for mark, end in zip(marks, ends, strict=True)
        if "markdown" not in mark[1]
    ]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a notebook in a folder of its own, and returns its names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(NOTEBOOKS)  # as Jupyter does
    monkeypatch.setattr(medallion, "spark_session", lambda: spark)

    def execute(name: str) -> dict[str, Any]:
        notebook = NOTEBOOKS / name
        names: dict[str, Any] = {"__name__": "__main__"}
        for cell in cells(notebook):
            exec(compile(cell, str(notebook), "exec"), names)
        assert [*tmp_path.iterdir()] == []  # it has removed all its files
        assert not spark.streams.active
        return names

    return execute


def test_read_and_write_a_stream(run: Any) -> None:
    names = run("1_read_and_write_a_stream.py")
    assert names["after_file1"] == [("10:00", "close", 1), ("10:00", "open", 3)]
    assert names["after_file2"] == [("10:00", "close", 2), ("10:00", "open", 4)]
    assert names["after_file3"] == [
        ("10:00", "close", 3),
        ("10:00", "open", 4),
        ("10:10", "open", 1),
    ]
    # The files have four lines, and two each.
    assert (names["rows_of_three_files"], names["rows_of_four_files"]) == (8, 10)
    assert "does not support Update output mode" in names["refused"]
    assert names["running"] == ["by_hand"]
    assert names["still_running"] == []


@pytest.mark.slow
def test_the_medallion(run: Any) -> None:
    names = run("2_the_medallion.py")
    first, second = (datetime(2018, 3, 2, 10, minute, tzinfo=UTC) for minute in (0, 10))
    assert names["after_file1"] == [(first, "close", 1), (first, "open", 3)]
    assert names["after_file2"] == [(first, "close", 2), (first, "open", 4)]
    assert names["after_file3"] == [(first, "close", 3), (first, "open", 4), (second, "open", 1)]
    assert [(Path(path).name, rows) for path, _, rows in names["files"]] == [
        ("file1.json", 4),
        ("file2.json", 2),
        ("file3.json", 2),
    ]
    assert names["rows"] == {"bronze.event": 8, "silver.event": 8, "quarantine.event": 0}
    assert names["first_changes"] == ([(1, "paid"), (2, "new")], [("new", 1), ("paid", 1)])
    assert names["second_changes"] == ([(1, "paid")], [("paid", 1)])


@pytest.mark.parametrize("name", NAMES)
def test_notebook_cells_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their imports exist, too; the slow tests run the long notebooks."""
    monkeypatch.syspath_prepend(NOTEBOOKS)
    notebook, imports = NOTEBOOKS / f"{name}.py", list[ast.stmt]()
    for cell in cells(notebook):
        tree = ast.parse(cell, str(notebook))
        imports += [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports
    exec(compile(ast.Module(imports, []), str(notebook), "exec"), {})


@pytest.mark.usefixtures("production_streams")
def test_windows_watermarks_and_late_rows(run: Any) -> None:
    names = run("3_windows_watermarks_and_late_rows.py")
    # Doors were opened at 10:02:33, 10:03:35, 10:03:50, 10:07:50 and 10:10:50.
    assert names["tumbling"] == [("10:00:00", "10:10:00", 4), ("10:10:00", "10:20:00", 1)]
    assert names["sliding"] == [
        ("09:55:00", "10:05:00", 3),
        ("10:00:00", "10:10:00", 4),
        ("10:05:00", "10:15:00", 2),
        ("10:10:00", "10:20:00", 1),
    ]
    assert names["session"] == [
        ("10:02:33", "10:05:50", 3),
        ("10:07:50", "10:09:50", 1),
        ("10:10:50", "10:12:50", 1),
    ]
    # The watermark is ten minutes behind the latest event.
    assert names["states"] == [
        ([], "09:52", 0),
        ([], "09:59", 0),
        ([("10:00", 2)], "10:21", 0),
        ([("10:00", 2)], "10:21", 1),
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("production_streams")
def test_joins_and_sinks(run: Any) -> None:
    names = run("4_joins_and_sinks.py")
    assert names["first"] == [("phone1", "10:10")]
    assert names["second"] == [
        ("phone1", "10:10"),
        ("phone2", None),
        ("phone3", None),
        ("phone4", "10:30"),
        ("phone9", "23:30"),
    ]
    assert names["by_batch"] == names["second"]
    assert names["merged"] == [("phone1", 1), ("phone2", 1), ("phone4", 1), ("phone9", 1)]
    assert "complete. This output mode is not supported in Data Source json" in names["refused"]
    assert names["cause"] == "the other end hung up"
