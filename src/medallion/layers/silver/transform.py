"""Pure transformations from bronze's columns to silver's: typed, checked, deduplicated, joined."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from medallion.quality.rules import Rule, breaks_any, failed_rules
from medallion.storage.table_specs import FAILED_RULES, INGESTED_AT, IS_DELETE, quote_identifier

# The row as bronze has it, for quarantine.
BRONZE = "_bronze"
# True for a row that breaks no rule. Computing the names of the broken rules takes five times as
# long, and is not needed to split the rows.
_IS_GOOD = "_is_good"
# The rules that a change breaks, with those that do not hold for it.
FAILED = "_failed"
# True for a good row without a row in the lookup table.
UNMATCHED = "_unmatched"
# True for a row to erase; null if its values do not decide that.
MATCHES = "_matches"
# The values of a good row that a conversion turned into null (`conversions`), with its position.
LOST, FIRST_LOST = "_lost", "_first_lost."
PARTS = "identified", "others"
"""What a query observes: the rows that can be duplicates, and the others."""
# True for a row whose key another row has, and for a row behind the watermark.
DUPLICATE, LATE = "_is_duplicate", "_is_late"


def apply_rules(
    bronze: DataFrame,
    silver: Mapping[str, str],
    event_time: str,
    bronze_rules: Sequence[Rule],
    silver_rules: Sequence[Rule],
    origin: Sequence[str],
    rescued: str = "",
    derived: Mapping[str, str] = MappingProxyType({}),
    left_out: str = "",
    broken: str = "",
    lost: str = "",
) -> DataFrame:
    """Return silver's columns, and the rules that each row breaks.

    Args:
        bronze: the columns of a bronze table.
        silver: silver's columns as SQL over bronze's.
        event_time: the column of the event time.
        bronze_rules: rules over bronze's columns.
        silver_rules: rules over silver's columns.
        origin: columns of bronze that say where a row came from, for silver.
        rescued: SQL over bronze's columns that returns the names of the rules for rescued values
            that a row breaks, from `rescued_rule_names`; empty if there are no such rules.
        derived: further columns as SQL over silver's columns and bronze's.
        left_out: a column that quarantine does not get.
        broken: SQL over `derived` and `_failed`, the names of all rules that a row breaks, for the
            names that count; by default all of them. A delete often has nothing but its key.
        lost: SQL over bronze's columns, for `_lost`.

    Returns:
        The columns of `silver`, `origin`, `_ingested_at`, `derived`, `_failed_rules` (empty for a
        good row), `_is_good`, `_bronze`, the row as it was, and `_lost` if there is SQL for it.
    """
    typed = bronze.select(
        *(silver_column(name, sql, event_time) for name, sql in silver.items()),
        *origin,
        INGESTED_AT,
        failed_rules(bronze_rules).alias("_failed_in_bronze"),
        breaks_any(bronze_rules).alias("_breaks_in_bronze"),
        F.expr(rescued or "cast(array() as array<string>)").alias("_failed_by_rescue"),
        F.struct(*(column for column in bronze.columns if column != left_out)).alias(BRONZE),
        *([F.expr(lost).alias(LOST)] if lost else []),
    )
    typed = _with_derived(typed, derived, bronze.columns)
    failed = F.concat("_failed_in_bronze", "_failed_by_rescue", failed_rules(silver_rules))
    is_rescued = F.size("_failed_by_rescue") > 0
    is_bad = F.col("_breaks_in_bronze") | is_rescued | breaks_any(silver_rules)
    if broken:
        typed, failed = typed.withColumn(FAILED, failed), F.expr(broken)
        is_bad = F.size(failed) > 0
    tested = typed.withColumns({FAILED_RULES: failed, _IS_GOOD: ~is_bad})
    # Nothing reads the other values of a delete.
    is_counted = F.col(_IS_GOOD) & ~(F.col(IS_DELETE) if IS_DELETE in derived else F.lit(False))
    values = [F.when(is_counted, F.col(LOST)).alias(LOST)] if lost else []
    columns = (*silver, *origin, INGESTED_AT, *derived, FAILED_RULES, _IS_GOOD, BRONZE)
    return tested.select(*columns, *values)


def _with_derived(rows: DataFrame, derived: Mapping[str, str], bronze: Sequence[str]) -> DataFrame:
    """Add columns that may read bronze's columns too, unless silver has one of the name."""
    if not derived:
        return rows
    taken = {name.lower() for name in rows.columns}
    others = [name for name in bronze if name.lower() not in taken]
    both = rows.select("*", *(F.col(BRONZE).getField(name).alias(name) for name in others))
    added = both.withColumns({name: F.expr(sql) for name, sql in derived.items()})
    return added.select(*rows.columns, *derived)


