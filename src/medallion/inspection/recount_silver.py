"""Silver and quarantine held against bronze, row by row: by its key, and where it came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config, SourceConfig
from medallion.errors import MedallionError
from medallion.lakehouse import tables
from medallion.lakehouse.columns import FAILED_RULES, INGESTED_AT, OFFSET
from medallion.lakehouse.text import counted
from medallion.layers.silver import transform
from medallion.layers.silver.enrichment import noted_rules
from medallion.layers.silver.flow import definition_of
from medallion.layers.silver.rules import LATE
from medallion.ops import due, refresh_plan
from medallion.ops.runs import Runs
from medallion.sources.base import Recount
from medallion.spark import checkpoints, table_files
from medallion.spark.errors import SPARK_ERRORS, in_words

_SHOWN = 20
_INVENTED, _LOST = "invented", "lost"
_MORE, _TAKEN = "_more", "_taken"


@dataclass(frozen=True)
class Same:
    """Versions of a source's tables that belong together: silver has read all of bronze."""

    source: SourceConfig
    bronze: int
    silver: int
    quarantine: int


def comparable(config: Config, sources: Iterable[SourceConfig]) -> tuple[list[Same], Recount]:
    """The sources whose silver has read all of bronze, and a note on each of the others; no JVM."""
    found, runs = Recount(), Runs(config.layout)
    read: list[Same] = []
    try:
        half_done = refresh_plan.left(config.layout)
    except MedallionError:  # nobody knows, which is a finding of its own, as what is half done is
        return read, found
    for source in sources:
        name = f"silver.{source.name}"
        checkpoint = config.layout.checkpoint(name)
        try:
            if name in half_done or checkpoints.last_committed(checkpoint) < 0:
                continue
            then = checkpoints.noted(checkpoint, "definition")
            if then is not None and not then.items() <= definition_of(source).items():
                why = f"its entry is another by now: medallion refresh {name} makes it by that one"
                found.notes.append(f"{name}: not held against bronze, for {why}.")
            elif same := _same_rows(config, source, runs.last_batch(name)):
                read.append(same)
            else:
                why = "what it has read of that is not all, or not on record yet"
                found.notes.append(f"{name}: not held against bronze, for {why}.")
        except MedallionError as error:  # of one table, which hides nothing of the others'
            found.findings.append(str(error))
    return read, found


def _same_rows(config: Config, source: SourceConfig, recorded: int) -> Same | None:
    """Versions to compare; in this order of looking, silver has no rows of others of bronze's.

    Late rows come into silver as a batch is put on record.
    """
    checkpoint = config.layout.checkpoint(f"silver.{source.name}")
    bronze, *written = _tables(config, source)
    before = checkpoints.last_committed(checkpoint)
    if recorded < before:
        return None
    silver, quarantine = map(tables.version, written)
    read = due.version_read(checkpoint, before, bronze)
    if read is None or checkpoints.last_committed(checkpoint) != before:
        return None
    return Same(source, read, silver, quarantine)


def _tables(config: Config, source: SourceConfig) -> list[Path]:
    layers = ("bronze", "silver", "quarantine")
    return [config.layout.table(f"{layer}.{source.name}") for layer in layers]


def compare(spark: SparkSession, config: Config, same: Same, found: Recount) -> None:
    """Find rows of silver and quarantine that bronze has not, or not as often, and rows of bronze
    that are in neither of them, and no duplicates of one that is.

    Columns that are no keys are not looked at.
    """
    name = same.source.name
    try:
        odd = _odd(spark, config, same).limit(_SHOWN).collect()
    except (MedallionError, *SPARK_ERRORS) as error:  # such as a file, or a table, that is gone
        told = in_words(error)
        found.findings.append(f"silver.{name}: it cannot be held against bronze: {told}")
        return
    for place, what, count in odd:
        where, rows = "/".join(place) or "all of it", counted(count, "row")
        found.findings.append(
            f"{name}: {where} has {rows} in silver or quarantine that bronze has not, or not so "
            "often."
            if what == _INVENTED
            else f"{name}: {where} has {rows} in bronze that came into neither silver nor "
            f"quarantine, and no duplicates: medallion refresh silver.{name} rebuilds both."
        )


def _odd(spark: SparkSession, config: Config, same: Same) -> DataFrame:
    """Where rows came from, which of the two is wrong about them, and how many there are."""
    keys = list(same.source.keys)
    rows = _side_by_side(spark, config, same).repartition(*keys)  # once for both groupings
    by_row = rows.groupBy(*rows.columns[:-2]).agg(F.sum(_MORE), F.sum(_TAKEN))
    more, taken = F.col(f"sum({_MORE})"), F.sum(f"sum({_TAKEN})") > 0
    columns = [column for column in same.source.silver_origin if column != OFFSET]
    place = F.array(*(F.col(column).cast("string") for column in columns))
    sides = [
        F.struct(
            F.max(F.when(count > 0, place)).alias("place"),
            F.lit(what).alias("what"),
            F.sum(F.when(count > 0, count)).alias("rows"),
        )
        for what, count in ((_INVENTED, -more), (_LOST, more))
    ]
    # Which of its rows a key that is taken leaves out is nobody's business: they are duplicates.
    sides[1] = F.when(~(transform.has_identity(keys) & taken), sides[1])
    by_key = by_row.groupBy(*keys).agg(F.array(*sides).alias("_odd"))
    odd = by_key.select(F.explode("_odd").alias("_odd")).where("_odd.rows > 0")
    return odd.groupBy("_odd.place", "_odd.what").agg(F.sum("_odd.rows"))


def _side_by_side(spark: SparkSession, config: Config, same: Same) -> DataFrame:
    """The rows of all three tables, each with what it is known by: its keys, where it came from
    and when; with `_more`, 1 in bronze and -1 elsewhere; and with `_taken`, 1 if its key is."""
    source = same.source
    versions = (same.bronze, same.silver, same.quarantine)
    bronze, silver, quarantine = (
        table_files.rows_at(spark, table, version)
        for table, version in zip(_tables(config, source), versions, strict=True)
    )
    rest = [F.col(column) for column in (*source.silver_origin, INGESTED_AT)]
    made = [*(F.expr(source.silver[key]).alias(key) for key in source.keys), *rest]
    # The first row of a key went by the watermark, and was set aside for what only came after it.
    rules = [LATE, *noted_rules(config.layout.checkpoint(f"silver.{source.name}"))]
    was_taken = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules))).cast("int")
    aside = transform.as_wide(quarantine, bronze)
    one, less = F.lit(1), F.lit(-1).alias(_MORE)
    first = bronze.select(*made, one.alias(_MORE), F.lit(0).alias(_TAKEN))
    second = silver.select(*map(F.col, source.keys), *rest, less, one.alias(_TAKEN))
    third = aside.select(*made, less, was_taken.alias(_TAKEN))
    return first.unionByName(second).unionByName(third)
