"""The command line: arguments in, exit status out."""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from medallion import __version__
from medallion.cli import commands
from medallion.cli.terminal import flush_output, print_error, print_message
from medallion.config.loader import load_with_errors
from medallion.config.model import Config
from medallion.errors import (
    ConfigError,
    InvalidProjectError,
    MedallionError,
    NoSourceError,
    error_message,
)
from medallion.runtime import hooks
from medallion.spark import signals
from medallion.storage import objects
from medallion.storage.layout import LAYERS, PUBLISH
from medallion.storage.root_format import read_format

Command = Callable[[Config, argparse.Namespace], int]
AddArgument = partial[None]
"""Adds an argument to a command; `_add_argument` has the parameters."""
AddCommand = Callable[..., AddArgument]
_CRASHED = 70
_CHECKED = ("run", "stream", "refresh", "apply", "replay", "erase")
# They decide what there is to do, or tell it, of tables that no other process writes meanwhile.
_ASKING_ONCE = ("nightly", "check", "status", "audit")
_OF_AN_EXISTING_ROOT = (
    "apply", "audit", "drop", "erase", "files", "maintain", "refresh", "replay", "report", "schema",
    "status", "thrift",
)  # fmt: skip
_SOURCE = "its name in pipeline.yaml, such as event"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 the data failed a check, 2 wrong use.

    After an unexpected error it is 70; `--debug` prints the stack trace.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.exit(2, parser.format_help())
    command: Command = options.command
    try:
        with signals.sigterm_as_interrupt():
            if options.command in (commands.init, commands.setup):
                return int(options.command(options))
            environ = {**os.environ, "MEDALLION_CONF": options.conf} if options.conf else None
            config, options.config_errors = load_with_errors(environ)
            return _run_command(command, config, options)
    except MedallionError as error:
        _print_trace(options.debug)
        print_error(error)
        return error.exit_status
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        return 0
    except KeyboardInterrupt as interrupt:
        print_message("medallion: interrupted; the next run resumes from here.", sys.stderr)
        return 128 + next(iter(interrupt.args), signal.SIGINT)  # the convention of shells
    except Exception as error:
        _print_trace(options.debug)
        return _report_unexpected(error)
    finally:
        flush_output()


def _run_command(command: Command, config: Config, options: argparse.Namespace) -> int:
    """Run a command, then send its alerts and write the metrics; return its exit status."""

    def run_hooks(status: int, error: Exception | None = None) -> None:
        for line in hooks.after_command(config, command.__name__, status, error):
            print_message(f"medallion: {line}", sys.stderr)

    try:
        with objects.remembering(command.__name__ in _ASKING_ONCE):
            _refuse_errors(command, config, options.config_errors)
            config.layout.root.check_reachable()
            read_format(config.layout)  # refuse that of a newer release
            if command.__name__ in _OF_AN_EXISTING_ROOT:
                config.layout.require_root()
            status = command(config, options)
    except BrokenPipeError:
        raise
    except Exception as error:
        run_hooks(error.exit_status if isinstance(error, MedallionError) else _CRASHED, error)
        raise
    run_hooks(status)
    return status


def _refuse_errors(command: Command, config: Config, errors: Sequence[ConfigError]) -> None:
    """Raise InvalidProjectError if errors of the project stop a command."""
    if command.__name__ in _CHECKED:
        from medallion.runtime.check import refuse_invalid_project  # imports PySpark

        refuse_invalid_project(config, errors)
    elif command is commands.add:
        errors = [error for error in errors if not isinstance(error, NoSourceError)]
    if errors and command not in (commands.check, commands.nightly):  # they find the others, too
        raise InvalidProjectError(*map(str, errors))


def _report_unexpected(error: Exception) -> int:
    """Print an unexpected error in one line; an error of the file system is not a crash."""
    if isinstance(error, OSError) and error.strerror:
        print_message(f"medallion: {error_message(error)}", sys.stderr)
        return 2
    from medallion.spark.errors import one_line  # imports PySpark

    line = f"{type(error).__name__}: {one_line(str(error))}; --debug shows where."
    print_message(f"medallion crashed: {line}", sys.stderr)
    return _CRASHED


