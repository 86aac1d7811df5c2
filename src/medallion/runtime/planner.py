"""What a night has to do, found out before Java starts: with nothing new, it need not start at all.

Nothing here may import PySpark.
"""

from __future__ import annotations

from medallion.config.model import Config
from medallion.config.queries import Query, layers_in_use, queries, query_names
from medallion.ingest.formats import SOURCE_TYPES
from medallion.inspect import balance as accounting
from medallion.runtime.outcome import Outcome
from medallion.spark.session import Workload
from medallion.state import pending_work
from medallion.state.runs import Runs
from medallion.storage import delta_tables, locks
from medallion.storage.text import Reporter


def end_if_idle(config: Config, command: str, say: Reporter) -> Outcome | None:
    """Look for new input; the outcome of the night if there is none.

    None where Spark has to be started; also where something is wrong, for the run that follows
    meets it as well, and tells what.

    Raises:
        UsageError: another process writes one of the layers.
    """
    if config.layout.refresh_plan.is_file():
        return None
    with locks.lock_layers(config.layout, layers_in_use(config), command):
        try:
            runs = Runs(config.layout)
            if _has_work(config, runs):
                return None
            for source in config.sources.values():
                last = runs.last_batch(f"bronze.{source.name}")
                SOURCE_TYPES[source.format].poll(config, source, last, say)
            look = accounting.take_snapshot(config, runs)
            outcome = Outcome(balances=look.balances, errors=look.unreadable)
        except Exception:  # whatever is wrong, the run that follows meets it, and tells
            return None
    if not outcome.is_good:
        return None
    say("nothing is new")
    return outcome


def work_to_do(config: Config) -> Workload:
    """How much waits, which decides how Java and Spark are set."""
    try:
        backlogs = [SOURCE_TYPES[s.format].backlog(config, s) for s in config.sources.values()]
        behind = sum(pending_work.unread_rows(config, query) or 0 for query in queries(config))
        whole = sum(
            delta_tables.row_count(config.layout.table(name))
            for name in query_names(config, ["gold"])
        )
    except Exception:  # whatever is wrong, the run meets it, and tells
        return Workload.MUCH
    behind += sum(backlog.messages for backlog in backlogs)
    return Workload.of(sum(backlog.unpacked for backlog in backlogs), behind + whole)


def _has_work(config: Config, runs: Runs) -> bool:
    settings, asked = pending_work.settings_digest(config), queries(config)
    if any(
        pending_work.has_changed_settings(config, query.name, settings)
        or pending_work.is_unfinished(config, runs, query.name)
        for query in asked
    ):
        return True  # before anything is looked for: what was cut off is settled first
    return any(_has_news(config, query) for query in asked) or any(
        pending_work.needs_validation(config, runs.run_state, query.name) for query in asked
    )


def _has_news(config: Config, query: Query) -> bool:
    """Return whether there is something to read for a query."""
    if query.upstream:
        return any(
            pending_work.has_input(config, query.name, config.layout.table(table))
            for table in query.upstream
        )
    source = config.sources[query.source]
    return SOURCE_TYPES[source.format].has_work(config, source)
