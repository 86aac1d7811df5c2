"""A night with nothing to do, known before a JVM starts: half a second instead of many.

Nothing here may import PySpark.
"""

from __future__ import annotations

from medallion.config.model import Config
from medallion.inspection.balance import balances
from medallion.lakehouse import lock
from medallion.lakehouse.layout import LAYERS
from medallion.ops import due
from medallion.ops.runs import Runs
from medallion.pipeline.report import Report
from medallion.sources.base import Say
from medallion.sources.formats import KINDS


def idle(config: Config, command: str, say: Say) -> Report | None:
    """Look for what is new, and put away what is accounted for; the report if that is all.

    None where Spark has to be started, which then finds the same and more; also where something
    is wrong, for the run that follows tells what.

    Raises:
        UsageError: another process writes one of the layers.
    """
    if config.layout.refresh_plan.is_file():
        return None
    with lock.hold(config.layout, LAYERS, command):
        try:
            runs = Runs(config.layout)
            if _has_work(config, runs, say):
                return None
            report = Report(balances=balances(config, runs))
        except Exception:  # whatever is wrong, the run that follows meets it, and tells
            return None
    return report if report.is_good else None


def _has_work(config: Config, runs: Runs, say: Say) -> bool:
    settings = due.settings_of(config)
    layout = config.layout
    upstream = {f"silver.{name}": layout.table(f"bronze.{name}") for name in config.sources}
    upstream |= {f"gold.{t.name}": layout.table(f"silver.{t.source}") for t in config.gold.values()}
    bronze = {f"bronze.{name}": source for name, source in config.sources.items()}
    if any(due.is_open(config, runs, query, settings) for query in (*bronze, *upstream)):
        return True  # before anything is looked for: what was cut off is settled first
    for query, source in bronze.items():
        handed = KINDS[source.format].look(config, source, runs.last_batch(query), say)
        upstream[query] = handed
    return any(
        due.has_input(config, query, table) or due.is_to_be_judged(config, runs, query)
        for query, table in upstream.items()
    )
