"""Pure transformations of change records to the latest state, or the history, of each key.

The log has each change as it arrived. `by_key` adds the deletes that it implies: an update with
another key deletes the row of `_old_key`, and a truncate the row of each key. All other functions
take its result, whose changes concern one key each.

Changes of a key are ordered by `_sequence`, then `_ingested_at`, origin, `_is_delete` (a delete is
after an update) and values. So the result does not depend on the order in which they arrive.
"""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from medallion.spark.plans import is_comparable
from medallion.storage.table_specs import (
    ARRIVAL,
    INGESTED_AT,
    IS_CURRENT,
    IS_DELETE,
    IS_TRUNCATE,
    OLD_KEY,
    SEQUENCE,
    SOURCE_FILE,
    UNAVAILABLE,
    VALID_FROM,
    VALID_TO,
    quote_identifier,
    struct_sql,
)

_TECHNICAL = (SEQUENCE, *ARRIVAL, IS_DELETE)


def by_key(
    changes: DataFrame,
    keys: Sequence[str],
    truncates: DataFrame | None = None,
    *,
    is_complete: bool = False,
    ignore_nulls: bool = False,
) -> DataFrame:
    """Return changes of one key each, with the deletes that key changes and truncates imply.

    Args:
        changes: rows of the log of changes.
        keys: the columns that identify a row.
        truncates: rows of the log, of which those that truncate delete each key of the changes.
        is_complete: whether the changes are the complete log. If so, values that a change of the
            key left out are those of the old key; this runs jobs if there are any.
        ignore_nulls: whether a null keeps the value of the change before.

    Returns:
        The columns of the log without `_old_key` and `_is_truncate`.
    """
    rows = changes
    if IS_TRUNCATE in changes.columns:
        rows = changes.where(F.col(IS_TRUNCATE).isNull())
    if OLD_KEY in changes.columns:
        moved = rows.where(F.col(OLD_KEY).isNotNull())
        old = {key: F.col(f"{OLD_KEY}.{quote_identifier(key)}") for key in keys}
        rows = rows.unionByName(_deletes(moved, old))
    if truncates is not None and IS_TRUNCATE in truncates.columns:
        every_key = rows.select(F.struct(*keys).alias("_key")).distinct()
        crossed = truncates.where(F.col(IS_TRUNCATE).isNotNull()).crossJoin(every_key)
        each = {key: F.col("_key").getField(key) for key in keys}
        rows = rows.unionByName(_deletes(crossed, each).select(*rows.columns))
    if is_complete and UNAVAILABLE in rows.columns:
        rows = _with_moved_values(rows, keys, ignore_nulls)
    return rows.drop(OLD_KEY, IS_TRUNCATE)


def is_move(log: DataFrame, keys: Sequence[str]) -> Column:
    """Return the condition that a change lacks values that the row of another key has.

    That is an update of the key, or an insert with the first key in `_unavailable`, whose old key
    is that of the only delete with its sequence.
    """
    names = F.col(UNAVAILABLE)
    return names.isNotNull() & (_has_old_key(log) | F.array_contains(names, keys[0]))


def _with_moved_values(rows: DataFrame, keys: Sequence[str], ignore_nulls: bool) -> DataFrame:
    """Replace the unavailable values of moves by those of the rows that they moved.

    A row may move several times: this is repeated until no more values are found.
    """
    if rows.where(is_move(rows, keys)).isEmpty():
        return rows
    key, arrival, names = F.struct(*keys), F.struct(*_arrival(rows)), _kept_names(rows, keys)
    ends = F.min(key).alias("_from"), F.max(key).alias("_to")
    deletes = rows.where(IS_DELETE).groupBy(SEQUENCE).agg(*ends).where("_from = _to").drop("_to")
    rows = rows.join(deletes, SEQUENCE, "left")
    old_key = F.coalesce(*[OLD_KEY] * (OLD_KEY in rows.columns), "_from")
    rows = rows.withColumn("_from", F.when(is_move(rows, keys), old_key))
    moved = rows.where("_from is not null")
    involved = moved.select(*keys).union(moved.select("_from.*")).distinct().localCheckpoint()
    own, lacking, before = rows.join(involved, [*keys], "left_semi").localCheckpoint(), 0, None
    while lacking != before:
        asked = F.when(F.col(IS_DELETE), F.array(*map(F.lit, names))).otherwise(F.col(UNAVAILABLE))
        states = _with_kept_values(own.withColumn(UNAVAILABLE, asked), keys, ignore_nulls)
        states = states.where(F.col(IS_DELETE) & (F.size(UNAVAILABLE) < len(names)))
        last = F.max_by(F.struct(*names, UNAVAILABLE), arrival).alias("_old")
        ended = states.groupBy(key.alias("_from"), SEQUENCE).agg(last)
        still = F.coalesce(F.array_intersect(UNAVAILABLE, f"_old.{UNAVAILABLE}"), UNAVAILABLE)
        found = {UNAVAILABLE: still}
        for name in names:
            is_found = F.array_contains(F.array_except(UNAVAILABLE, still), name)
            found[name] = F.when(is_found, F.col(f"_old.{name}")).otherwise(F.col(name))
        own = own.join(ended, ["_from", SEQUENCE], "left").withColumns(found).drop("_old")
        own = own.localCheckpoint()
        lacking, before = own.agg(F.sum(F.size(UNAVAILABLE))).collect()[0][0], lacking
    return rows.join(involved, [*keys], "left_anti").unionByName(own).drop("_from")


