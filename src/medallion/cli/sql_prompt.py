"""The prompt of `medallion sql`: history, completion, several lines, and `\\d`."""

import os
import re
import time
from contextlib import suppress
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import Completer, DynamicCompleter, WordCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
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
_WORD = re.compile(r"[\w.]*")  # before the cursor


def run_prompt(database: Database) -> None:
    """Read and run statements until `\\q` or Ctrl-D."""

    def text() -> str:
        """Return what is typed."""
        return get_app().current_buffer.text

    def completer() -> Completer:
        return WordCompleter(known_names(database, text()), ignore_case=True, pattern=_WORD)

    session: PromptSession[str] = PromptSession(
        message="medallion> ",
        prompt_continuation=lambda width, *_: f"{'->':>{width - 1}} ",
        history=_history(),
        search_ignore_case=True,
        completer=DynamicCompleter(completer),
        complete_while_typing=False,
        lexer=PygmentsLexer(PostgresLexer),
        multiline=Condition(lambda: not is_complete(text())),  # Enter runs a complete text
    )
    print_result(f"lakehouse {database.root}; \\? for help")
    while True:
        try:
            line = session.prompt().strip()
        except KeyboardInterrupt:  # discards what was typed
            continue
        except EOFError:
            return
        if line.lower().rstrip(";") in ("exit", "quit", r"\q"):
            return
        if line:
            run_line(database, line)


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


def known_names(database: Database, text: str) -> list[str]:
    """Return the columns of the tables that a statement names, all tables and views, and words."""
    tables, columns = [*sorted(database.tables), *database.views], list[str]()
    for table in tables:
        if re.search(rf"(?<![\w.]){re.escape(table)}(?!\w)", text):
            with suppress(MedallionError):  # a statement reports it
                columns += [row[0] for row in database.query(f"DESCRIBE {table}").rows]
    return [*columns, *tables, *_KEYWORDS.split()]


def is_complete(text: str) -> bool:
    """Return whether Enter runs a text: a command, or a statement with its semicolon."""
    text = text.strip()
    is_command = text.startswith("\\") or text.lower() in ("exit", "quit", "help")
    return not text or is_command or text.endswith(";")


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
