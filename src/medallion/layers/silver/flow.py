"""Silver: one query a source, from `bronze.<source>` to `silver.<source>` and quarantine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.loader import Config, Source
from medallion.errors import ConfigError
from medallion.lakehouse import specs, tables
from medallion.layers.definition import refuse_another
from medallion.layers.silver import transform as transforms
from medallion.ops.runs import Runs
from medallion.quality.rules import Rule, failed_rules, load_rules
from medallion.spark import checkpoints
from medallion.spark.query import Check, Run

# Rows that break these never reach the watermark: one time in 2099 would make all later rows late.
GUARDS = ("missing_event_time", "future_event_time")


def start(
    spark: SparkSession,
    config: Config,
    source: Source,
    trigger: dict[str, Any],
    say: Callable[[str], None],
) -> Run:
    """Start the query; its observed metrics are `identified.rows` and `others.rows`.

    Raises:
        ConfigError: the table has other keys or columns, or its suite does not guard the watermark.
    """
    name = f"silver.{source.name}"
    bronze = config.layout.table(f"bronze.{source.name}")
    rules = _begun_with(config, name, _rules(config, source), say)
    check = _check(rules)
    rows = check(
        spark.readStream.format("delta")
        # From the log and not from a snapshot, and whole versions a batch: so the rows of a batch
        # can be found again, by their versions, when the watermark has dropped some of them.
        .option("startingVersion", "0")
        .option("maxFilesPerTrigger", 2**31 - 1)
        .load(str(bronze))
    )
    identified, others = transforms.split(rows, source.keys)
    once = transforms.deduplicated(
        identified.observe("identified", F.count(F.lit(1)).alias("rows")),
        source.keys,
        source.event_time,
        source.watermark.text,
    )
    silver, quarantine = config.layout.table(name), config.layout.table(f"quarantine.{source.name}")
    kept = transforms.good(rows, source.silver)
    tables.create(silver, kept.schema.json(), specs.SILVER)
    tables.create(quarantine, transforms.broken(rows).schema.json(), specs.QUARANTINE)
    checkpoint = config.layout.checkpoint(name)
    _refuse_another(spark, config, source, checkpoint, kept)
    checkpoints.note(checkpoint, "rules", rules)

    def write(batch: DataFrame, batch_id: int) -> None:
        # The query's id changes with a new checkpoint: its batches are not taken for old ones.
        once_only = {"txnAppId": checkpoints.query_id(checkpoint), "txnVersion": str(batch_id)}
        batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            is_good = transforms.is_good()
            counts = batch.agg(F.count_if(is_good), F.count_if(~is_good)).collect()[0]
            # An empty commit would be news to gold.
            if counts[0]:
                good = transforms.good(batch, source.silver)
                good.write.format("delta").mode("append").options(**once_only).save(str(silver))
            if counts[1]:
                broken = transforms.broken(batch)
                wider = {**once_only, "mergeSchema": "true"}  # bronze may have new columns
                broken.write.format("delta").mode("append").options(**wider).save(str(quarantine))
        finally:
            batch.unpersist()

    others = others.observe("others", F.count(F.lit(1)).alias("rows"))
    before = checkpoints.last_committed(checkpoint)
    query = (
        once.unionByName(others)
        .writeStream.queryName(name)
        .foreachBatch(write)
        .outputMode("append")
        .option("checkpointLocation", str(checkpoint))
        .trigger(**trigger)
        .start()
    )
    return Run(name, query, before, check=check)


def _refuse_another(
    spark: SparkSession, config: Config, source: Source, checkpoint: Path, good: DataFrame
) -> None:
    """Spark knows a key again by its place among the keys, and Delta a column by its type."""
    name = f"silver.{source.name}"
    now = {"event_time": source.event_time, "keys": list(source.keys)}
    then = checkpoints.made_by(checkpoint, now)
    there = spark.read.format("delta").load(str(config.layout.table(name)))
    columns = [{f"column {c}": kind for c, kind in rows.dtypes} for rows in (there, good)]
    refuse_another(config, name, then | columns[0], now | columns[1])


def _rules(config: Config, source: Source) -> dict[str, Any]:
    """What decides between silver and quarantine: the columns' SQL, and both tables' suites.

    Raises:
        ConfigError: the suite of the silver table does not guard the watermark.
    """
    in_bronze = load_rules(config.conf_dir, f"bronze.{source.name}")
    in_silver = load_rules(config.conf_dir, f"silver.{source.name}")
    missing = [guard for guard in GUARDS if guard not in {rule.name for rule in in_silver}]
    if missing:
        raise ConfigError(
            f"{config.expectations}: the suite of silver.{source.name} has no quarantine "
            f"expectation named {' and '.join(missing)}; without it one wrong time makes every "
            "later row late."
        )
    return {
        "columns": dict(source.silver),
        "bronze": {rule.name: rule.broken for rule in in_bronze},
        "silver": {rule.name: rule.broken for rule in in_silver},
    }


def _begun_with(
    config: Config, name: str, now: dict[str, Any], say: Callable[[str], None]
) -> dict[str, Any]:
    """The rules to go on with: those of a run that was cut off, as long as it is not settled.

    Of such a batch some rows may be in quarantine, and none of its late ones are in silver: under
    other rules a row might go to both of them, or to neither.
    """
    checkpoint = config.layout.checkpoint(name)
    then = checkpoints.noted(checkpoint, "rules")
    if then is None or then == now or then["columns"].keys() != now["columns"].keys():
        return now  # other columns are refused
    if checkpoints.last_begun(checkpoint) <= Runs(config.layout).last_batch(name):
        return now
    say(
        f"  {name} ends what was cut off by the rules of that run; the new ones count from the next"
    )
    return then


def _check(rules: dict[str, Any]) -> Check:
    in_bronze, in_silver = (
        failed_rules([Rule(name, broken) for name, broken in rules[table].items()])
        for table in ("bronze", "silver")
    )
    return partial(
        transforms.checked,
        silver=rules["columns"],
        bronze_rules=in_bronze,
        silver_rules=in_silver,
    )