def of_snapshots(log: DataFrame, keys: Sequence[str], max_deletes: float) -> DataFrame:
    """Return the changes of a log whose sequences are complete tables, with the deletes they imply.

    Args:
        log: rows of the log of changes. A row whose `_is_delete` is null is in quarantine: its key
            is in the snapshot, and keeps the values that it had.
        keys: the columns that identify a row.
        max_deletes: how much smaller a snapshot may be than the one that was applied before it, as
            a fraction. The rows of a smaller one are left out.
    """
    rows = log.join(F.broadcast(_applied_snapshots(log, keys, max_deletes)), SEQUENCE)
    in_next = rows.select(F.col(SEQUENCE).alias("_at"), F.struct(*keys).alias("_key"))
    is_in_next = (F.col("_at") == F.col("_next.at")) & (F.col("_key") == F.struct(*keys))
    gone = rows.where(F.col("_next").isNotNull()).join(in_next, is_in_next, "left_anti")
    origin = {name: F.col(f"_next.origin.{name}") for name in _arrival(log)}
    gone = gone.withColumns({**origin, SEQUENCE: F.col("_next.at")})
    deletes = _deletes(gone, {k: F.col(k) for k in keys})
    return rows.where(f"{IS_DELETE} is not null").unionByName(deletes).select(*log.columns)


def last_files(log: DataFrame) -> DataFrame:
    """Return the rows of the last file of each sequence; the members of an archive are one file."""
    file = F.struct(INGESTED_AT, F.substring_index(SOURCE_FILE, ".zip#", 1))
    last = log.groupBy(SEQUENCE).agg(F.max(file).alias("_last"))
    return log.join(F.broadcast(last), SEQUENCE).where(file == F.col("_last")).select(*log.columns)


def _applied_snapshots(log: DataFrame, keys: Sequence[str], max_deletes: float) -> DataFrame:
    """Return the sequences of the snapshots that are applied; see `of_snapshots`.

    Returns:
        `_sequence`, and `_next`, null in the last one: the sequence `at` of the one that follows,
        and the `origin` of its rows.
    """
    valid = log.where(f"{IS_DELETE} is not null")
    sizes = valid.groupBy(F.col(SEQUENCE).alias("at")).agg(
        F.count_distinct(F.struct(*keys)).alias("size"),
        F.max(F.struct(*_arrival(log))).alias("origin"),
    )
    in_order = sizes.agg(F.array_sort(F.collect_list(F.struct("*"))).alias("one"))
    is_large = f"each.size >= {1 - max_deletes} * applied[size(applied) - 1].size"
    fold = (
        "aggregate(one, slice(one, 1, 0), (applied, each) -> "
        f"if(size(applied) = 0 or {is_large}, array_append(applied, each), applied))"
    )
    applied = in_order.select(F.explode(F.expr(fold)).alias("this"))
    following = F.lead("this").over(Window.orderBy("this.at"))
    return applied.select(F.col("this.at").alias(SEQUENCE), following.alias("_next"))


def _arrival(log: DataFrame) -> list[str]:
    return [name for name in ARRIVAL if name in log.columns]


def _deletes(changes: DataFrame, keys: Mapping[str, Column]) -> DataFrame:
    """Return deletes of some keys, with the sequence and origin of changes and no values."""
    others = (field for field in changes.schema if field.name not in _TECHNICAL)
    nulls = {field.name: F.lit(None).cast(field.dataType) for field in others}
    return changes.withColumns({**nulls, **keys, IS_DELETE: F.lit(True)})


