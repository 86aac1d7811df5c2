"""The commands, one function each: options in, exit status out. The work is in other modules.

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
from pathlib import Path
from typing import Any, TextIO

from medallion.config.loader import Config
from medallion.errors import UsageError
from medallion.lakehouse.text import counted


def land(config: Config, options: argparse.Namespace) -> int:
    if options.sample:
        return _land_sample(config, options)
    from medallion.factory import DataFactory, render_reports, reports_as_json

    landing = config.layout.root / "landing"
    factory = DataFactory(landing, seed=options.seed, dirty=options.dirty)
    reports = factory.land(options.batches, options.files, options.rows, options.source)
    _show(json.dumps(reports_as_json(reports)) if options.json else render_reports(reports))
    return 0


def _land_sample(config: Config, options: argparse.Namespace) -> int:
    from medallion.factory import sample

    files = sample.land(config)
    if options.json:
        _show(json.dumps({name: {"files": count} for name, count in files.items()}))
    elif files:
        landed = ", ".join(f"{counted(n, 'file')} of {name}" for name, n in files.items())
        _show(f"landed the sample under {config.layout.root}: {landed}")
    else:
        _show(f"the landing zone of {config.layout.root} has been filled before: no sample landed")
    return 0


def run(config: Config, options: argparse.Namespace) -> int:
    from medallion.pipeline import continuous
    from medallion.spark import query

    query.trigger(options.trigger)  # before Spark starts
    with _pipeline(config, options, f"run {options.layer}", [options.layer]) as pipeline:
        if options.trigger == query.AVAILABLE_NOW:
            pipeline.run(options.layer)
        else:
            continuous.serve(pipeline, [options.layer], options.trigger)
    return 0


def stream(config: Config, options: argparse.Namespace) -> int:
    from medallion.pipeline import continuous, pipeline
    from medallion.spark import query

    query.trigger(options.trigger)
    if options.trigger == query.AVAILABLE_NOW:
        raise UsageError("medallion stream stays on: give an interval, or run medallion nightly.")
    with _pipeline(config, options, "stream", pipeline.LAYERS) as work:
        continuous.serve(work, pipeline.LAYERS, options.trigger)
    return 0


def nightly(config: Config, options: argparse.Namespace) -> int:
    from medallion.pipeline import nightly, pipeline
    from medallion.quality import gates

    started = time.monotonic()
    nightly.check_accepted(config, options.accept)
    gates.preload()
    quiet = bool(options.json)
    with _pipeline(config, options, "nightly", pipeline.LAYERS, quiet=quiet) as work:
        report = nightly.Nightly(work, options.accept).run()
    report.seconds["all"] = time.monotonic() - started
    if quiet:
        _show(json.dumps(nightly.as_json(report)))
    else:
        _show(nightly.as_text(report, config))
    for line in nightly.failures(report):
        print(f"medallion: {line}", file=sys.stderr)
    return 0 if report.is_good else 1


def sql(config: Config, options: argparse.Namespace) -> int:
    from medallion.sql import engine

    started = time.monotonic()
    root = str(config.layout.root)
    if options.csv and options.json:
        raise UsageError("sql gives --csv or --json, not both.")
    if options.csv:
        columns, rows = engine.stream(root, options.statement)
        sys.stdout.writelines(engine.csv_lines(columns, rows))
        return 0
    result = engine.query(root, options.statement)
    if options.json:
        print(engine.as_json(result))
    else:
        print(engine.as_table(result))
        print(f"({counted(len(result.rows), 'row')}, {time.monotonic() - started:.2f} s)")
    return 0


def audit(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspection.audit import audit

    found = audit(_there(config, options), options.deep, _say(True))
    print(json.dumps(found.as_json()) if options.json else found.as_text())
    return 0 if found.is_balanced else 1


def backfill(config: Config, options: argparse.Namespace) -> int:
    from medallion.pipeline import backfill

    say = _say(bool(options.json))
    found = backfill.backfill(config, options.source, Path(options.path), say, options.debug)
    _show(json.dumps(found.as_json()) if options.json else found.as_text())
    return 0 if found.is_good else 1


def refresh(config: Config, options: argparse.Namespace) -> int:
    from medallion.pipeline import refresh

    layers = refresh.layers_of(config, options.table)
    with _pipeline(config, options, "refresh", layers) as pipeline:
        refresh.refresh(pipeline, options.table)
    return 0


def status(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspection import status

    found = status.status(_there(config, options))
    print(json.dumps(status.as_json(found)) if options.json else status.as_text(found))
    return 0


def files(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspection import catalog

    found = catalog.files(_there(config, options), options.pattern, options.source, options.state)
    print(catalog.files_as_json(found) if options.json else catalog.files_as_text(found))
    return 0


def schema(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspection import catalog

    found = catalog.schema(_there(config, options), options.source)
    print(catalog.schema_as_json(found) if options.json else catalog.schema_as_text(found))
    return 0


def _there(config: Config, options: argparse.Namespace) -> Config:
    """For commands that only look: a misspelled root is told, and not shown as an empty one."""
    root = config.layout.root
    if not root.is_dir():
        raise UsageError(f"there is no lakehouse at {root}: no such folder; a first run makes it.")
    if not options.json:
        print(f"lakehouse {root}")
    return config


def _pipeline(
    config: Config,
    options: argparse.Namespace,
    command: str,
    layers: Sequence[str],
    quiet: bool = False,
) -> Any:
    """The layers' locks and a Spark session around a `Pipeline`, as a context manager."""
    from medallion.pipeline.context import open_pipeline

    return open_pipeline(config, command, layers, _say(quiet), options.debug)


def _say(quiet: bool) -> Callable[[str], None]:
    """Progress goes to standard output, unless that is for one JSON document."""
    return lambda text: _show(text, sys.stderr if quiet else sys.stdout)


def _show(text: str, file: TextIO | None = None) -> None:
    """Print; where nobody reads any more (`| head`), the work still goes on to its end."""
    file = file or sys.stdout
    try:
        print(text, file=file, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), file.fileno())
