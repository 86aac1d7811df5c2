"""`medallion sql`: its input, output formats and prompt."""

from __future__ import annotations

import io
import json
import sys
from argparse import Namespace
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from medallion.cli import sql as command
from medallion.cli import sql_prompt
from medallion.cli.terminal import fitted_table
from medallion.errors import UsageError
from medallion.sql.engine import Database
from medallion.storage.layout import Layout
from tests.support.lakehouse import Lakehouse
from tests.support.sql import write


@pytest.fixture
def database(tmp_path: Path) -> Database:
    write(tmp_path, "gold.totals", "SELECT * FROM (VALUES ('a', 1), ('b', 2)) AS t(device, total)")
    views = {"large": "SELECT * FROM gold.totals WHERE total > 1"}
    return Database(str(tmp_path), views)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(database: Database, *statement: str, **options: Any) -> int:
    arguments: dict[str, Any] = dict.fromkeys(("file", "as_of", "json", "csv", "parquet"))
    arguments |= {"statement": list(statement), **options}
    layout = Layout(database.root)
    config = replace(Lakehouse(None, layout.root.local).config, views=database.views)
    return command.run_sql(config, Namespace(**arguments))


def test_sql_of_a_file_runs_each_statement(
    database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.sql"
    file.write_text(
        "-- ; not here\nSELECT ';' AS a;\n\nSELECT total FROM large;;", encoding="utf-8"
    )
    run(database, file=str(file))
    lines = [line for line in capsys.readouterr().out.splitlines() if "row" not in line]
    assert lines == ["a", "-", ";", "total", "-----", "    2"]
    with pytest.raises(UsageError, match="--json is for one statement; there are 2"):
        run(database, file=str(file), json="-")
    with pytest.raises(UsageError, match="a statement or --file, not both"):
        run(database, "SELECT 1", file=str(file))
    with pytest.raises(UsageError, match=r"--file .*none.sql: No such file"):
        run(database, file=str(tmp_path / "none.sql"))


@pytest.mark.parametrize("arguments", [{}, {"file": "-"}])
def test_sql_of_standard_input(
    database: Database,
    arguments: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT count(*) AS n FROM gold.totals"))
    run(database, json="-", **arguments)
    assert json.loads(capsys.readouterr().out) == {"columns": ["n"], "rows": [[2]]}
    monkeypatch.setattr(sys, "stdin", io.StringIO(" -- nothing\n"))
    with pytest.raises(UsageError, match="the statement is empty"):
        run(database, **arguments)


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("csv", "device,total\r\na,1\r\n"),
        ("json", '{"columns": ["device", "total"], "rows": [["a", 1]]}'),
    ],
)
def test_sql_to_a_file(database: Database, tmp_path: Path, form: str, content: str) -> None:
    file, statement = tmp_path / "out", "SELECT * FROM gold.totals WHERE total = 1"
    run(database, statement, **{form: str(file)})
    written = file.read_bytes().decode()
    assert (json.loads(written) == json.loads(content)) if form == "json" else written == content
    with pytest.raises(UsageError):
        run(database, "SELECT CAST(device AS int) FROM gold.totals", **{form: str(file)})
    assert file.read_bytes().decode() == written
    with pytest.raises(UsageError, match=rf"--{form} .*No such file"):
        run(database, statement, **{form: str(tmp_path / "none" / "out")})