def current_rows(
    changes: DataFrame, keys: Sequence[str], tombstone_seconds: float, ignore_nulls: bool = False
) -> DataFrame:
    """Return the latest row of each key that is not deleted (SCD type 1).

    Args:
        keys: the columns that identify a row.
        tombstone_seconds: how long a delete hides older changes that are ingested after it.
        ignore_nulls: whether a null keeps the value of the change before.
    """
    newest_first = _newest_first(changes, keys)
    deleted_at = F.max(F.when(F.col(IS_DELETE), F.col(INGESTED_AT))).over(_up_to(newest_first))
    is_hidden = F.col(INGESTED_AT) <= deleted_at + F.expr(f"INTERVAL '{tombstone_seconds}' SECOND")
    marked = _last_of_sequence(changes, keys, ignore_nulls).withColumn("_is_hidden", is_hidden)
    rows = marked.where(~F.col(IS_DELETE) & ~F.coalesce("_is_hidden", F.lit(False)))
    latest = rows.withColumn("_rank", F.row_number().over(newest_first)).where("_rank = 1")
    return latest.drop("_is_hidden", "_rank", IS_DELETE)


def history_rows(
    changes: DataFrame,
    keys: Sequence[str],
    ignore_nulls: bool = False,
    track: Sequence[str] | None = None,
) -> DataFrame:
    """Return a row for each change that is no delete, with its span of time (SCD type 2).

    Args:
        keys: the columns that identify a row.
        ignore_nulls: whether a null keeps the value of the change before.
        track: the columns of which one must change for another row; None for a row for each change.
    """
    return spans(changes, keys, ignore_nulls, track).where(~F.col(IS_DELETE)).drop(IS_DELETE)


def spans(
    changes: DataFrame, keys: Sequence[str], ignore_nulls: bool, track: Sequence[str] | None = None
) -> DataFrame:
    """Return `history_rows`, and a row with `_is_delete` for each delete; see there."""
    rows = _last_of_sequence(changes, keys, ignore_nulls)
    if track is not None:
        rows = _last_of_equal(rows, keys, track)
    newest_first = Window.partitionBy(*keys).orderBy(F.desc(SEQUENCE))
    ended = rows.withColumn(VALID_TO, F.lag(SEQUENCE).over(newest_first))
    named = ended.withColumnRenamed(SEQUENCE, VALID_FROM)
    values = [name for name in named.columns if name not in (VALID_FROM, VALID_TO)]
    return named.select(*values, VALID_FROM, VALID_TO, F.col(VALID_TO).isNull().alias(IS_CURRENT))


def _last_of_equal(rows: DataFrame, keys: Sequence[str], track: Sequence[str]) -> DataFrame:
    """Return the last of the rows that follow each other with equal values, from the first on.

    Args:
        rows: changes of different sequences.
        keys: the columns that identify a row.
        track: the columns whose values are compared.
    """
    newest_first = Window.partitionBy(*keys).orderBy(F.desc(SEQUENCE))
    state = F.xxhash64(IS_DELETE, F.to_json(F.struct(*track)))
    rows = rows.withColumn("_is_end", ~state.eqNullSafe(F.lag(state).over(newest_first)))
    rows = rows.withColumn("_number", F.count_if("_is_end").over(_up_to(newest_first)))
    of_number = Window.partitionBy(*keys, "_number")
    first = rows.withColumn(SEQUENCE, F.min(SEQUENCE).over(of_number))
    return first.where("_is_end").drop("_is_end", "_number")


def latest_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the last change of each key, deletes included; no value of it is unavailable."""
    rank = F.row_number().over(_newest_first(changes, keys))
    return changes.withColumn("_rank", rank).where("_rank = 1").drop("_rank", UNAVAILABLE)


def without_deleted(
    changes: DataFrame, log: DataFrame, keys: Sequence[str], tombstone_seconds: float
) -> DataFrame:
    """Return the changes that no later delete or truncate hides.

    Args:
        log: rows of the log of changes, with those that delete.
        keys: the columns that identify a row.
        tombstone_seconds: how long a delete hides older changes that are ingested after it.
    """
    is_hidden = F.expr(
        f"{order_sql(changes, keys, 'old')} > {order_sql(changes, keys, 'new')} "
        f"and new.{INGESTED_AT} <= old.{INGESTED_AT} + INTERVAL '{tombstone_seconds}' SECOND"
    )
    is_same = " and ".join(f"old.{key} = new.{key}" for key in map(quote_identifier, keys))
    hiding = log.where(F.col(IS_DELETE) | _has_old_key(log))
    deletes = by_key(hiding, keys).where(IS_DELETE).alias("old")
    rows = changes.alias("new").join(deletes, is_hidden & F.expr(is_same), "left_anti")
    if IS_TRUNCATE in log.columns:
        truncates = log.where(F.col(IS_TRUNCATE).isNotNull())
        rows = rows.alias("new").join(F.broadcast(truncates).alias("old"), is_hidden, "left_anti")
    return rows


def _has_old_key(log: DataFrame) -> Column:
    return F.col(OLD_KEY).isNotNull() if OLD_KEY in log.columns else F.lit(False)


def tied_changes(changes: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the keys and sequences that changes with different values have.

    Returns:
        Keys, sequence, and the origin of the last of these changes.
    """
    values = F.xxhash64(*map(F.expr, _order(changes, keys)[-len(_values(changes, keys)) - 1 :]))
    ends = (F.min(values).alias("a"), F.max(values).alias("z"))
    last = F.max(F.struct(*_arrival(changes))).alias("_last")
    ties = changes.groupBy(*keys, SEQUENCE).agg(*ends, last).where("a <> z")
    return ties.select(*keys, SEQUENCE, "_last.*")


