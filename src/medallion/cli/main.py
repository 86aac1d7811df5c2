"""The command line: arguments in, exit status out."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from medallion import __version__
from medallion.cli import commands
from medallion.cli.terminal import flush_output, print_message
from medallion.config.loader import load
from medallion.config.model import Config
from medallion.errors import MedallionError, error_message
from medallion.spark import signals
from medallion.storage.paths import LAYERS, PUBLISH

Command = Callable[[Config, argparse.Namespace], int]
_JSON = "print one JSON document only"
_SOURCE = "its name in pipeline.yaml, such as event"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status: 0 done, 1 the data failed a check, 2 wrong use.

    Anything unforeseen is 70, one line unless `--debug` asks for the stack trace.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.exit(2, parser.format_help())
    command: Command = options.command
    try:
        with signals.sigterm_as_interrupt():
            return command(load(), options)
    except MedallionError as error:
        _print_error(f"medallion: {error}", options.debug)
        return error.exit_status
    except BrokenPipeError:  # head has seen enough of what a command that only looks had to show
        return 0
    except KeyboardInterrupt as interrupt:
        _print_error("medallion: interrupted; the next run goes on from here.")
        return 128 + next(iter(interrupt.args), signal.SIGINT)  # as a shell has it
    except Exception as error:
        return _unforeseen(error, options.debug)
    finally:
        flush_output()


def _unforeseen(error: Exception, debug: bool) -> int:
    """What nobody foresaw, in one line; a file or folder that the system refuses is no crash."""
    if isinstance(error, OSError) and error.strerror:
        _print_error(f"medallion: {error_message(error)}", debug)
        return 2
    from medallion.spark.errors import one_line  # here: it brings Spark

    line = f"{type(error).__name__}: {one_line(str(error))}; --debug shows where."
    _print_error(f"medallion crashed: {line}", debug)
    return 70


def _print_error(line: str, debug: bool = False) -> None:
    """Say what is wrong, below where it came from if that is asked for."""
    trace = traceback.format_exc().splitlines() if debug else []
    for each in (*trace, line):
        print_message(each, sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="medallion",
        description="A medallion lakehouse: files or messages in, three streaming layers, SQL out.",
        epilog="Everything is written under one root, data/lakehouse or what MEDALLION_HOME names; "
        "settings are in conf/ or what MEDALLION_CONF names. Exit status: 0 done, 1 the data "
        "failed a gate or a check, 2 wrong use or configuration, 70 a crash.",
    )
    parser.add_argument("--version", action="version", version=f"medallion {__version__}")
    parser.set_defaults(command=None)
    subparsers = parser.add_subparsers(metavar="COMMAND")

    def add(name: str, text: str, has_json: bool = True) -> argparse.ArgumentParser:
        sub = subparsers.add_parser(name, help=text, description=text)
        sub.set_defaults(command=getattr(commands, name))  # each command is a function there
        sub.add_argument("--debug", action="store_true", help="show stack traces of errors")
        if has_json:
            sub.add_argument("--json", action="store_true", help=_JSON)
        return sub

    _add_land(add("land", "make up test data, and land it: the next batches of the data factory"))
    _add_nightly(add("nightly", "run all layers in one session, with gates and balance"))
    run = add("run", "run one layer on all that is available", has_json=False)
    run.add_argument(
        "layer", choices=(*LAYERS, PUBLISH), help="publish: what changed in tables with `publish`"
    )
    run.add_argument(
        "--trigger",
        default="available-now",
        help="available-now (default), or an interval such as '4 seconds' to stay on",
    )
    stream = add("stream", "keep all layers on, until SIGTERM or Ctrl-C", has_json=False)
    stream.add_argument("--trigger", default="4 seconds", help="the interval (default: 4 seconds)")
    _add_sql(add("sql", "ask the tables in SQL, read-only, as layer.table", has_json=False))
    add("status", "how each query stands, and what waits for it")
    _add_files(add("files", "the ledger: every file that ever landed, and what became of it"))
    schema = add("schema", "the versions of a source's schema, and their differences")
    schema.add_argument("source", help=_SOURCE)
    audit = add("audit", "balance the rows of every source")
    audit.add_argument(
        "--deep",
        action="store_true",
        help="count every file and table again, and hold each row against the layer before",
    )
    report = add("report", "one HTML page with charts: gold, flow of rows, quality, runs")
    report.add_argument(
        "--output", type=_path, metavar="FILE", help="where (default: _report.html of the root)"
    )
    backfill = add("backfill", "take in files from anywhere, once, whatever their age")
    backfill.add_argument("source", help=_SOURCE)
    backfill.add_argument("path", type=_path, help="a file, a folder with all below it, or a topic")
    refresh = add("refresh", "rebuild a table, or publish one again", has_json=False)
    refresh.add_argument("table", help="bronze.event, silver.event, publish.counts.kafka or so")
    add("maintain", "compact the tables, and remove what nobody needs any more")
    return parser


def _path(text: str) -> str:
    """A path as it was given; without this, an empty one would be the folder that one is in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty")
    return text


def _add_sql(sql: argparse.ArgumentParser) -> None:
    sql.add_argument("statement", help='in quotes, such as "SELECT * FROM gold.device_counts"')
    sql.add_argument("more", nargs="*", help=argparse.SUPPRESS)  # it was not in quotes
    forms = sql.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help=_JSON)
    forms.add_argument("--csv", action="store_true", help="print CSV with a header")


def _add_nightly(nightly: argparse.ArgumentParser) -> None:
    nightly.add_argument(
        "--accept",
        metavar="EXPECTATION",
        action="append",
        default=[],
        help="let the rows pass that this expectation holds back (may be repeated)",
    )
    nightly.add_argument(
        "--trigger",
        choices=("available-now",),
        default="available-now",
        help="no other: a night ends when all is done; what stays on is medallion stream",
    )


def _add_files(files: argparse.ArgumentParser) -> None:
    files.add_argument(
        "pattern", nargs="?", default="*", help="where they landed or lie now, such as '*x.json'"
    )
    files.add_argument("--source", help="of this source only")
    states = "pending, ingested, unreadable, rejected, replaced, vanished or archived"
    files.add_argument("--state", help=f"in this state only: {states}")
    files.add_argument(
        "--dismiss",
        metavar="PATTERN",
        type=_path,
        help="acknowledge rejected files (and those that wait or changed): runs name them no more",
    )


def _add_land(land: argparse.ArgumentParser) -> None:
    land.add_argument("--source", help="land for this source only (default: all)")
    land.add_argument("--batches", type=int, default=1, help="how many batches (default: 1)")
    land.add_argument("--files", type=int, default=2, help="of a source in a batch (default: 2)")
    land.add_argument(
        "--rows", type=int, default=1000, help="in the files of a source in a batch (default: 1000)"
    )
    land.add_argument("--seed", type=int, default=1, help="the same seed, the same files")
    land.add_argument("--dirty", action="store_true", help="mix in defects, and count them")
    land.add_argument(
        "--sample", action="store_true", help="land the sample files, once, instead of new ones"
    )
    made_up = ("source", "batches", "files", "rows", "seed", "dirty")
    land.set_defaults(made_up={name: land.get_default(name) for name in made_up})