def silver_column(name: str, sql: str, event_time: str) -> Column:
    """Return a column of silver; the event time is cast to a timestamp, null if it is no time."""
    column = F.expr(sql)
    return (column.try_cast("timestamp") if name == event_time else column).alias(name)


def with_matches(
    bronze: DataFrame,
    silver: Mapping[str, str],
    event_time: str,
    origin: Sequence[str],
    condition: str,
    keys: DataFrame | None = None,
) -> DataFrame:
    """Return rows of bronze with `_matches`: the value of a condition over silver's columns.

    Duplicates and rows that silver would quarantine have a value, too.

    Args:
        bronze: the columns of a bronze table.
        silver: silver's columns as SQL over bronze's.
        event_time: the column of the event time.
        origin: columns of bronze that silver has as well.
        condition: SQL over silver's columns.
        keys: columns of silver; a row that has the values of one of these rows matches, too.
    """
    typed = bronze.select(
        F.struct(*bronze.columns).alias(BRONZE),
        *(silver_column(name, sql, event_time) for name, sql in silver.items()),
        *origin,
        INGESTED_AT,
    )
    rows, matches = typed, F.expr(condition)
    if keys is not None:
        rows = typed.join(keys.withColumn(MATCHES, F.lit(True)), keys.columns, "left")
        matches = F.coalesce(F.col(MATCHES), matches)
    return rows.select(f"{BRONZE}.*", matches.alias(MATCHES))


def lost_metrics(rows: DataFrame) -> list[Column]:
    """Return aggregates over rows of `apply_rules` that count their lost values."""
    if LOST not in rows.columns:
        return []
    metrics = [F.count(LOST).alias(LOST)]
    for column in rows.select(f"{LOST}.*").columns:
        values = F.col(LOST).getField(column)
        first = F.to_json(F.min(values)).alias(f"{FIRST_LOST}{column}")
        metrics += [F.count(values).alias(f"{LOST}.{column}"), first]
    return metrics


def is_good() -> Column:
    """Return the condition that a row breaks no rule."""
    return F.size(FAILED_RULES) == 0


def has_null_key(keys: Sequence[str]) -> str:
    """Return the condition that a key of a row is null, in SQL; never true without keys."""
    return " OR ".join(f"{quote_identifier(key)} IS NULL" for key in keys) or "false"


def has_identity(keys: Sequence[str]) -> Column:
    """Return the condition that no key of a row is null: only such a row can be a duplicate."""
    return F.expr(f"not ({has_null_key(keys)})")


def split_by_identity(rows: DataFrame, keys: Sequence[str]) -> tuple[DataFrame, DataFrame]:
    """Split the rows of `apply_rules` into those that can be duplicates and the others.

    The others, quarantined rows and rows without identity, must bypass the watermark: they would
    advance it, or it would drop them.
    """
    is_identified = F.col(_IS_GOOD) & has_identity(keys)
    identified = rows.where(is_identified).drop(_IS_GOOD).withColumn(FAILED_RULES, failed_rules(()))
    return identified, rows.where(~is_identified).drop(_IS_GOOD)


