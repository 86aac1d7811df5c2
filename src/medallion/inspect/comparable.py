"""Which tables of silver and gold can be made again and compared, and at which versions; no JVM."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from medallion.config.model import Config
from medallion.config.queries import Query, queries
from medallion.errors import ITEM_ERRORS, ConfigError, error_message
from medallion.ingest.source import Verification
from medallion.layers.gold.definition import gold_definition
from medallion.layers.gold.definition import refuse_changed_gold as refuse_changed_gold
from medallion.layers.gold.flow import LATE_ROWS_ADVICE
from medallion.layers.silver import keys
from medallion.layers.silver.rules import refuse_changed_silver
from medallion.spark import checkpoints
from medallion.state import pending_work, refresh_plan
from medallion.state.runs import Runs
from medallion.storage import delta_tables


@dataclass(frozen=True)
class Comparable:
    """A query that has read all rows of its tables, with the versions at which that holds.

    Attributes:
        query: its name, and those of its tables.
        versions: of each table that it reads or writes, by name.
        watermark: that of its last batch, in milliseconds since 1970.
    """

    query: Query
    versions: Mapping[str, int]
    watermark: int | None


def comparable_silver(
    config: Config, unjudged: Collection[str]
) -> tuple[list[Comparable], Verification]:
    """The queries of silver that have read all of bronze, and a note on each of the others.

    Args:
        unjudged: sources that are passed over.
    """
    runs, found, read = Runs(config.layout), Verification(), list[Comparable]()
    try:
        half_done = refresh_plan.pending_tables(config.layout)
    except ITEM_ERRORS:  # nobody knows, which is a finding of its own, as what is half done is
        return read, found
    for query in queries(config, ["silver"]):
        name, checkpoint = query.name, config.layout.checkpoint(query.name)
        try:
            done = checkpoints.last_committed(checkpoint)
            if query.source in unjudged or name in half_done or done < 0:
                continue
            if another := _why_another(config, query):
                why = another
            # Late rows come into silver as a batch is put on record.
            elif runs.last_batch(name) >= done and (same := _compared(config, query, done)):
                read.append(same)
                continue
            else:
                why = "what it has read of that is not all, or not on record yet."
            found.notes.append(f"{name}: not held against bronze, for {why}")
        except ITEM_ERRORS as fault:
            found.findings.append(error_message(fault))
    return read, found


def comparable_gold(config: Config) -> tuple[list[Comparable], Verification]:
    """The queries of gold that have read all of silver, and a note on each of the others."""
    runs, found, read = Runs(config.layout), Verification(), list[Comparable]()
    for query in queries(config, ["gold"]):
        name = query.name
        try:
            done = checkpoints.last_committed(config.layout.checkpoint(name))
            if not delta_tables.table_exists(config.layout.table(name)):
                if done >= 0:
                    gone = "its table is gone: medallion run gold says more"
                    found.findings.append(f"{name}: {gone}.")
            elif runs.late_rows(name):
                late = f"rows came too late for it: {LATE_ROWS_ADVICE}"
                found.notes.append(f"{name}: not compared, for {late}.")
            elif why := _why_another(config, query):
                found.notes.append(f"{name}: not compared, for {why}")
            elif same := _compared(config, query, done):
                read.append(same)
            elif runs.has_failed(name):
                failed = (
                    f"it has failed ({runs.run_state.last[name].error}), and not read all of silver"
                )
                found.findings.append(f"{name}: not compared, for {failed}.")
            else:
                found.notes.append(f"{name}: not compared, for it has not read all of silver yet.")
        except ITEM_ERRORS as fault:
            found.findings.append(error_message(fault))
    return read, found


def _why_another(config: Config, query: Query) -> str | None:
    """What a table was made by, and how to rebuild it, where the configuration has another
    definition by now; None where it has not."""
    then = checkpoints.noted(config.layout.checkpoint(query.name), "definition")
    layer, _, name = query.name.partition(".")
    try:
        if layer == "silver":
            source = keys.with_recorded_time_digits(config, config.sources[name])
            refuse_changed_silver(config, source, then or {})
        else:
            table = config.gold[name]
            refuse_changed_gold(config, table, then or gold_definition(table))
    except ConfigError as error:
        return f"its entry is another one by now: {error}"
    return None


def _compared(config: Config, query: Query, done: int) -> Comparable | None:
    """The versions of a query's tables after batch `done`; None where it has not read all by that,
    or has ended another one since.

    What it writes is looked at before what it reads. So beside a stream that is on, too, it has no
    rows that are not in those versions of what it reads.
    """
    checkpoint, table = config.layout.checkpoint(query.name), config.layout.table
    versions = {name: delta_tables.table_version(table(name)) for name in query.targets}
    for name in query.upstream:
        version = pending_work.version_read(checkpoint, done, table(name))
        if version is None:
            return None
        versions[name] = version
    if checkpoints.last_committed(checkpoint) != done:
        return None
    return Comparable(query, versions, checkpoints.watermark(checkpoint, done))
