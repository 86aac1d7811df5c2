"""Output to a terminal: values and file names cannot run control sequences."""

from __future__ import annotations

import ast
import io
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from medallion.cli import main, render_runs, render_tables
from medallion.cli.render_tables import csv_lines
from medallion.cli.terminal import aligned_table, json_value, print_message, print_result, to_json
from medallion.errors import UsageError
from medallion.ingest.schema.registry import SchemaVersion
from medallion.inspect.audit import Audit
from medallion.inspect.catalog import FirstRows
from medallion.inspect.problems import Problem, ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.quality.suites import Failure, Verdict
from medallion.runtime.backfill import BackfillResult
from medallion.runtime.outcome import GateResult, Outcome
from medallion.sql.result import Result
from medallion.state.ledger import Entry
from medallion.storage.text import printable

SOURCES = Path(__file__).parents[2] / "src/medallion"
# A title, a color in two encodings, right-to-left text, a lone surrogate, and a line break.
HOSTILE = "\x1b]0;title\x07\x9b31m\u202e\udcff\nbalanced"
ESCAPED = "\\x1b]0;title\\x07\\x9b31m\\u202e\\udcff\\nbalanced"

ENTRY = Entry("event", HOSTILE, 1, 5, 0, 0, HOSTILE, HOSTILE, moved_to=HOSTILE)
# Each string of a status; the name of its query is checked by the configuration.
STATUS = QueryStatus("bronze.event", HOSTILE, 1, HOSTILE, 1, 1, 1, HOSTILE, HOSTILE)
FAILURE = Failure("silver.event", HOSTILE, "warn", 1, 1, (HOSTILE,), HOSTILE)
OUTCOME = Outcome({"all": 1.0}, [GateResult(Verdict("silver.event", 1, (FAILURE,)), 1, (), 1.0)])
ROWS = Result((HOSTILE,), [(HOSTILE,), ([HOSTILE],), ({HOSTILE: HOSTILE},)])

LOST = Problem(ProblemCode.UNBALANCED, HOSTILE, HOSTILE)
NOTE = Problem(ProblemCode.NOTE, HOSTILE, HOSTILE)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (render_tables.sql_text(ROWS), 5),
        (render_tables.files_text([ENTRY]), 4),
        (render_runs.status_text([STATUS]), 6),
        (render_runs.audit_text(Audit({}, (LOST, NOTE))), 5),
        (render_tables.backfill_text(BackfillResult(1, 0, 0, (ENTRY,), (ENTRY,))), 3),
        (render_tables.schema_text([SchemaVersion(1, HOSTILE, HOSTILE, {HOSTILE: "string"})]), 2),
        (render_runs.nightly_text(OUTCOME, [FirstRows("gold.x", 3, ROWS)]), 11),
    ],
)
def test_visible_lines_escapes_control_characters(text: str, lines: int) -> None:
    text_lines = text.split("\n")
    assert len(text_lines) == lines
    assert all(line.isprintable() for line in text_lines)
    assert "x1b]0;title" in text


def test_visible_lines_keeps_printable_text() -> None:
    for text in ("", "ü 日本 \U0001f600 a\\n", "~!@#$%^&*()"):
        assert printable(text) == text
    assert printable(HOSTILE) == ESCAPED


@pytest.mark.parametrize(
    "value", [HOSTILE, [HOSTILE], {HOSTILE: HOSTILE}, "ü \U0001f600", "\U000e0001"]
)
def test_to_json_escapes_control_characters(value: Any) -> None:
    printed = to_json(value)
    assert printed.isprintable()
    assert json.loads(printed) == value


def test_print_result_escapes_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_result(f"one\n{HOSTILE}\r")
    assert capsys.readouterr().out == f"one\n{ESCAPED.replace(chr(92) + 'n', chr(10))}\\r\n"


@pytest.mark.parametrize(
    ("encoding", "escaped"),
    [
        ("utf-8", "Łó \U0001f600"),
        ("latin-1", "\\u0141ó \\ud83d\\ude00"),
        ("ascii", r"\u0141\u00f3 \ud83d\ude00"),
    ],
)
def test_print_result_escapes_for_the_encoding(encoding: str, escaped: str) -> None:
    """Escaped output is still valid JSON."""
    name, buffer = "Łó \U0001f600", io.BytesIO()
    file = io.TextIOWrapper(buffer, encoding=encoding)
    print_message(name, file)
    print_result(to_json([name]), file)
    assert buffer.getvalue().decode(encoding) == f'{escaped}\n["{escaped}"]\n'
    assert json.loads(f'"{escaped}"') == name


def test_print_message_ignores_write_errors() -> None:
    full = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115
    try:
        print_message("at work", full)
        with pytest.raises(UsageError, match="cannot be written: No space left on device"):
            print_result("done", full)
    finally:
        with suppress(OSError):
            full.close()


def test_main_errors_are_one_escaped_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise UsageError(f"there is no {HOSTILE}")

    monkeypatch.setattr(main, "load_with_errors", fail)
    assert main.main(["status"]) == 2
    assert capsys.readouterr().err == f"medallion: there is no {ESCAPED}\n"
    assert main.main(["status", "--debug"]) == 2
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == f"medallion: there is no {ESCAPED}"
    assert any("fail" in line for line in trace)
    assert all(line.isprintable() for line in trace)


def test_only_terminal_prints() -> None:
    """Only `terminal` prints, and two modules of `install` whose output a shell reads."""
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                for_shells = file.parts[-2:] in (("install", "java.py"), ("install", "jars.py"))
                may_print = file.name == "terminal.py" or for_shells
                assert name != "print" or may_print, f"{file} prints"
                is_write = "sys.std" in name and ".write" in name
                assert not is_write or may_print, f"{file} writes"


def test_doubles_have_15_digits_in_tables_alone() -> None:
    value = 0.1 + 0.2  # 0.30000000000000004
    lines = aligned_table(["n"], [[value], [12.0], [1e300], [float("nan")]])[2:]
    assert [line.strip() for line in lines] == ["0.3", "12.0", "1e+300", "NaN"]
    assert list(csv_lines(("n",), [(value,)])) == ["n\r\n", "0.30000000000000004\r\n"]
    assert to_json(json_value(value)) == "0.30000000000000004"
