"""Silver and quarantine held against bronze, row by row: by its key, and where it came from."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from medallion.config.model import Config
from medallion.errors import FAULTS
from medallion.ingest.source import Verification
from medallion.inspect.comparable import Comparable
from medallion.layers.silver import transform
from medallion.layers.silver.keys import with_recorded_time_digits
from medallion.layers.silver.lookup import noted_rules
from medallion.layers.silver.rules import LATE
from medallion.spark import delta_reads
from medallion.spark.errors import SPARK_ERRORS, in_words
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, OFFSET
from medallion.storage.text import counted

_SHOWN = 20
_INVENTED, _LOST = "invented", "lost"
_MORE, _TAKEN = "_more", "_taken"


def compare(spark: SparkSession, config: Config, same: Comparable, found: Verification) -> None:
    """Find rows of silver and quarantine that bronze does not have, or not as often; and rows of
    bronze that are in neither table, and are no duplicates of a row that is.

    Only the keys are compared, and where a row came from.
    """
    name = same.query.source
    try:
        odd = _odd(spark, config, same).limit(_SHOWN).collect()
    except (*FAULTS, *SPARK_ERRORS) as error:  # such as a file, or a table, that is gone
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


def _odd(spark: SparkSession, config: Config, same: Comparable) -> DataFrame:
    """A row a place and fault: where rows came from, what is wrong, and with how many of them."""
    source = with_recorded_time_digits(config, config.sources[same.query.source])
    keys = list(source.keys)
    rows = _side_by_side(spark, config, same).repartition(*keys)  # once for both groupings
    by_row = rows.groupBy(*rows.columns[:-2]).agg(F.sum(_MORE), F.sum(_TAKEN))
    more, taken = F.col(f"sum({_MORE})"), F.sum(f"sum({_TAKEN})") > 0
    columns = [column for column in source.silver_origin if column != OFFSET]
    place = F.array(*(F.col(column).cast("string") for column in columns))
    sides = [
        F.struct(
            F.max(F.when(count > 0, place)).alias("place"),
            F.lit(what).alias("what"),
            F.sum(F.when(count > 0, count)).alias("rows"),
        )
        for what, count in ((_INVENTED, -more), (_LOST, more))
    ]
    # Of the rows of a key that is taken, it does not matter which are left out as duplicates.
    sides[1] = F.when(~(transform.has_identity(keys) & taken), sides[1])
    by_key = by_row.groupBy(*keys).agg(F.array(*sides).alias("_odd"))
    odd = by_key.select(F.explode("_odd").alias("_odd")).where("_odd.rows > 0")
    return odd.groupBy("_odd.place", "_odd.what").agg(F.sum("_odd.rows"))


def _side_by_side(spark: SparkSession, config: Config, same: Comparable) -> DataFrame:
    """The rows of all three tables: their keys, where they came from and when; `_more`, 1 for a row
    of bronze and -1 for others; and `_taken`, 1 for a row that makes its key taken."""
    source = with_recorded_time_digits(config, config.sources[same.query.source])
    bronze, silver, quarantine = (
        delta_reads.rows_at(spark, config.layout.table(name), same.versions[name])
        for name in (*same.query.upstream, *same.query.targets)
    )
    rest = [F.col(column) for column in (*source.silver_origin, INGESTED_AT)]
    made = [*(F.expr(source.silver[key]).alias(key) for key in source.keys), *rest]
    # Rows set aside for these rules had passed the deduplication, or were late: their key is taken.
    rules = [LATE, *noted_rules(config.layout.checkpoint(same.query.name))]
    was_taken = F.arrays_overlap(FAILED_RULES, F.array(*map(F.lit, rules))).cast("int")
    aside = transform.as_wide(quarantine, bronze)
    one, less = F.lit(1), F.lit(-1).alias(_MORE)
    first = bronze.select(*made, one.alias(_MORE), F.lit(0).alias(_TAKEN))
    second = silver.select(*map(F.col, source.keys), *rest, less, one.alias(_TAKEN))
    third = aside.select(*made, less, was_taken.alias(_TAKEN))
    return first.unionByName(second).unionByName(third)
