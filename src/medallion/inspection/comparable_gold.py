"""Which tables of gold can be counted again, by the versions of silver that they read; no JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from medallion.config.model import Config, GoldTable
from medallion.errors import ConfigError, MedallionError
from medallion.lakehouse import tables
from medallion.layers.gold.flow import TOO_LATE, definition_of, refuse_another_definition
from medallion.ops import due
from medallion.ops.runs import Runs
from medallion.sources.base import Recount
from medallion.spark import checkpoints


@dataclass(frozen=True)
class Same:
    """Versions of a table of gold and of the silver tables of its sources that belong together.

    `watermark` is that of its last batch, in milliseconds since 1970.
    """

    table: GoldTable
    gold: int
    silver: Mapping[str, int]
    watermark: int | None


def comparable(config: Config) -> tuple[list[Same], Recount]:
    """The tables that have read all of silver, and a note on each of the others; no JVM."""
    found, read = Recount(), []
    runs = Runs(config.layout)
    for table in config.gold.values():
        name = f"gold.{table.name}"
        try:
            if not tables.exists(config.layout.table(name)):
                if checkpoints.last_committed(config.layout.checkpoint(name)) >= 0:
                    gone = "its table is gone: medallion run gold says more"
                    found.findings.append(f"{name}: {gone}.")
            elif runs.late_rows(name):
                late = f"rows came too late for it: {TOO_LATE}"
                found.notes.append(f"{name}: not compared, for {late}.")
            elif why := _why_another(config, table):
                found.notes.append(
                    f"{name}: not compared, for its entry is another one by now: {why}"
                )
            elif same := _same_rows(config, table):
                read.append(same)
            elif runs.has_failed(name):
                failed = (
                    f"it has failed ({runs.standing.last[name].error}), and not read all of silver"
                )
                found.findings.append(f"{name}: not compared, for {failed}.")
            else:
                found.notes.append(f"{name}: not compared, for it has not read all of silver yet.")
        except MedallionError as error:  # of one table, which hides nothing of the others'
            found.findings.append(str(error))
    return read, found


def _why_another(config: Config, table: GoldTable) -> str | None:
    """What the table was made by, and how to rebuild it, where the configuration has another
    definition by now; None where it has not."""
    then = checkpoints.noted(config.layout.checkpoint(f"gold.{table.name}"), "definition")
    try:
        refuse_another_definition(config, table, then or definition_of(table))
    except ConfigError as error:
        return str(error)
    return None


def _same_rows(config: Config, table: GoldTable) -> Same | None:
    """Versions to compare, beside a stream that is on as well: in this order of looking, gold has
    no rows of silver's beyond those that its checkpoint had read before and after."""
    checkpoint = config.layout.checkpoint(f"gold.{table.name}")
    before = checkpoints.last_committed(checkpoint)
    gold = tables.version(config.layout.table(f"gold.{table.name}"))
    versions = {}
    for source in table.sources:
        silver = config.layout.table(f"silver.{source}")
        if (version := due.version_read(checkpoint, before, silver)) is None:
            return None
        versions[source] = version
    if checkpoints.last_committed(checkpoint) != before:
        return None
    return Same(table, gold, versions, checkpoints.watermark(checkpoint, before))
