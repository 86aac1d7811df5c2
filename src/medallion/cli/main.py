"""The command line: arguments in, exit status out."""

import argparse
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

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
_CRASHED = 70
_CHECKED = ("run", "stream", "refresh", "apply", "replay", "erase")
# They decide what there is to do, or tell it, of tables that no other process writes meanwhile.
_ASKING_ONCE = ("nightly", "check", "status", "audit")
_JSON = "print one JSON document only"
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
    parser.set_defaults(command=None, conf=None)
    subparsers = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, text: str, has_json: bool = True) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(name, help=text, description=text)
        sub.set_defaults(command=getattr(commands, name))  # each command is a function there
        sub.add_argument("--debug", action="store_true", help="show stack traces of errors")
        help_ = "the project (default: MEDALLION_CONF)"
        sub.add_argument("--conf", type=_given, metavar="DIR", help=help_)
        if has_json:
            sub.add_argument("--json", action="store_true", help=_JSON)
        return sub

    init = add("init", "write the files of a new project", has_json=False)
    init.add_argument("folder", nargs="?", default=".", type=_given, metavar="DIR")
    _add_setup(add("setup", "fetch the jars and Java that Spark needs, once", has_json=False))
    _add_add(add("add", "add a source to pipeline.yaml from a sample of its files"))
    check = add("check", "report everything that is wrong, and what the next nightly run would do")
    _flag(check, "--sql", "start Spark, and let it analyze the SQL of silver and gold")
    edited = "rebuild the tables whose definition was edited in pipeline.yaml"
    _add_apply(add("apply", edited, has_json=False))
    drop = add("drop", "delete a table that nothing in pipeline.yaml writes", has_json=False)
    drop.add_argument("table", help="such as gold.daily")
    _flag(drop, "--yes", "do not ask")
    _add_land(add("land", "generate test data and land it"))
    _add_nightly(add("nightly", "run all layers once, with quality gates and the balance of rows"))
    _add_run(add("run", "run one layer on all available data", has_json=False))
    stream = add("stream", "keep all layers running until SIGTERM or Ctrl-C", has_json=False)
    stream.add_argument("--trigger", default="4 seconds", help="the interval (default: 4 seconds)")
    _add_sql(add("sql", "query the tables as layer.table in read-only SQL", has_json=False))
    thrift = add("thrift", "serve the tables over JDBC and ODBC until Ctrl-C", has_json=False)
    thrift.add_argument("--host", default="127.0.0.1", help="the address (default: 127.0.0.1)")
    thrift.add_argument("--port", type=int, default=10000, help="default: 10000; 0: a free one")
    add("status", "show the state and backlog of each query")
    _add_files(add("files", "list every file that ever landed, and its state"))
    schema = add("schema", "show the versions of a source's schema, and their differences")
    schema.add_argument("source", help=_SOURCE)
    audit = add("audit", "balance the rows of every source")
    _flag(audit, "--deep", "count files and tables again, and compare rows with the layer before")
    _add_report(add("report", "write one HTML page with charts: gold, balance, quality, runs"))
    backfill = add("backfill", "ingest files from any path once, whatever their age")
    backfill.add_argument("source", help=_SOURCE)
    backfill.add_argument("path", type=_given, help="a file, a folder with subfolders, or a topic")
    refresh = add("refresh", "rebuild tables, or publish them again", has_json=False)
    refreshed = "such as bronze.event, silver.event or publish.counts.kafka"
    refresh.add_argument("tables", nargs="+", metavar="TABLE", help=refreshed)
    _add_erase(add("erase", "erase rows everywhere: tables, state, aggregates and ingested files"))
    _add_replay(add("replay", "move quarantined rows that pass the current rules to silver"))
    add("maintain", "compact the tables, and remove old files and commits")
    return parser


