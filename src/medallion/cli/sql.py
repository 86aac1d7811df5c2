"""`medallion sql`: where the statements come from, and the forms of their results."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from medallion.cli import render_tables
from medallion.cli.terminal import fitted_table, print_result, to_json, write_lines
from medallion.config.model import Config
from medallion.errors import UsageError
from medallion.sql import guard
from medallion.sql.engine import AsOf, Database
from medallion.sql.result import Result, batch_rows, plain_strings
from medallion.storage.files import replacing
from medallion.storage.text import counted, error_reason

if TYPE_CHECKING:
    from arro3.core import RecordBatch, Schema

_MOST_ROWS = 1000  # on a terminal
STANDARD = "-"  # input or output


def run_sql(config: Config, options: argparse.Namespace) -> int:
    """Run the statements of the command line, a file or standard input; or show a prompt."""
    as_of = _parse_as_of(options.as_of)
    database = Database(str(config.layout.root), config.views, as_of)
    form = next((name for name in ("json", "csv", "parquet") if getattr(options, name)), None)
    if form in ("json", "csv") and not options.statement and not options.file:
        # `--csv "SELECT ..."`: the word after it is the statement.
        options.statement = [value] if (value := getattr(options, form)) != STANDARD else []
        setattr(options, form, STANDARD)
    statements = _statements(options)
    if statements is None:
        if form:
            raise UsageError(f'--{form} needs a statement: medallion sql "SELECT ..." --{form}')
        from medallion.cli.sql_prompt import run_prompt

        run_prompt(database)
        return 0
    if form and len(statements) > 1:
        raise UsageError(f"--{form} is for one statement; there are {len(statements)}.")
    for statement in statements:
        _run_statement(database, statement, options)
    return 0


def _statements(options: argparse.Namespace) -> list[str] | None:
    """Return the statements to run; None for a prompt."""
    given = options.statement
    if len(given) > 1:
        raise UsageError('put the statement in quotes: medallion sql "SELECT ..."')
    if given and options.file:
        raise UsageError("give a statement or --file, not both.")
    if given and given != [STANDARD]:
        return guard.split_statements(given[0]) or [""]
    if options.file and options.file != STANDARD:
        try:
            text = Path(options.file).read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--file {options.file}: {error_reason(error)}.") from None
    elif not given and not options.file and sys.stdin is not None and sys.stdin.isatty():
        return None
    else:
        text = sys.stdin.read() if sys.stdin is not None else ""
    return guard.split_statements(text) or [""]  # which is refused as empty


def _run_statement(database: Database, statement: str, options: argparse.Namespace) -> None:
    started = time.monotonic()
    if options.csv:
        schema, batches = database.execute(statement)
        rows = (row for batch in batches for row in batch_rows(batch))
        _write_text(render_tables.csv_lines(tuple(schema.names), rows), "csv", options.csv)
    elif options.parquet:
        rows_written = write_parquet(*database.execute(statement), Path(options.parquet))
        print_result(f"{counted(rows_written, 'row')} written to {options.parquet}")
    elif options.json:
        document = to_json(render_tables.sql_json(database.query(statement)))
        _write_text([f"{document}\n"], "json", options.json)
    else:
        print_rows(database.query(statement), started)


def _write_text(lines: Iterable[str], form: str, file: str) -> None:
    """Write lines to standard output, or to a file that is complete or unchanged.

    Raises:
        UsageError: the file cannot be written.
    """
    if file == STANDARD:
        write_lines(lines)
        return
    try:
        with replacing(Path(file)) as new, new.open("w", encoding="utf-8", newline="") as out:
            out.writelines(lines)
    except OSError as error:
        raise UsageError(f"--{form} {file}: {error_reason(error)}.") from None
    print_result(f"written to {file}")


def print_rows(result: Result, started: float) -> None:
    """Print a result as a table, with its number of rows and the time since `started`."""
    rows, more = result.rows, ""
    if sys.stdout is not None and sys.stdout.isatty() and result.columns != ("plan_type", "plan"):
        print_result("\n".join(fitted_table(result.columns, rows[:_MOST_ROWS])))
        if len(rows) > _MOST_ROWS:
            more = f", the first {_MOST_ROWS:,} shown: --csv prints all"
    else:
        print_result(render_tables.sql_text(result))
    print_result(f"({counted(len(rows), 'row')}, {time.monotonic() - started:.2f} s{more})")


def write_parquet(schema: Schema, batches: Iterator[RecordBatch], file: Path) -> int:
    """Write batches to a Parquet file, which is complete or unchanged; return the rows.

    Raises:
        UsageError: the file cannot be written.
    """
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    plain, rows = plain_strings(arrow.schema(schema).empty_table()).schema, 0
    try:
        with replacing(file) as unfinished, parquet.ParquetWriter(unfinished, plain) as writer:
            for batch in batches:
                writer.write_table(arrow.table(batch).cast(plain))
                rows += batch.num_rows
    except (OSError, arrow.ArrowException) as error:  # also a type that Parquet lacks
        raise UsageError(f"--parquet {file}: {error_reason(error)}.") from None
    return rows


def _parse_as_of(text: str | None) -> AsOf | None:
    """Return a version or a time; a time without a zone is UTC."""
    if text is None:
        return None
    if text.isdecimal():
        return int(text)
    try:
        time_ = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text}: must be a version or a time (2026-05-01).") from None
    return time_ if time_.tzinfo else time_.replace(tzinfo=UTC)