def deduplicate(rows: DataFrame, keys: Sequence[str], event_time: str, watermark: str) -> DataFrame:
    """Return each row with an identity once, and all others.

    A stream keeps keys as state until the watermark passes them. If the event time is not a key,
    that would miss rows that are sent again later: all rows are returned, for `mark_duplicates`.
    The query counts the rows of both branches as `identified.rows` and `others.rows`, and observes
    the least event time, in milliseconds since 1970, as `identified.earliest`.

    Args:
        rows: the rows of `apply_rules`. Drop `_bronze` first if it is not needed afterwards: with
            it, Spark reads all columns of bronze.
        keys: the columns of a row's identity.
        event_time: the column of the event time.
        watermark: the delay, such as `10 minutes`.
    """
    (name, other), (identified, others) = PARTS, split_by_identity(rows, keys)
    count, earliest = F.count(F.lit(1)).alias("rows"), F.unix_millis(F.min(event_time))
    identified = identified.observe(name, count, earliest.alias("earliest"))
    first = identified.withWatermark(event_time, watermark)
    if event_time in keys:
        first = first.dropDuplicates(list(keys))
    return first.unionByName(others.observe(other, count))


def mark_duplicates(
    rows: DataFrame, table: DataFrame, keys: Sequence[str], order: Sequence[str | Column]
) -> DataFrame:
    """Add `_is_duplicate`: True for a good row whose key the table or an earlier row has.

    Args:
        rows: the rows of `deduplicate`, or of a child table.
        table: the rows of the table that may have the same keys.
        keys: the columns of a row's identity; empty if no row is a duplicate.
        order: the columns by which the first of the rows with equal keys is chosen.
    """
    if not keys:
        return rows.withColumn(DUPLICATE, F.lit(False))
    names, can_repeat = list(keys), is_good() & has_identity(keys)
    # Few keys of a large table are left, and its rows need no shuffle.
    new = rows.where(can_repeat).select(names)
    taken = table.select(names).join(new, names, "left_semi").distinct()
    number = F.row_number().over(Window.partitionBy(*names, can_repeat).orderBy(*order))
    numbered = rows.withColumn("_number", number)
    marked = numbered.join(taken.withColumn("_taken", F.lit(True)), names, "left")
    is_taken = (F.col("_number") > 1) | F.col("_taken").isNotNull()
    return marked.withColumn(DUPLICATE, can_repeat & is_taken).drop("_number", "_taken")


def is_late(event_time: str, watermark: int) -> Column:
    """Return the condition that a row is not after a watermark, in milliseconds since 1970."""
    return F.col(event_time) <= F.timestamp_millis(F.lit(watermark))


def join_lookup(
    rows: DataFrame, lookup: DataFrame, on: str, columns: Iterable[str], rules: Column
) -> DataFrame:
    """Join rows to a lookup table; its columns are null for unmatched rows.

    Args:
        rows: the rows of `apply_rules`; all of them need `_bronze` if there are rules.
        lookup: the lookup table, with at most one row per key.
        on: the key column, of both rows and lookup table.
        columns: the columns of the lookup table to add.
        rules: the names of the rules about these columns that a row breaks.

    Returns:
        The same number of rows, with `_unmatched`. For rows that broke no rule before,
        `_failed_rules` has the lookup rules that they break.
    """
    right = lookup.select(F.col(on).alias("_key"), *columns)
    joined = rows.join(right, F.col(on) == F.col("_key"), "left")
    marked = joined.withColumn(UNMATCHED, is_good() & F.col("_key").isNull()).drop("_key")
    return marked.withColumn(FAILED_RULES, F.when(is_good(), rules).otherwise(F.col(FAILED_RULES)))


def silver_rows(rows: DataFrame, columns: Iterable[str]) -> DataFrame:
    """Return the good rows as silver's table has them.

    Args:
        rows: the rows of `apply_rules` or `join_lookup`.
        columns: silver's columns, and those that say where a row came from.
    """
    return rows.where(is_good()).select(*columns, INGESTED_AT)


def quarantine_rows(rows: DataFrame) -> DataFrame:
    """Return the rows that break a rule, as quarantine's table has them."""
    return rows.where(~is_good()).select(f"{BRONZE}.*", FAILED_RULES)


def with_bronze_columns(quarantine: DataFrame, bronze: DataFrame) -> DataFrame:
    """Return rows of quarantine with all columns of bronze; quarantine may lack the newest."""
    return quarantine.unionByName(bronze.limit(0), allowMissingColumns=True)
