"""What reaches a terminal: no value and no name of a file can make it do anything."""

from __future__ import annotations

import ast
import io
import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from medallion.cli import main, render_runs, render_tables
from medallion.cli.terminal import print_message, print_result, to_json
from medallion.errors import UsageError
from medallion.ingest.schema.registry import SchemaVersion
from medallion.inspect.audit import Audit
from medallion.inspect.catalog import FirstRows
from medallion.inspect.status import QueryStatus
from medallion.quality.suites import Failure, Verdict
from medallion.runtime.backfill import BackfillResult
from medallion.runtime.outcome import GateResult, Outcome
from medallion.sql.result import Result
from medallion.state.ledger import Entry
from medallion.storage.text import printable

SOURCES = Path(__file__).parents[2] / "src/medallion"
# A title, a colour in both spellings, text from right to left, half a letter, and a line of its own
EVIL = "\x1b]0;title\x07\x9b31m\u202e\udcff\nbalanced"
SEEN = "\\x1b]0;title\\x07\\x9b31m\\u202e\\udcff\\nbalanced"

ENTRY = Entry("event", EVIL, 1, 5, 0, 0, EVIL, EVIL, moved_to=EVIL)
STATUS = QueryStatus("bronze.event", EVIL, 1, EVIL, 1, 1, 1, EVIL, EVIL)
FAILURE = Failure("silver.event", EVIL, "warn", 1, 1, (EVIL,), EVIL)
OUTCOME = Outcome({"all": 1.0}, [GateResult(Verdict("silver.event", 1, (FAILURE,)), 1, (), 1.0)])
ROWS = Result((EVIL,), [(EVIL,), ([EVIL],), ({EVIL: EVIL},)])


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (render_tables.sql_text(ROWS), 5),
        (render_tables.files_text([ENTRY]), 4),
        (render_runs.status_text([STATUS]), 6),
        (render_runs.audit_text(Audit({}, (EVIL,), (EVIL,))), 5),
        (render_tables.backfill_text(BackfillResult(1, 0, 0, (ENTRY,), (ENTRY,))), 3),
        (render_tables.schema_text([SchemaVersion(1, EVIL, EVIL, {EVIL: "string"})]), 2),
        (render_runs.nightly_text(OUTCOME, [FirstRows("gold.x", 3, ROWS)]), 13),
    ],
)
def test_visible_lines_escapes_control_characters(text: str, lines: int) -> None:
    found = text.split("\n")
    assert len(found) == lines
    assert all(line.isprintable() for line in found)
    assert "x1b]0;title" in text


def test_visible_lines_keeps_printable_text() -> None:
    for text in ("", "ü 日本 \U0001f600 a\\n", "~!@#$%^&*()"):
        assert printable(text) == text
    assert printable(EVIL) == SEEN


@pytest.mark.parametrize("value", [EVIL, [EVIL], {EVIL: EVIL}, "ü \U0001f600", "\U000e0001"])
def test_to_json_escapes_control_characters(value: Any) -> None:
    printed = to_json(value)
    assert printed.isprintable()
    assert json.loads(printed) == value


def test_print_result_escapes_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_result(f"one\n{EVIL}\r")
    assert capsys.readouterr().out == f"one\n{SEEN.replace(chr(92) + 'n', chr(10))}\\r\n"


@pytest.mark.parametrize(
    ("encoding", "seen"),
    [
        ("utf-8", "Łó \U0001f600"),
        ("latin-1", "\\u0141ó \\ud83d\\ude00"),
        ("ascii", r"\u0141\u00f3 \ud83d\ude00"),
    ],
)
def test_print_result_escapes_for_the_encoding(encoding: str, seen: str) -> None:
    """And is JSON still, where it was."""
    name, written = "Łó \U0001f600", io.BytesIO()
    file = io.TextIOWrapper(written, encoding=encoding)
    print_message(name, file)
    print_result(to_json([name]), file)
    assert written.getvalue().decode(encoding) == f'{seen}\n["{seen}"]\n'
    assert json.loads(f'"{seen}"') == name


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
    def wrong(_: object) -> None:
        raise UsageError(f"there is no {EVIL}")

    monkeypatch.setattr(main, "load_with_errors", wrong)
    assert main.main(["status"]) == 2
    assert capsys.readouterr().err == f"medallion: there is no {SEEN}\n"
    assert main.main(["status", "--debug"]) == 2
    *trace, last = capsys.readouterr().err.splitlines()
    assert last == f"medallion: there is no {SEEN}"
    assert any("wrong" in line for line in trace)
    assert all(line.isprintable() for line in trace)


def test_only_terminal_prints() -> None:
    """Nobody but `terminal` prints."""
    for file in SOURCES.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                is_door = file.name == "terminal.py" or file.parts[-2:] == ("install", "java.py")
                assert called != "print" or is_door, f"{file} prints"
                is_write = "sys.std" in called and ".write" in called
                assert not is_write or is_door, f"{file} writes"


def test_status_text_of_every_value() -> None:
    texts = [f.name for f in fields(QueryStatus) if "str" in str(f.type) and f.name != "query"]
    assert all(getattr(STATUS, name) == EVIL for name in texts)