def order_sql(changes: DataFrame, keys: Sequence[str], alias: str, has_deletes: bool = True) -> str:
    """Return SQL of a struct that orders the changes of a key.

    Args:
        keys: the columns that identify a row.
        alias: the alias of the rows in the SQL.
        has_deletes: False if the rows have no `_is_delete`, because none is a delete.
    """
    names = _order(changes, keys, f"{alias}.")
    if not has_deletes:
        names = ["false" if name == f"{alias}.{IS_DELETE}" else name for name in names]
    return struct_sql({str(number): name for number, name in enumerate(names)})


def _order(changes: DataFrame, keys: Sequence[str], prefix: str = "") -> list[str]:
    """Return SQL of the columns that order the changes of a key, the first one first."""
    technical = [prefix + name for name in _TECHNICAL if name in changes.columns]
    types = {field.name: field.dataType for field in changes.schema}
    values = list[str]()
    for name in _values(changes, keys):
        sql = prefix + quote_identifier(name)
        text = f"if({sql} is null, null, to_json(named_struct('', {sql})))"
        values.append(sql if is_comparable(types[name]) else text)
    return technical + values


def _values(changes: DataFrame, keys: Sequence[str]) -> list[str]:
    return [name for name in changes.columns if name not in (*keys, *_TECHNICAL, UNAVAILABLE)]


def _newest_first(changes: DataFrame, keys: Sequence[str]) -> WindowSpec:
    return Window.partitionBy(*keys).orderBy(*(F.expr(sql).desc() for sql in _order(changes, keys)))


def _up_to(newest_first: WindowSpec) -> WindowSpec:
    return newest_first.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _last_of_sequence(changes: DataFrame, keys: Sequence[str], ignore_nulls: bool) -> DataFrame:
    """Return the last of the changes with the same key and sequence, with the values it keeps."""
    next_sequence = F.lag(SEQUENCE).over(_newest_first(changes, keys))
    marked = changes.withColumn("_is_last", ~next_sequence.eqNullSafe(F.col(SEQUENCE)))
    rows = _with_kept_values(marked, keys, ignore_nulls).where("_is_last")
    return rows.drop("_is_last", UNAVAILABLE)


def _with_kept_values(rows: DataFrame, keys: Sequence[str], ignore_nulls: bool) -> DataFrame:
    """Replace each unavailable value, and nulls if they are ignored, by the last one before it.

    Returns:
        The rows, with the columns without a value since the last delete in `_unavailable`.
    """
    has_unavailable = UNAVAILABLE in rows.columns
    if not has_unavailable and not ignore_nulls:
        return rows
    # The values that a delete ends are those of the changes up to it.
    deletes = F.count_if(IS_DELETE).over(_up_to(_newest_first(rows, keys)))
    rows = rows.withColumn("_deletes", deletes)
    life = _newest_first(rows, [*keys, "_deletes"])
    older = life.rowsBetween(Window.currentRow, Window.unboundedFollowing)
    known, kept, unknown = {}, {}, []
    for name in _kept_names(rows, keys):
        is_known = F.col(name).isNotNull() if ignore_nulls else F.lit(True)
        if has_unavailable:
            is_known &= ~F.coalesce(F.array_contains(UNAVAILABLE, name), F.lit(False))
        own = F.struct(F.col(name).alias("value"))
        values = F.when(is_known, own)  # a struct, so that a null that is known is not skipped
        known[f"_known_{name}"] = F.first(values, ignorenulls=True).over(older)
        # Without an earlier value, a placeholder stays visible.
        kept[name] = F.coalesce(f"_known_{name}", own).getField("value")
        unknown.append(F.when(F.col(f"_known_{name}").isNull(), name))
    if has_unavailable:
        kept[UNAVAILABLE] = F.array_compact(F.array(*unknown))
    return rows.withColumns(known).withColumns(kept).drop("_deletes", *known)


def _kept_names(rows: DataFrame, keys: Sequence[str]) -> list[str]:
    return [name for name in rows.columns if name not in keys and not name.startswith("_")]
