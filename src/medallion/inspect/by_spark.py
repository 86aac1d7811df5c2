"""What a deep audit has Spark look at: silver held against bronze, and gold against silver."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.ingest.source import Verification
from medallion.inspect import comparable, recount_gold, recount_silver
from medallion.spark import signals
from medallion.spark.session import session_of_command
from medallion.storage.text import Say


def recount(config: Config, unjudged: Collection[str], say: Say) -> Verification:
    """Compare each table that has read all there is; Spark is started for that, and said to be.

    Args:
        unjudged: the sources that are being written; with any, gold is not compared.
    """
    silver, found = comparable.silver(config, unjudged)
    gold, of_gold = ([], Verification()) if unjudged else comparable.gold(config)
    found.findings += of_gold.findings
    found.notes += of_gold.notes
    if unjudged:
        found.notes.append(
            f"gold: not compared, for {', '.join(sorted(unjudged))} is being written."
        )
    if silver or gold:
        with _session(config, say) as spark:
            for table in silver:
                signals.pass_on()
                recount_silver.compare(spark, config, table, found)
            for same in gold:
                signals.pass_on()
                recount_gold.compare(spark, config, same, found)
    return found


@contextmanager
def _session(config: Config, say: Say) -> Iterator[SparkSession]:
    """The session that is on already, or one of its own."""
    if there := SparkSession.getActiveSession():
        yield there
        return
    say("starting Spark, to hold silver against bronze and to make gold anew")
    with session_of_command(config, "medallion audit") as spark:
        yield spark
