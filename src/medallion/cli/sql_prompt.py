"""The prompt of `medallion sql`: history, completion, several lines, and `\\d`."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import PostgresLexer

from medallion.cli.sql import print_rows
from medallion.cli.terminal import print_error, print_result
from medallion.errors import MedallionError
from medallion.sql import guard
from medallion.sql.engine import Database

_HELP = r"""SELECT ...;      run a statement; it ends with a semicolon
\d               list the tables and views
\d TABLE         list the columns of a table
exit, quit, \q   leave, as Ctrl-D does
Tab completes names; the up arrow and Ctrl-R bring back statements."""
_KEYWORDS = """
    select from where group by order having limit join left inner on using as and or not in is
    null between like ilike case when then else end distinct union all with count sum avg min
    max date_trunc cast interval desc asc over partition explain describe show
"""
_WORD = re.compile(r"[\w.]+$")


def run_prompt(database: Database) -> None:
    """Read and run statements until `\\q` or Ctrl-D."""
    session: PromptSession[str] = PromptSession(
        message="medallion> ",
        prompt_continuation=lambda width, *_: f"{'->':>{width - 1}} ",
        history=_history(),
        search_ignore_case=True,
        completer=NameCompleter(database),
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        multiline=True,
        key_bindings=_key_bindings(),
    )
    print_result(f"lakehouse {database.root}; \\? for help")
    while True:
        try:
            text = session.prompt().strip()
        except KeyboardInterrupt:  # discards what was typed
            continue
        except EOFError:
            return
        if text.lower().rstrip(";") in ("exit", "quit", r"\q"):
            return
        if text:
            run_line(database, text)


def run_line(database: Database, text: str) -> None:
    """Run a statement or a command such as `\\d`, and print the result or the error."""
    command, _, argument = text.rstrip("; ").partition(" ")
    started = time.monotonic()
    try:
        if command.lower() in ("help", r"\?"):
            print_result(_HELP)
        elif command == r"\d":
            statement = f"DESCRIBE {argument}" if argument else "SHOW TABLES"
            print_rows(database.query(statement), started)
        elif command.startswith("\\"):
            print_result(f"there is no command {command}\n{_HELP}")
        else:
            for statement in guard.split_statements(text):
                print_rows(database.query(statement), started)
    except MedallionError as error:
        print_error(error)


class NameCompleter(Completer):
    """Completes tables, the columns of tables that the statement names, and keywords.

    The names of tables and views, and of the columns of each, are read once.
    """

    def __init__(self, database: Database) -> None:
        self._database, self.columns = database, cache(self._read_columns)

    @cached_property
    def tables(self) -> list[str]:
        """The names of all tables and views."""
        return [*sorted(self._database.tables), *self._database.views]

    def _read_columns(self, table: str) -> list[str]:
        """Return the columns of a table; none if it cannot be read."""
        with suppress(MedallionError):
            return [str(row[0]) for row in self._database.query(f"DESCRIBE {table}").rows]
        return []

    def get_completions(self, document: Document, _: CompleteEvent) -> Iterator[Completion]:
        """Yield the names that start with the word before the cursor."""
        match = _WORD.search(document.text_before_cursor)
        word = match[0] if match else ""
        for name, kind in self._candidates(document.text):
            if name.lower().startswith(word.lower()) and name != word:
                yield Completion(name, -len(word), display_meta=kind)

    def _candidates(self, text: str) -> Iterable[tuple[str, str]]:
        for table in self.tables:
            if re.search(rf"(?<![\w.]){re.escape(table)}(?!\w)", text):
                yield from ((column, table) for column in self.columns(table))
        yield from ((table, "table") for table in self.tables)
        yield from ((keyword, "") for keyword in _KEYWORDS.split())


def is_complete(text: str) -> bool:
    """Return whether Enter runs a text: a command, or a statement with its semicolon."""
    text = text.strip()
    is_command = text.startswith("\\") or text.lower() in ("exit", "quit", "help")
    return not text or is_command or text.endswith(";")


def _key_bindings() -> KeyBindings:
    bindings = KeyBindings()
    is_text_complete = Condition(lambda: is_complete(get_app().current_buffer.text))

    @bindings.add("enter", filter=is_text_complete)
    def run(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return bindings


def _history() -> History:
    """Return the history of the user, or one for this session if it cannot be written."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    file = Path(state) / "medallion" / "sql_history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(file))