def _print_trace(debug: bool) -> None:
    for line in traceback.format_exc().splitlines() if debug else ():
        print_message(line, sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="medallion",
        description="Ingest files or Kafka messages into Delta tables that you query with SQL.",
        epilog="A project is the folder of pipeline.yaml, or of conf/pipeline.yaml: --conf, "
        "MEDALLION_CONF, or else the current one. All its data is below one root, MEDALLION_HOME "
        "(default: data/lakehouse). Exit status: 0 done, 1 the data failed a gate or a "
        "check, 2 wrong use or configuration, 70 a crash.",
    )
    parser.add_argument("--version", action="version", version=f"medallion {__version__}")
    parser.set_defaults(command=None, conf=None, json=False)
    subparsers = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, text: str, has_json: bool = True) -> AddArgument:
        """Add a command, and return the function that adds its arguments."""
        sub = subparsers.add_parser(name, help=text, description=text)
        sub.set_defaults(command=getattr(commands, name))  # each command is a function there
        argument = partial(_add_argument, sub)
        argument("--debug", "show stack traces of errors")
        argument("--conf", "the project (default: MEDALLION_CONF)", type=_given, metavar="DIR")
        if has_json:
            argument("--json", "print one JSON document only")
        return argument

    for add_commands in (_add_projects, _add_runs, _add_questions, _add_repairs):
        add_commands(add)
    return parser


def _add_argument(parser: argparse.ArgumentParser, names: str, text: str, **settings: Any) -> None:
    """Add an argument to a command; an option without settings is a flag.

    Args:
        names: its name, or several with a blank between them.
    """
    is_flag = names.startswith("-") and not settings
    settings = {"action": "store_true"} if is_flag else settings
    parser.add_argument(*names.split(), help=text, **settings)


