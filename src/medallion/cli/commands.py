"""One function for each command, with the command's name; it returns the exit status.

Each function imports what its command needs, so that commands without Spark start at once.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medallion.cli import render_tables
from medallion.cli.terminal import print_message, print_result, to_json
from medallion.config.model import Config
from medallion.config.queries import layers_in_use, query_names
from medallion.errors import UsageError
from medallion.spark import signals
from medallion.storage import clock, locks
from medallion.storage.layout import LAYERS, PUBLISH
from medallion.storage.paths import StoragePath
from medallion.storage.text import Reporter, counted

if TYPE_CHECKING:
    from medallion.cli.render_runs import NightlyLines
    from medallion.runtime.pipeline import Pipeline


def init(options: argparse.Namespace) -> int:
    from medallion.install.project import create_project

    written, kept = create_project(Path(options.folder))
    print_result(f"a new project in {Path(options.folder).absolute()}: {', '.join(written)}")
    if kept:
        print_message(f"kept as they were: {', '.join(kept)}")
    print_message("next: medallion add NAME FILE... --land, then medallion nightly")
    return 0


def setup(options: argparse.Namespace) -> int:
    from medallion.install.classes import create_archive
    from medallion.install.fetch import set_up
    from medallion.install.jars import Extra

    set_up([extra for extra in Extra if getattr(options, extra)], print_message)
    if options.classes:
        create_archive(print_message)
    archive = ", and Java's classes are archived" if options.classes else ""
    print_result(f"Spark's jars and Java are installed{archive}")
    return 0


def land(config: Config, options: argparse.Namespace) -> int:
    from medallion.factory import DataFactory, refuse_unread

    names = ("source", "batches", "files", "rows", "seed", "dirty")
    given = {name: getattr(options, name) for name in names if hasattr(options, name)}
    if options.sample:
        return _land_sample(config, options, given)
    refuse_unread(config.sources, given.get("source"))
    of_data = {name: given.pop(name) for name in ("seed", "dirty") if name in given}
    landed = DataFactory(config.layout.landing(""), **of_data).land(**given)
    if not options.json:
        print_result(f"landed in {config.layout.landing('')}")
    return _present(options, render_tables.landed_json, render_tables.landed_text, landed)


def _land_sample(config: Config, options: argparse.Namespace, given: Iterable[str]) -> int:
    from medallion.factory import sample

    for name in given:
        raise UsageError(f"--sample lands the sample files as they are: leave --{name} out.")
    files = sample.land(config)
    if options.json:
        print_result(to_json({name: {"files": count} for name, count in files.items()}))
    else:
        is_read = bool(sample.read_by(config))
        print_result(render_tables.sample_text(config.layout.root, files, is_read))
    return 0


def add(config: Config, options: argparse.Namespace) -> int:
    from medallion.discover import entry, files

    entry.require_new_name(config, options.name)
    inputs = files.input_files(options.paths)
    source = entry.inspect_files(options.name, inputs)
    entries = entry.new_entries(source, config)
    write = entry.prepare_write(config, source, entries)
    landed: Sequence[StoragePath] = ()
    if options.land and not options.dry_run:
        landed = files.copy_to_landing(inputs, config.layout.landing(source.name))
    if not options.dry_run:
        write()
    if options.json:
        print_result(to_json({**entry.to_json(source, entries), "landed": list(map(str, landed))}))
    else:
        for key, lines in entries.items():
            print_result("\n".join([f"{key}:", *(f"  {line}" for line in lines)]))
        if not options.dry_run:
            copied = f"; copied {counted(len(landed), 'file')} to landing" if landed else ""
            print_message(f"added to {config.pipeline_file}{copied}")
    for choice in source.description.choices:
        print_message(f"choose: {choice}", sys.stderr)
    return 1 if source.description.choices else 0


def run(config: Config, options: argparse.Namespace) -> int:
    from medallion.spark.query import AVAILABLE_NOW
    from medallion.state import pending_work

    command, layers = f"run {options.layer}", [options.layer]
    if options.layer not in layers_in_use(config):
        file = config.pipeline_file
        raise UsageError(f"nothing to publish: no gold table in {file} has `publish`.")
    if options.layer == "gold":
        pending_work.refuse_if_all_blocked(config, query_names(config, layers))
    if options.trigger != AVAILABLE_NOW:
        return _stream_layers(config, options, command, layers)
    with _pipeline(config, options, layers, command) as pipeline:
        pipeline.run(options.layer)
    return _report_files(config, command) if options.layer == "bronze" else 0


def stream(config: Config, options: argparse.Namespace) -> int:
    from medallion.spark.query import AVAILABLE_NOW

    if options.trigger == AVAILABLE_NOW:
        raise UsageError("medallion stream keeps running: give an interval, or use nightly.")
    return _stream_layers(config, options, "stream", layers_in_use(config))


def _stream_layers(
    config: Config, options: argparse.Namespace, command: str, layers: Sequence[str]
) -> int:
    from medallion.ingest.files.listing import unread_file_warnings
    from medallion.runtime.stream import run_stream
    from medallion.spark import query
    from medallion.spark.settings import Workload

    query.trigger_options(options.trigger)  # refuse an invalid one before Spark starts
    more = {"report": print_message, "work": Workload.ENDLESS}  # its lines may come again
    with _pipeline(config, options, layers, command, **more) as pipeline:
        for line in unread_file_warnings(config):
            pipeline.report(line)
        run_stream(pipeline, layers, options.trigger)
    return 0


def _report_files(config: Config, command: str) -> int:
    """Print the files that need attention, and return the exit status."""
    from medallion.inspect import ledger_files
    from medallion.runtime.outcome import record_reported

    files = ledger_files.find_attention(config)
    for problem in ledger_files.file_problems(files):
        if problem.is_reported:
            print_message(problem.line)
        else:
            print_message(f"medallion: {problem.line}", sys.stderr)
    record_reported(config, files, command)
    return 1 if files.has_failures else 0


def nightly(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli import render_runs
    from medallion.ingest.files.listing import unread_file_warnings
    from medallion.inspect import catalog
    from medallion.runtime import idle
    from medallion.runtime.check import has_invalid_suites, refuse_invalid_project
    from medallion.runtime.outcome import Outcome, complete_outcome, record_nightly, record_reported
    from medallion.runtime.planner import NOTHING_IS_NEW, end_if_idle, plan_under_lock

    if options.config_errors or has_invalid_suites(config):
        refuse_invalid_project(config, options.config_errors)
    started, started_at = time.monotonic(), clock.now_micros()
    report: Reporter = (lambda _: None) if options.quiet else _reporter(options.json)
    note, state = idle.find_note(config), idle.digest_state(config)
    if note and not options.accept and idle.is_true(config, note, state):
        seconds = time.monotonic() - started
        idle.record_use(config, note, started_at, seconds)
        _print_nightly(options, report, render_runs.NightlyLines(**note.printed), seconds)
        return 0
    unread = unread_file_warnings(config)
    for line in unread:
        report(line)
    with plan_under_lock(config, "nightly", report) as plan:
        outcome = None if options.accept else end_if_idle(config, plan, report)
        if outcome is None:
            from medallion.runtime.nightly import Nightly, check_accepted  # here: imports Spark

            refuse_invalid_project(config)
            check_accepted(config, options.accept)
            layers = layers_in_use(config)
            with _pipeline(config, options, layers, plan=plan, report=report) as pipeline:
                outcome = Nightly(pipeline, options.accept).run()
            state = "" if outcome.errors else idle.state_if_idle(config)
        held = locks.held_leases(config.layout, layers_in_use(config))
    gold = catalog.first_rows(config)
    for unreadable in filter(None, (each.unreadable for each in gold)):
        outcome.add_error(unreadable)
    outcome.seconds["all"] = time.monotonic() - started
    earlier = note.runs if note else ()
    record_nightly(config, outcome, started_at, earlier)
    complete_outcome(config, outcome, unread)
    lines = render_runs.nightly_lines(outcome, gold)
    _print_nightly(options, report, lines, outcome.seconds["all"])
    for line in render_runs.nightly_failures(outcome):
        print_message(f"medallion: {line}", sys.stderr)
    if outcome.crash:
        raise outcome.crash
    record_reported(config, outcome.seen.files, "nightly")
    idle_run = Outcome(snapshot=outcome.snapshot, seen=outcome.seen, is_idle=True)
    lines = render_runs.nightly_lines(idle_run, gold, (*unread, NOTHING_IS_NEW))
    idle.write_note(config, state, held, outcome, asdict(lines))
    return 0 if outcome.is_good else max(outcome.exit_status, 1)


def _print_nightly(
    options: argparse.Namespace, report: Reporter, lines: NightlyLines, seconds: float
) -> None:
    """Print the result of a nightly run, and its duration in seconds."""
    for line in lines.news:
        report(line)
    if options.json:
        took = {"all": round(seconds, 2)}
        print_result(to_json({**lines.document, "seconds": {**lines.document["seconds"], **took}}))
    elif not options.quiet or lines.has_problems:
        print_result(lines.verdict)
    if lines.pending:
        waiting = counted(lines.pending, "file")
        report(f"{waiting} not ingested yet: medallion files --state pending")
    if not options.json and not options.quiet:
        print_result(f"{lines.text}\nall       {seconds:5.1f} s")


@signals.default_signals()
def sql(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli.sql import run_sql

    return run_sql(config, options)


def thrift(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime.thrift import serve

    with suppress(KeyboardInterrupt):
        serve(config, options.host, options.port, _reporter(options.json), options.debug)
    print_message("stopped")
    return 0


def check(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli import render_runs
    from medallion.runtime.check import run_check

    result = run_check(config, options.config_errors)
    if options.sql and not result.errors:
        from medallion.runtime.check_sql import check_sql

        check_sql(config, result)
    if not options.json:
        print_result(_lakehouse_line(config))
    _present(options, render_runs.check_json, render_runs.check_text, result)
    return result.exit_status


def audit(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli.render_runs import audit_json, audit_text
    from medallion.inspect.audit import run_audit

    result = run_audit(config, options.deep, _reporter(True))
    return _present(options, audit_json, audit_text, result, result.is_balanced)


def report(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli.render_runs import verdict_json
    from medallion.cli.report import serve_report, write_report
    from medallion.inspect.overview import take_overview

    if options.serve is not None:
        if options.json or options.output:
            raise UsageError("--serve shows the page: leave --json and --output out.")
        serve_report(config, options.serve)
        return 0
    overview = take_overview(config)
    page = write_report(overview, options.output or config.layout.report)
    document = verdict_json(overview.seen.verdict) | {"unreadable": overview.unreadable}
    print_result(to_json({"page": page, **document}) if options.json else page)
    for line in overview.unreadable:
        print_message(f"medallion: {line}", sys.stderr)
    return 1 if overview.unreadable else 0


def backfill(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime import backfill

    report = _reporter(options.json)
    result = backfill.run_backfill(config, options.source, options.path, report, options.debug)
    return _present(options, asdict, render_tables.backfill_text, result, result.is_good)


def refresh(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime import refresh
    from medallion.state import pending_work

    layers = refresh.layers_to_lock(config, *options.tables)
    for table in options.tables:
        pending_work.refuse_missing_input(config, table)
    pending_work.refuse_if_all_blocked(config, options.tables)
    with _pipeline(config, options, layers) as pipeline:
        refresh.refresh_tables(pipeline, options.tables)
    return 0


def apply(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli.render_runs import plan_lines
    from medallion.inspect import edits
    from medallion.runtime.refresh import apply_edits
    from medallion.state import journal

    plan = edits.select_edits(edits.find_edits(config), options.tables)
    print_result("\n".join(plan_lines(plan) or ["nothing to apply"]))
    tables = [edit.table for edit in plan if edit.action == edits.EditAction.REBUILD]
    pending = {*tables, *journal.rebuilds(config)}  # also those of an interrupted command
    if not pending:
        return 0
    if not _is_confirmed(options, f"Rebuild {counted(len(pending), 'table')}?"):
        return 1
    with _pipeline(config, options, layers_in_use(config)) as pipeline:
        apply_edits(pipeline, tables)
    return 0


def drop(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspect.edits import leftover_tables
    from medallion.runtime.rename import drop_table

    if options.table not in (known := leftover_tables(config)):
        others = f"these can: {', '.join(known)}" if known else "no table is left over"
        raise UsageError(f"{options.table} cannot be dropped; {others}.")
    if not _is_confirmed(options, f"Delete {options.table} and all its rows?"):
        return 1
    drop_table(config, options.table, _reporter(options.json))
    print_result(f"{options.table} is deleted")
    return 0


def _is_confirmed(options: argparse.Namespace, question: str) -> bool:
    """Return the answer of the user, or of `--yes`.

    Raises:
        UsageError: there is neither.
    """
    if options.yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{question} There is no terminal to answer at: repeat it with --yes.")
    return input(f"{question} [y/N] ").strip().lower() in ("y", "yes")


def erase(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime.erase import Request, run_erase

    request = Request(options.table, options.where, options.cascade, options.purge, options.dry_run)
    result = run_erase(config, request, _reporter(options.json), options.debug)
    return _present(options, render_tables.erasure_json, render_tables.erasure_text, result)


def replay(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime import replay

    name = replay.source_to_replay(config, options.table, options.where)
    if options.rescued and options.where:
        raise UsageError("--rescued validates all rows: leave --where out.")
    # For rescued values, bronze is rewritten.
    layers = layers_in_use(config) if options.rescued else ("silver",)
    with _pipeline(config, options, layers) as pipeline:
        if options.rescued:
            counts = replay.replay_rescued(pipeline, name)
        else:
            counts = replay.replay_rows(pipeline, name, options.where)
    return _present(options, render_tables.replay_json, render_tables.replay_text, counts)


def maintain(config: Config, options: argparse.Namespace) -> int:
    from medallion.runtime import maintenance

    result = maintenance.maintain_unlocked_layers(config, _reporter(options.json))
    return _present(options, asdict, render_tables.maintenance_text, result)


def status(config: Config, options: argparse.Namespace) -> int:
    from medallion.cli import render_runs
    from medallion.inspect import status
    from medallion.inspect.verdict import observe

    statuses = status.query_statuses(config)
    seen = observe(config, statuses)
    if not options.json:
        print_result(f"{render_runs.verdict_text(seen.verdict)}\n{_lakehouse_line(config)}")
    to_document = partial(render_runs.status_json, verdict=seen.verdict)
    is_good = seen.verdict.is_healthy
    return _present(options, to_document, render_runs.status_text, statuses, is_good)


def files(config: Config, options: argparse.Namespace) -> int:
    from medallion.inspect import ledger_files
    from medallion.runtime.outcome import dismiss_files

    if options.dismiss is None:
        entries = ledger_files.find_files(config, options.pattern, options.source, options.state)
    elif options.pattern != "*" or options.state is not None:
        raise UsageError("--dismiss has its own pattern: leave the other pattern and --state out.")
    else:
        entries = dismiss_files(config, options.dismiss, options.source, _reporter(options.json))
    return _present(options, render_tables.files_json, render_tables.files_text, entries)


def schema(config: Config, options: argparse.Namespace) -> int:
    from medallion.ingest.schema import registry

    config.source(options.source)
    versions = registry.read_versions(config.layout.schemas(options.source))
    return _present(options, render_tables.schema_json, render_tables.schema_text, versions)


def _present(
    options: argparse.Namespace,
    to_document: Callable[[Any], Any],
    to_text: Callable[[Any], str],
    result: Any,
    is_good: bool = True,
) -> int:
    """Print a result and return the exit status.

    Args:
        options: the arguments, with `json`.
        to_document: returns the JSON document of the result.
        to_text: returns the lines for a terminal.
        result: the result of the command.
        is_good: True for exit status 0, False for 1.
    """
    print_result(to_json(to_document(result)) if options.json else to_text(result))
    return 0 if is_good else 1


def _pipeline(
    config: Config, options: argparse.Namespace, layers: Sequence[str], name: str = "", **more: Any
) -> AbstractContextManager[Pipeline]:
    """Return what `open_pipeline` yields for a command.

    Args:
        name: the name of the command, if not that of its function.
        more: its other arguments.
    """
    from medallion.runtime.opening import open_pipeline  # here: it imports Spark

    report = more.pop("report", None) or _reporter(options.json)
    command = name or options.command.__name__
    return open_pipeline(config, command, layers, report, options.debug, **more)


def _lakehouse_line(config: Config) -> str:
    """Return the root, and the processes that write there now."""
    holders = (locks.lock_holder(config.layout, layer) for layer in (*LAYERS, PUBLISH))
    working = " and ".join(dict.fromkeys(filter(None, holders)))
    return f"lakehouse {config.layout.root}{f': {working} works on it' if working else ''}"


def _reporter(quiet: bool) -> Reporter:
    """Return a reporter that prints each line once, to standard error if `quiet`."""
    return cache(lambda text: print_message(text, sys.stderr if quiet else sys.stdout))
