"""A grid in a terminal and in a notebook: values are shown there, and not obeyed."""

from __future__ import annotations

import sys
from io import StringIO
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from medallion.streams import drawing
from medallion.streams.drawing import Grid, NotebookScreen, TerminalScreen

GRID = Grid(
    title="doors\x1b[2J",
    headers=("door", "n"),
    rows=(("[red]front[/red]\x07", "4"), ("<b>back</b>\n\u202e", "1"), ("shed", "0")),
    right=frozenset({1}),
    bars=(4.0, 1.0, None),
    foot="ended",
)


def test_a_terminal_obeys_no_value() -> None:
    file = StringIO()
    Console(file=file, width=80).print(GRID)
    text = file.getvalue()
    assert text.replace("\n", "").isprintable()
    for shown in (r"doors\x1b[2J", r"[red]front[/red]\x07", r"<b>back</b>\n\u202e", "ended"):
        assert shown in text
    front, back, shed = (next(x for x in text.splitlines() if n in x) for n in ("fr", "ba", "sh"))
    # A quarter of the longest bar, and none where there is no number.
    assert (front.count("█"), back.count("█"), shed.count("█")) == (32, 8, 0)


def test_a_notebook_obeys_no_value() -> None:
    html = GRID._repr_mimebundle_((), ())["text/html"]
    assert r"&lt;b&gt;back&lt;/b&gt;\n\u202e" in html
    assert "<b>back" not in html
    assert html.count("█") == 32 + 8


def test_a_terminal_draws_over_what_was_there() -> None:
    file = StringIO()
    console = Console(file=file, force_terminal=True, width=60, height=20)
    with TerminalScreen(console) as screen:
        assert screen.room == 14  # the cursor cannot go up beyond the first line
        screen.draw(GRID)
        before = file.tell()
        screen.draw(GRID)
    assert "\x1b[1A" in file.getvalue()[before:]  # the cursor goes up again


def test_a_pipe_gets_the_last_one_alone() -> None:
    file = StringIO()
    with TerminalScreen(Console(file=file, width=60)) as screen:
        screen.draw(Grid("first", ("n",), (("1",),)))
        screen.draw(Grid("second", ("n",), (("2",),)))
    assert "first" not in file.getvalue()
    assert file.getvalue().count("second") == 1
    assert file.getvalue().endswith(" \n")


def test_a_notebook_updates_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Grid] = []

    def display(grid: Grid, display_id: bool) -> Any:
        assert display_id
        shown.append(grid)
        return SimpleNamespace(update=shown.append)

    ipython, module = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    module.display = display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    with drawing.screen() as screen:
        assert isinstance(screen, NotebookScreen)
        screen.draw(GRID)
        screen.draw(GRID)
    assert shown == [GRID, GRID]


def test_a_shell_of_ipython_is_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ipython = ModuleType("IPython")
    ipython.get_ipython = SimpleNamespace  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert isinstance(drawing.screen(), TerminalScreen)