def _given(text: str) -> str:
    """Refuse an empty path or condition: it would mean the current directory, or all rows."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _add_projects(add: AddCommand) -> None:
    """Add the commands for a project and its test data."""
    init = add("init", "write the files of a new project", has_json=False)
    init("folder", "(default: the current one)", nargs="?", default=".", type=_given, metavar="DIR")
    setup = add("setup", "fetch the jars and Java that Spark needs, once", has_json=False)
    setup("--kafka", "and the jars for Kafka")
    setup("--s3", "and the jars for paths on S3")
    setup("--classes", "and an archive of Java's classes, with which each start takes a fifth less")
    source = add("add", "add a source to pipeline.yaml from a sample of its files")
    source("name", "the new source, such as sales")
    source("paths", "files, folders or globs in quotes", nargs="+", type=_given, metavar="PATH")
    source("--dry-run", "print the entry and write nothing")
    source("--land", "copy the files to landing as well")
    check = add("check", "report everything that is wrong, and what the next nightly run would do")
    check("--sql", "start Spark, and let it analyze the SQL of silver and gold")
    edited = "rebuild the tables whose definition was edited in pipeline.yaml"
    apply = add("apply", edited, has_json=False)
    tables = "some of the tables that medallion check names (default: all)"
    apply("tables", tables, nargs="*", metavar="TABLE")
    apply("--yes", "do not ask")
    drop = add("drop", "delete a table that nothing in pipeline.yaml writes", has_json=False)
    drop("table", "such as gold.daily")
    drop("--yes", "do not ask")
    land = add("land", "generate test data and land it")
    given: dict[str, Any] = {"default": argparse.SUPPRESS}  # the data factory has the defaults
    land("--source", "land for this source only (default: all)", **given)
    land("--batches", "number of batches (default: 1)", type=int, **given)
    land("--files", "files of a source (default: 2)", type=int, **given)
    land("--rows", "rows of a source (default: 1000)", type=int, **given)
    land("--seed", "seed of the random data (default: 1)", type=int, **given)
    land("--dirty", "add counted defects", action="store_true", **given)
    land("--sample", "land the sample files, once, instead of new ones")


def _add_runs(add: AddCommand) -> None:
    """Add the commands that run queries."""
    once = "available-now"
    nightly = add("nightly", "run all layers once, with quality gates and the balance of rows")
    accepted = "let rows pass that this expectation blocks (may be repeated)"
    nightly("--accept", accepted, metavar="EXPECTATION", action="append", default=[])
    nightly("--quiet", "print the verdict only, and nothing if the lakehouse is healthy")
    trigger = "only this; to keep running use `medallion stream`"
    nightly("--trigger", trigger, choices=(once,), default=once)
    run = add("run", "run one layer on all available data", has_json=False)
    layer = "publish: the changes of gold tables with `publish`"
    run("layer", layer, choices=(*LAYERS, PUBLISH))
    trigger = f"{once} (default), or an interval such as '4 seconds' to keep running"
    run("--trigger", trigger, default=once)
    stream = add("stream", "keep all layers running until SIGTERM or Ctrl-C", has_json=False)
    stream("--trigger", "the interval (default: 4 seconds)", default="4 seconds")


def _add_questions(add: AddCommand) -> None:
    """Add the commands that only read."""
    sql = add("sql", "query the tables as layer.table in read-only SQL", has_json=False)
    statement = (
        'in quotes, such as "SELECT * FROM gold.device_counts"; without one, a terminal gets a '
        "prompt, and else standard input is read"
    )
    sql("statement", statement, nargs="*", metavar="STATEMENT")
    sql("-f --file", "run the statements of a file (- for stdin)", type=_given)
    as_of = "read the tables as they were, such as 2026-05-01T12:00 (UTC) or version 12"
    sql("--as-of", as_of, metavar="TIME|VERSION")
    one_of = partial(_add_argument, sql.args[0].add_mutually_exclusive_group())
    for form, what in (("--json", "one JSON document"), ("--csv", "CSV with a header")):
        one_of(form, f"print {what}, or write it to a file", nargs="?", const="-", metavar="FILE")
    one_of("--parquet", "write a Parquet file", type=_given, metavar="FILE")
    thrift = add("thrift", "serve the tables over JDBC and ODBC until Ctrl-C", has_json=False)
    thrift("--host", "the address (default: 127.0.0.1)", default="127.0.0.1")
    thrift("--port", "default: 10000; 0: a free one", type=int, default=10000)
    add("status", "show the state and backlog of each query")
    files = add("files", "list every file that ever landed, and its state")
    files("pattern", "glob of landed or current paths, such as '*x.json'", nargs="?", default="*")
    files("--source", "only files of this source", metavar="SOURCE")
    states = "pending, ingested, unreadable, rejected, replaced, vanished or archived"
    files("--state", f"only files in this state: {states}", metavar="STATE")
    dismissed = "acknowledge rejected, waiting or changed files: runs no longer report them"
    files("--dismiss", dismissed, metavar="PATTERN", type=_given)
    schema = add("schema", "show the versions of a source's schema, and their differences")
    schema("source", _SOURCE)
    audit = add("audit", "balance the rows of every source")
    audit("--deep", "count files and tables again, and compare rows with the layer before")
    report = add("report", "write one HTML page with charts: gold, balance, quality, runs")
    page = "file of the page (default: _report.html in the root)"
    report("--output", page, type=_given, metavar="FILE")
    page = "show the page at http://127.0.0.1:8321, refreshing itself, until Ctrl-C"
    report("--serve", page, nargs="?", type=int, const=8321, metavar="PORT")


def _add_repairs(add: AddCommand) -> None:
    """Add the commands that change what was ingested."""
    backfill = add("backfill", "ingest files from any path once, whatever their age")
    backfill("source", _SOURCE)
    backfill("path", "a file, a folder with subfolders, or a topic", type=_given)
    refresh = add("refresh", "rebuild tables, or publish them again", has_json=False)
    tables = "such as bronze.event, silver.event or publish.counts.kafka"
    refresh("tables", tables, nargs="+", metavar="TABLE")
    erase = add("erase", "erase rows everywhere: tables, state, aggregates and ingested files")
    erase("table", "a silver table; without it, an interrupted erasure is completed", nargs="?")
    erase("--where", 'the rows, such as "customer_id = 42", in Spark SQL', metavar="SQL")
    everywhere = "also from bronze and quarantine; delete files that have one; rebuild all tables"
    erase("--cascade", everywhere)
    erase("--dry-run", "count the rows and change nothing")
    erase("--purge", "remove older versions of the tables at once, and publish gold again")
    replay = add("replay", "move quarantined rows that pass the current rules to silver")
    replay("table", "such as quarantine.event")
    rows = "only rows for which this is true; `_failed_rules` has the names of broken rules"
    replay("--where", rows, metavar="SQL", type=_given)
    replay(
        "--rescued",
        "also rows with rescued values that today's schema has columns for: rewrites bronze, and "
        "rebuilds silver and gold",
    )
    add("maintain", "compact the tables, and remove old files and commits")