def _given(text: str) -> str:
    """Refuse an empty path or condition: it would mean the current directory, or all rows."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _flag(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    parser.add_argument(name, action="store_true", help=text)


def _add_add(add: argparse.ArgumentParser) -> None:
    add.add_argument("name", help="the new source, such as sales")
    paths = "files, folders or globs in quotes"
    add.add_argument("paths", nargs="+", type=_given, metavar="PATH", help=paths)
    _flag(add, "--dry-run", "print the entry and write nothing")
    _flag(add, "--land", "copy the files to landing as well")


def _add_setup(setup: argparse.ArgumentParser) -> None:
    setup.add_argument("--kafka", action="store_true", help="and the jars for Kafka")
    setup.add_argument("--s3", action="store_true", help="and the jars for paths on S3")
    help_ = "and an archive of Java's classes, with which each start takes a fifth less"
    setup.add_argument("--classes", action="store_true", help=help_)


def _add_report(report: argparse.ArgumentParser) -> None:
    file = "file of the page (default: _report.html in the root)"
    report.add_argument("--output", type=_given, metavar="FILE", help=file)
    page = "show the page at http://127.0.0.1:8321, refreshing itself, until Ctrl-C"
    report.add_argument("--serve", nargs="?", type=int, const=8321, metavar="PORT", help=page)


def _add_apply(apply: argparse.ArgumentParser) -> None:
    tables = "some of the tables that medallion check names (default: all)"
    apply.add_argument("tables", nargs="*", metavar="TABLE", help=tables)
    _flag(apply, "--yes", "do not ask")


def _add_replay(replay: argparse.ArgumentParser) -> None:
    replay.add_argument("table", help="such as quarantine.event")
    rows = "only rows for which this is true; `_failed_rules` has the names of broken rules"
    replay.add_argument("--where", metavar="SQL", type=_given, help=rows)
    _flag(
        replay,
        "--rescued",
        "also rows with rescued values that today's schema has columns for: rewrites bronze, and "
        "rebuilds silver and gold",
    )


def _add_run(run: argparse.ArgumentParser) -> None:
    layer = "publish: the changes of gold tables with `publish`"
    run.add_argument("layer", choices=(*LAYERS, PUBLISH), help=layer)
    trigger = "available-now (default), or an interval such as '4 seconds' to keep running"
    run.add_argument("--trigger", default="available-now", help=trigger)


def _add_sql(sql: argparse.ArgumentParser) -> None:
    statement = (
        'in quotes, such as "SELECT * FROM gold.device_counts"; without one, a terminal gets a '
        "prompt, and else standard input is read"
    )
    sql.add_argument("statement", nargs="*", metavar="STATEMENT", help=statement)
    sql.add_argument("-f", "--file", type=_given, help="run the statements of a file (- for stdin)")
    as_of = "read the tables as they were, such as 2026-05-01T12:00 (UTC) or version 12"
    sql.add_argument("--as-of", metavar="TIME|VERSION", help=as_of)
    forms = sql.add_mutually_exclusive_group()
    for form, what in (("--json", "one JSON document"), ("--csv", "CSV with a header")):
        written = f"print {what}, or write it to a file"
        forms.add_argument(form, nargs="?", const="-", metavar="FILE", help=written)
    forms.add_argument("--parquet", type=_given, metavar="FILE", help="write a Parquet file")


def _add_nightly(nightly: argparse.ArgumentParser) -> None:
    rows = "let rows pass that this expectation blocks (may be repeated)"
    nightly.add_argument("--accept", metavar="EXPECTATION", action="append", default=[], help=rows)
    quiet = "print the verdict only, and nothing if the lakehouse is healthy"
    nightly.add_argument("--quiet", action="store_true", help=quiet)
    now, trigger = "available-now", "only this; to keep running use `medallion stream`"
    nightly.add_argument("--trigger", choices=(now,), default=now, help=trigger)


def _add_erase(erase: argparse.ArgumentParser) -> None:
    table = "a silver table; without it, an interrupted erasure is completed"
    erase.add_argument("table", nargs="?", help=table)
    rows = 'the rows, such as "customer_id = 42", in Spark SQL'
    erase.add_argument("--where", metavar="SQL", help=rows)
    everywhere = "also from bronze and quarantine; delete files that have one; rebuild all tables"
    _flag(erase, "--cascade", everywhere)
    _flag(erase, "--dry-run", "count the rows and change nothing")
    _flag(erase, "--purge", "remove older versions of the tables at once, and publish gold again")


def _add_files(files: argparse.ArgumentParser) -> None:
    paths = "glob of landed or current paths, such as '*x.json'"
    files.add_argument("pattern", nargs="?", default="*", help=paths)
    files.add_argument("--source", help="only files of this source")
    states = "pending, ingested, unreadable, rejected, replaced, vanished or archived"
    files.add_argument("--state", help=f"only files in this state: {states}")
    dismissed = "acknowledge rejected, waiting or changed files: runs no longer report them"
    files.add_argument("--dismiss", metavar="PATTERN", type=_given, help=dismissed)


def _add_land(land: argparse.ArgumentParser) -> None:
    land.add_argument("--source", help="land for this source only (default: all)")
    land.add_argument("--batches", type=int, default=1, help="number of batches (default: 1)")
    land.add_argument("--files", type=int, default=2, help="files of a source (default: 2)")
    land.add_argument("--rows", type=int, default=1000, help="rows of a source (default: 1000)")
    land.add_argument("--seed", type=int, default=1, help="seed of the random data (default: 1)")
    _flag(land, "--dirty", "add counted defects")
    _flag(land, "--sample", "land the sample files, once, instead of new ones")
    generator_options = ("source", "batches", "files", "rows", "seed", "dirty")
    land.set_defaults(generator_options={n: land.get_default(n) for n in generator_options})
