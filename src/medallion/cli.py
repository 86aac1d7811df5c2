"""The commands: arguments in, exit status out. The work is in the modules that they name.

Imports of Spark, Delta and Great Expectations wait until a command needs them, so that the others
start at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from medallion import __version__
from medallion.config import Config, load
from medallion.errors import MedallionError

Command = Callable[[Config, argparse.Namespace], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit status: 0 done, 1 the data failed a check, 2 wrong use.

    Anything unforeseen is 70, one line unless `--debug` asks for the stack trace.
    """
    options = _parser().parse_args(arguments)
    command: Command = options.command
    try:
        return command(load(), options)
    except MedallionError as error:
        if options.debug:
            raise
        print(f"medallion: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:  # head has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("medallion: interrupted; the next run goes on from here.", file=sys.stderr)
        return 130
    except Exception as error:
        if options.debug:
            raise
        line = next((line for line in str(error).splitlines() if line.strip()), "")
        print(
            f"medallion crashed: {type(error).__name__}: {line}; --debug shows where.",
            file=sys.stderr,
        )
        return 70


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="medallion",
        description="A small medallion lakehouse: JSON files in, three streaming layers, SQL out.",
        epilog="Everything is written under MEDALLION_HOME; settings are read from MEDALLION_CONF.",
    )
    parser.add_argument("--version", action="version", version=f"medallion {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def add(
        name: str, command: Command, text: str, reports: bool = True
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        sub.add_argument("--debug", action="store_true", help="show stack traces of errors")
        if reports:
            sub.add_argument("--json", action="store_true", help="print one JSON document only")
        return sub

    _add_land(add("land", _land, "land the next batches of the data factory"))
    run = add("run", _run, "run one layer on all that is available", reports=False)
    run.add_argument("layer", choices=("bronze", "silver", "gold"))
    run.add_argument(
        "--trigger",
        default="available-now",
        help="available-now (default), or an interval such as '4 seconds' to stay on",
    )
    nightly = add("nightly", _nightly, "run all layers in one session, with gates and balance")
    nightly.add_argument(
        "--accept",
        metavar="EXPECTATION",
        action="append",
        default=[],
        help="let the rows pass that this expectation holds back (may be repeated)",
    )
    stream = add("stream", _stream, "keep all layers on, until SIGTERM or Ctrl-C", reports=False)
    stream.add_argument("--trigger", default="4 seconds", help="the interval (default: 4 seconds)")
    sql = add("sql", _sql, "ask the tables in SQL, read-only, as layer.table")
    sql.add_argument("statement", help='such as "SELECT * FROM gold.device_counts"')
    sql.add_argument("--csv", action="store_true", help="print CSV with a header")
    audit = add("audit", _audit, "balance the rows of every source")
    audit.add_argument(
        "--deep", action="store_true", help="count every file and table again, by another engine"
    )
    add("status", _status, "how each query stands, and what waits for it")
    files = add("files", _files, "the ledger: every file that ever landed, and what became of it")
    files.add_argument("pattern", nargs="?", default="*", help="paths to show, such as '*x.json'")
    files.add_argument("--source", help="of this source only")
    files.add_argument("--state", help="in this state only: pending, ingested, rejected, ...")
    schema = add("schema", _schema, "the versions of a source's schema, and their differences")
    schema.add_argument("source")
    return parser


def _add_land(land: argparse.ArgumentParser) -> None:
    land.add_argument("--source", help="land for this source only (default: all)")
    land.add_argument("--batches", type=int, default=1, help="how many batches (default: 1)")
    land.add_argument("--files", type=int, default=2, help="files a batch (default: 2)")
    land.add_argument("--rows", type=int, default=1000, help="rows a batch (default: 1000)")
    land.add_argument("--seed", type=int, default=1, help="the same seed, the same files")
    land.add_argument("--dirty", action="store_true", help="mix in defects, and count them")
    land.add_argument(
        "--sample", action="store_true", help="land the sample files, once, instead of new ones"
    )


def _land(config: Config, options: argparse.Namespace) -> int:
    if options.sample:
        return _land_sample(config, options)
    from medallion.factory import DataFactory, render_reports, reports_as_json

    landing = config.layout.root / "landing"
    factory = DataFactory(landing, seed=options.seed, dirty=options.dirty)
    reports = factory.land(options.batches, options.files, options.rows, options.source)
    print(json.dumps(reports_as_json(reports)) if options.json else render_reports(reports))
    return 0


def _land_sample(config: Config, options: argparse.Namespace) -> int:
    from medallion import sample

    files = sample.land(config)
    if options.json:
        print(json.dumps({name: {"files": count} for name, count in files.items()}))
    elif files:
        landed = ", ".join(f"{count} files of {name}" for name, count in files.items())
        print(f"landed the sample under {config.layout.root}: {landed}")
    else:
        print(f"the landing zone of {config.layout.root} has been filled before: no sample landed")
    return 0


def _run(config: Config, options: argparse.Namespace) -> int:
    from medallion import always_on, streams

    streams.trigger(options.trigger)  # before Spark starts
    with _pipeline(config, options, f"run {options.layer}", [options.layer]) as pipeline:
        if options.trigger == streams.AVAILABLE_NOW:
            pipeline.run(options.layer)
        else:
            always_on.serve(pipeline, [options.layer], options.trigger)
    return 0


def _stream(config: Config, options: argparse.Namespace) -> int:
    from medallion import always_on, pipeline, streams
    from medallion.errors import UsageError

    streams.trigger(options.trigger)
    if options.trigger == streams.AVAILABLE_NOW:
        raise UsageError("medallion stream stays on: give an interval, or run medallion nightly.")
    with _pipeline(config, options, "stream", pipeline.LAYERS) as work:
        always_on.serve(work, pipeline.LAYERS, options.trigger)
    return 0


def _nightly(config: Config, options: argparse.Namespace) -> int:
    from medallion import nightly, pipeline
    from medallion.quality import gates

    started = time.monotonic()
    gates.preload()
    quiet = bool(options.json)
    with _pipeline(config, options, "nightly", pipeline.LAYERS, quiet=quiet) as work:
        report = nightly.Nightly(work, options.accept).run()
    report.seconds["all"] = time.monotonic() - started
    if quiet:
        print(json.dumps(nightly.as_json(report)))
    else:
        print(nightly.as_text(report, config))
    for line in nightly.failures(report):
        print(f"medallion: {line}", file=sys.stderr)
    return 0 if report.is_good else 1


def _sql(config: Config, options: argparse.Namespace) -> int:
    from medallion import analyst

    started = time.monotonic()
    root = str(config.layout.root)
    if options.csv:
        columns, rows = analyst.stream(root, options.statement)
        sys.stdout.writelines(analyst.csv_lines(columns, rows))
        return 0
    result = analyst.query(root, options.statement)
    if options.json:
        print(analyst.as_json(result))
    else:
        rows_text = "1 row" if len(result.rows) == 1 else f"{len(result.rows):,} rows"
        print(analyst.as_table(result))
        print(f"({rows_text}, {time.monotonic() - started:.2f} s)")
    return 0


def _audit(config: Config, options: argparse.Namespace) -> int:
    from medallion.audit import audit

    found = audit(config, options.deep)
    print(json.dumps(found.as_json()) if options.json else found.as_text())
    return 0 if found.is_balanced else 1


def _status(config: Config, options: argparse.Namespace) -> int:
    from medallion import status

    found = status.status(config)
    print(json.dumps(status.as_json(found)) if options.json else status.as_text(found))
    return 0


def _files(config: Config, options: argparse.Namespace) -> int:
    from medallion import listing

    found = listing.files(config, options.pattern, options.source, options.state)
    print(listing.files_as_json(found) if options.json else listing.files_as_text(found))
    return 0


def _schema(config: Config, options: argparse.Namespace) -> int:
    from medallion import listing

    found = listing.schema(config, options.source)
    print(listing.schema_as_json(found) if options.json else listing.schema_as_text(found))
    return 0


def _pipeline(
    config: Config,
    options: argparse.Namespace,
    command: str,
    layers: Sequence[str],
    quiet: bool = False,
) -> Any:
    """The layers' locks and a Spark session around a `Pipeline`, as a context manager."""
    from medallion.opening import open_pipeline

    def say(text: str) -> None:
        print(text, file=sys.stderr if quiet else sys.stdout, flush=True)

    return open_pipeline(config, command, layers, say, options.debug)
