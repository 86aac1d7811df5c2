"""From bronze's columns to silver's: typed, renamed, checked, and without duplicates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from medallion.quality.rules import Rule, breaks, failed_rules
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT

# The row as bronze has it, for quarantine.
BRONZE = "_bronze"
# Whether a row breaks no rule, for as long as all rows are looked at: to ask the names of the rules
# takes five times as long.
_IS_GOOD = "_is_good"
# Whether a row was looked up in a reference that has none for it.
UNMATCHED = "_unmatched"


def apply_rules(
    bronze: DataFrame,
    silver: Mapping[str, str],
    bronze_rules: Sequence[Rule],
    silver_rules: Sequence[Rule],
    origin: Sequence[str],
    rescued: str = "",
) -> DataFrame:
    """Silver's columns beside the rules that each row breaks.

    Args:
        bronze: the columns of a bronze table.
        silver: silver's columns as SQL over bronze's.
        bronze_rules: over bronze's columns.
        silver_rules: over silver's columns.
        origin: the columns of bronze that say where a row came from, for silver.
        rescued: SQL over bronze's columns of the names of the rules about rescued values that a
            row breaks, as `parsing.rescued.broken_rules` makes it; empty if there are none.

    Returns:
        The columns of `silver`, `origin`, `_ingested_at`, `_failed_rules` (empty for a good row),
        `_is_good`, and `_bronze`, the row as it was.
    """
    columns = bronze.columns
    typed = bronze.select(
        *(F.expr(expression).alias(name) for name, expression in silver.items()),
        *origin,
        INGESTED_AT,
        failed_rules(bronze_rules).alias("_failed_in_bronze"),
        breaks(bronze_rules).alias("_breaks_in_bronze"),
        F.expr(rescued or "cast(array() as array<string>)").alias("_failed_by_rescue"),
        F.struct(*columns).alias(BRONZE),
    )
    judged = typed.withColumns(
        {
            FAILED_RULES: F.concat(
                "_failed_in_bronze", "_failed_by_rescue", failed_rules(silver_rules)
            ),
            _IS_GOOD: ~(
                F.col("_breaks_in_bronze")
                | (F.size("_failed_by_rescue") > 0)
                | breaks(silver_rules)
            ),
        }
    )
    return judged.select(*silver, *origin, INGESTED_AT, FAILED_RULES, _IS_GOOD, BRONZE)


def is_good() -> Column:
    """True for a row that breaks no rule."""
    return F.size(FAILED_RULES) == 0


def has_identity(keys: Sequence[str]) -> Column:
    """True for a row whose keys are all known: only such a row can be a duplicate."""
    known = F.lit(True)
    for key in keys:
        known = known & F.col(key).isNotNull()
    return known


def split_by_identity(rows: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """Part `checked` rows into those that can be duplicates and those that cannot.

    The second part, broken rows and rows without identity, must stay away from the watermark:
    their event times would move it, or be dropped by it.
    """
    is_identified = F.col(_IS_GOOD) & has_identity(keys)
    identified, others = (
        rows.where(part).drop(_IS_GOOD) for part in (is_identified, ~is_identified)
    )
    return identified.withColumn(FAILED_RULES, failed_rules(())), others


def deduplicate(rows: DataFrame, keys: Sequence[str], event_time: str, watermark: str) -> DataFrame:
    """Each `checked` row with an identity once, and all the others. On a stream, keys are held
    until the watermark passes them.

    What comes on either way is counted by the query, as `identified.rows` and `others.rows`.

    Args:
        rows: `checked`; with `_bronze` only if it is asked for afterwards, for then all columns of
            bronze are read for all rows.
    """
    identified, others = (
        part.observe(name, F.count(F.lit(1)).alias("rows"))
        for name, part in zip(("identified", "others"), split_by_identity(rows, keys), strict=True)
    )
    first = identified.withWatermark(event_time, watermark).dropDuplicates(list(keys))
    return first.unionByName(others)


def join_lookup(
    rows: DataFrame, reference: DataFrame, on: str, columns: Iterable[str], rules: Column
) -> DataFrame:
    """`checked` rows with the columns of a reference, null where it has no row of their key.

    Args:
        rows: all of them with `_bronze`, if there are rules to break.
        reference: at most one row a key, which is in the column that is called as theirs.
        on: the key's name.
        columns: the reference's columns to take over.
        rules: names of the broken rules, for rows that break no other.

    Returns:
        All rows, each as often as before, `_failed_rules` brought up to date; and `_unmatched`.
    """
    found = reference.select(F.col(on).alias("_key"), *columns)
    joined = rows.join(found, F.col(on) == F.col("_key"), "left")
    looked_up = joined.withColumn(UNMATCHED, is_good() & F.col("_key").isNull()).drop("_key")
    return looked_up.withColumn(
        FAILED_RULES, F.when(is_good(), rules).otherwise(F.col(FAILED_RULES))
    )


def silver_rows(rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Silver's table columns of the rows that break no rule.

    Args:
        columns: silver's own, and those that say where a row came from.
    """
    return rows.where(is_good()).select(*columns, INGESTED_AT)


def with_bronze_columns(quarantine: DataFrame, bronze: DataFrame) -> DataFrame:
    """Rows of quarantine with all columns of bronze: it may have had no row of the newest yet."""
    return quarantine.unionByName(bronze.limit(0), allowMissingColumns=True)


def quarantine_rows(rows: DataFrame) -> DataFrame:
    """Quarantine's columns of the rows that break a rule."""
    return rows.where(~is_good()).select(f"{BRONZE}.*", FAILED_RULES)