def test_sql_of_several_statements(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    run(database, "SELECT 1 AS a; SELECT ';' AS b")
    lines = [line for line in capsys.readouterr().out.splitlines() if "row" not in line]
    assert lines == ["a", "-", "1", "b", "-", ";"]


def test_sql_after_its_form_is_the_statement(
    database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    run(database, csv="SELECT 1 AS a")
    assert capsys.readouterr().out == "a\r\n1\r\n"


def test_sql_to_parquet_is_complete_or_absent(database: Database, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    run(database, "SELECT device, total FROM gold.totals ORDER BY 1", parquet=str(file))
    assert duckdb.read_parquet(str(file)).fetchall() == [("a", 1), ("b", 2)]
    before = file.read_bytes()
    with pytest.raises(UsageError):
        run(database, "SELECT CAST(device AS int) FROM gold.totals", parquet=str(file))
    assert file.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["out.parquet"]
    with pytest.raises(UsageError, match=r"--parquet .*No such file"):
        run(database, "SELECT 1", parquet=str(tmp_path / "none" / "out.parquet"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("12", 12),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
        ("2026-05-01T12:00+02:00", datetime(2026, 5, 1, 10, tzinfo=UTC)),
    ],
)
def test_as_of_is_a_version_or_a_time(text: str | None, expected: object) -> None:
    assert command._parse_as_of(text) == expected


def test_as_of_invalid() -> None:
    with pytest.raises(UsageError, match="--as-of yesterday: must be a version"):
        command._parse_as_of("yesterday")


def test_output_format_needs_a_statement(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal())
    with pytest.raises(UsageError, match="--csv needs a statement"):
        run(database, csv="-")


def test_fitted_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    assert fitted_table(("device", "n"), [("x", 1), (None, 22)]) == [
        "device |  n",
        "-------+---",
        "x      |  1",
        "NULL   | 22",
    ]
    monkeypatch.setenv("COLUMNS", "10")
    assert fitted_table(("device", "n"), [("x", 1), (None, 22)]) == [
        "--- row 1",
        "device | x",
        "n      | 1",
        "--- row 2",
        "device | NULL",
        "n      | 22",
    ]


def test_fitted_table_escapes_values(monkeypatch: pytest.MonkeyPatch) -> None:
    for width in ("80", "10"):
        monkeypatch.setenv("COLUMNS", width)
        lines = fitted_table(("a\x1b", "b"), [("\x1b[2J", "[bold]x")])
        assert "\x1b" not in "".join(lines)
        assert all(
            any(text in line for line in lines) for text in ("a\\x1b", "\\x1b[2J", "[bold]x")
        )


def completions(database: Database, text: str) -> list[str]:
    completer = sql_prompt.NameCompleter(database)
    matches = completer.get_completions(Document(text), CompleteEvent())
    return [completion.text for completion in matches]


def test_prompt_completes_tables_views_and_columns(database: Database) -> None:
    assert completions(database, "SELECT * FROM gold.t") == ["gold.totals"]
    assert completions(database, "SELECT * FROM la") == ["large"]
    assert completions(database, "SELECT * FROM gold.totals WHERE de") == [
        *("device", "desc", "describe")
    ]
    assert completions(database, "SELECT * FROM large WHERE tot") == ["total"]
    assert completions(database, "SEL") == ["select"]
    assert completions(database, "SELECT * FROM gold.broken WHERE tot") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", True),
        (r"\d", True),
        ("SELECT 1", False),
        ("SELECT 1\nFROM x", False),
        ("SELECT 1 ; ", True),
    ],
)
def test_prompt_runs_complete_text(text: str, expected: bool) -> None:
    assert sql_prompt.is_complete(text) == expected


def test_prompt_session(
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A statement of two lines, a command, an error, and the end."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        keys.send_text("SELECT total\rFROM large;\r")
        keys.send_text("\\d gold.totals\r")
        keys.send_text("SELECT totl FROM large; SELECT 1;\r\\nope\rhelp\rEXIT\r")
        sql_prompt.run_prompt(database)
    output, errors = capsys.readouterr()
    assert "total\n-----\n    2\n(1 row, " in output
    assert "device      | string" in output
    assert "there is no command \\nope" in output
    assert errors == (
        "medallion: there is no column totl: did you mean total?\n"
        "  SELECT totl FROM large\n"
        "         ^^^^\n"
    )
    history = (tmp_path / "state/medallion/sql_history").read_text(encoding="utf-8")
    assert "+SELECT total\n+FROM large;\n" in history
