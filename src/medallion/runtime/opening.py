"""The pipeline of a command: locks, Spark's session, and interrupted commands completed first."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.runtime import planner, resume
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.rename import carry_out_renames
from medallion.spark.session import session_of_command
from medallion.spark.settings import Workload
from medallion.spark.watch import never_silent
from medallion.state import journal
from medallion.state.runs import TABLE as RUNS
from medallion.storage import delta_tables
from medallion.storage.text import Reporter


@contextmanager
def open_pipeline(
    config: Config,
    command: str,
    layers: Sequence[str],
    report: Reporter,
    debug: bool = False,
    work: Workload | None = None,
    plan: planner.Plan | None = None,
) -> Iterator[Pipeline]:
    """Lock layers, start Spark, and complete interrupted commands.

    Args:
        command: the command, for the lock file and the records.
        layers: the layers to write.
        debug: whether errors are reported with their stack traces.
        work: how much there is to process, for the settings of Java and Spark; by default what the
            plan has, or a rebuild of all tables would be.
        plan: the plan of the run, whose locks are held.

    Yields:
        The pipeline.

    Raises:
        UsageError: another process writes one of the layers.
        ConfigError: Spark's settings cannot be read.
        KeyboardInterrupt: Ctrl-C or SIGTERM, after all queries were stopped.
    """
    with nullcontext() if plan else journal.lock_layers(config, layers, command, report):
        # Reported because an unmounted disk looks like a new lakehouse.
        has_run = delta_tables.table_exists(config.layout.table(RUNS))
        new = "" if has_run else " (a new lakehouse)"
        report(f"medallion {command} on {config.layout.root}{new}")
        if plan is None:
            carry_out_renames(config, report)
        started, sessions = time.monotonic(), list[SparkSession]()
        is_stream = work is Workload.ENDLESS  # it is mostly silent
        talking = nullcontext(report) if is_stream else never_silent(report, sessions)
        work = work or planner.estimate_workload(config, plan)
        session = session_of_command(config, f"medallion {command}", debug, work)
        with talking as report, session as spark:
            sessions.append(spark)
            report(f"session   {time.monotonic() - started:5.1f} s  (Spark {spark.version})")
            planned = plan.reusable if plan else {}
            pipeline = Pipeline(spark, config, command, report, planned=planned)
            resume.resume_commands(pipeline, layers)
            yield pipeline
