"""Change records: one query per source, from their log to the latest state or history."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from medallion.config.model import Config, SourceConfig
from medallion.config.tables import CdcConfig
from medallion.errors import ConfigError
from medallion.layers import recovery
from medallion.layers.definition import settings_document
from medallion.layers.flow import Flow, ValidationInput
from medallion.layers.silver import changes
from medallion.layers.silver.rules import with_quarantined
from medallion.spark import checkpoints, delta
from medallion.spark.query import RunningQuery, Sink
from medallion.storage import delta_tables
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import (
    INGESTED_AT,
    IS_DELETE,
    IS_TRUNCATE,
    SEQUENCE,
    SOURCE_POSITION,
    UNAVAILABLE,
    VALID_FROM,
    quote_identifier,
)
from medallion.storage.text import Reporter, counted

# Delta's settings for the transaction of a commit that is not written by a DataFrame's writer.
_APPLICATION = "spark.databricks.delta.write.txnAppId"
_TRANSACTION = "spark.databricks.delta.write.txnVersion"
_OFFSET = r"[+-]\d\d:?\d\d$"
_TIME = rf"\d{{4}}-\d\d-\d\d[T ]\d\d:\d\d\S*(Z|{_OFFSET})"
_NUMBER_OR_TIME = rf"^(\d+(\.\d+)?|[0-9A-F]+/[0-9A-F]+|{_TIME})$"  # 0/16B3748 of PostgreSQL
_ROUNDING = 1.0  # second, of times as doubles
_PRUNED_TYPES = ("tinyint", "smallint", "int", "bigint", "string")


class Scd(Flow):
    """The query of one source of change records: it merges them by key."""

    def start(self, trigger: Mapping[str, Any] | None, recorded: int) -> RunningQuery | None:
        """Start the query.

        Raises:
            ConfigError: the keys or settings have changed, or the changes cannot be ordered.
            UsageError: its checkpoint is missing or corrupt.
        """
        recovery.refuse_lost_checkpoint(self.name, self.checkpoint, self.target_paths, recorded)
        log = delta.read_table(self.spark, self.upstream_paths[0])
        rows = table_rows(log.where("false"), self.source)
        self.create_tables(rows)
        self.refuse_changed_definition(scd_definition(self.source), rows)
        if trigger is None:
            return None
        if texts := numbers_as_text(log):
            raise ConfigError(
                f"{self.config.pipeline_file}: sources.{self.source.name}.cdc.sequence_by gives "
                f"strings, by which {' is before '.join(texts)}. Cast them, as with cast(... as "
                "long) or cast(... as timestamp), or pad each part, as with lpad(split_part(..., "
                "'/', 2), 8, '0'), and run medallion apply."
            )
        stream = self.stream(self.upstream_paths[0], **delta.AT_ONCE)
        writer = stream.writeStream.outputMode("append")
        merge = ChangeMerge(self.config, self.source, self.say)
        return self.start_query(writer, trigger, Sink(merge))

    def validation_input(self, files: Sequence[StoragePath] | None) -> ValidationInput:
        """Return all rows: a merge rewrites files of older rows."""
        rows = delta.rows_at(self.spark, self.target_paths[0])
        return ValidationInput(rows, merge_keys(self.source))


def numbers_as_text(log: DataFrame) -> list[str]:
    """Return two numbers or times by which changes are ordered as strings, if it may be wrong.

    It is right if they have one length, but for a fraction at the end; or one offset from UTC.
    """
    parts = log.select(SEQUENCE)
    if isinstance(log.schema[SEQUENCE].dataType, StructType):
        parts = parts.select(f"{SEQUENCE}.*")
    found = list[Column]()
    for name in (name for name, dtype in parts.dtypes if dtype == "string"):
        text = F.col(quote_identifier(name))
        form = F.nullif(F.regexp_extract(text, _OFFSET, 0), F.lit(""))
        form = F.coalesce(form, F.length(F.regexp_replace(text, r"\.\d+$", "")).cast("string"))
        differ = F.bool_and(text.rlike(_NUMBER_OR_TIME)) & (F.min(form) < F.max(form))
        found.append(F.struct(F.min_by(text, form), F.max_by(text, form), differ))
    pairs = parts.agg(*found).collect()[0] if found else ()
    return next((sorted(texts) for *texts, may_be_wrong in pairs if may_be_wrong), [])


def scd_definition(source: SourceConfig) -> dict[str, Any]:
    """Return the settings that define the table; a change is refused until a refresh."""
    cdc, own = _cdc(source), settings_document(source.cdc)
    names = ["stored_as_scd_type", "ignore_null_updates", "tombstone_retention"]
    names += ["snapshot", "max_deletes"] * cdc.snapshot + ["track"] * bool(cdc.track)
    return {"keys": list(source.keys), **{f"cdc.{name}": own[name] for name in names}}


def table_rows(log: DataFrame, source: SourceConfig) -> DataFrame:
    """Return the rows that the table of a source has after all changes of a log."""
    cdc = _cdc(source)
    log = _every_change(log, source, log)
    if cdc.stored_as_scd_type == 2:
        track = tracked_columns(source)
        return changes.history_rows(log, source.keys, cdc.ignore_null_updates, track)
    seconds = cdc.tombstone_retention.seconds
    return changes.current_rows(log, source.keys, seconds, cdc.ignore_null_updates)


def _every_change(log: DataFrame, source: SourceConfig, truncates: DataFrame | None) -> DataFrame:
    """Return the changes of one key each in a complete log, with the deletes that they imply.

    Args:
        log: the result of `with_quarantined`.
        source: its source.
        truncates: the log; None if none of its rows truncates.
    """
    cdc = _cdc(source)
    if cdc.snapshot:
        # `cp` gives several files one time.
        log = changes.last_files(log) if cdc.has_file_snapshots else log
        return changes.of_snapshots(log, source.keys, cdc.max_deletes)
    nulls = cdc.ignore_null_updates
    return changes.by_key(log, source.keys, truncates, is_complete=True, ignore_nulls=nulls)


def tracked_columns(source: SourceConfig) -> Sequence[str] | None:
    """Return the columns whose changes give a history another row; None for each change."""
    cdc = _cdc(source)
    if cdc.track or not cdc.snapshot:
        return cdc.track
    return [column for column in source.columns if column not in source.keys]


def tie_message(ties: DataFrame, source: SourceConfig) -> str | None:
    """Return a message with an example if changes have one key and sequence but other values."""
    example = F.to_json(F.struct(*source.keys, SEQUENCE))
    line = source.position_sql if SOURCE_POSITION in ties.columns else "null"
    position = F.expr(f"coalesce(concat(' (', {line}, ')'), '')")
    count, first = ties.agg(F.count(F.lit(1)), F.min(F.concat(example, position))).collect()[0]
    if not count:
        return None
    return (
        f"{counted(count, 'sequence')} with different values for one key, such as {first}: the "
        "later file wins, and in a file the later line"
    )


def _cdc(source: SourceConfig) -> CdcConfig:
    assert source.cdc, f"{source.name} has no change records"
    return source.cdc


def merge_keys(source: SourceConfig) -> list[str]:
    """Return the columns that identify a row of the table."""
    return [*source.keys, *([VALID_FROM] if _cdc(source).stored_as_scd_type == 2 else [])]


class ChangeMerge:
    """A sink that merges batches of changes, each in one commit.

    The commit has the query's id and the batch's number, so a batch that runs twice is merged once.
    The latest change of a key is merged if it is newer than the row, and than the deletes in the
    log. For a history, a batch that truncates, or values that outlast nulls or unavailable ones,
    the rows of the keys are computed from the complete log. Ties within a batch are reported;
    `audit --deep` finds those across batches.
    """

    def __init__(self, config: Config, source: SourceConfig, say: Reporter) -> None:
        self._config, self._say = config, say
        self._source, self._cdc, self._keys = source, _cdc(source), list(source.keys)
        self._log = config.layout.table(source.rows_table)
        self._table = config.layout.table(f"silver.{source.name}")
        self._checkpoint = config.layout.checkpoint(f"silver.{source.name}")
        # Whether a change in the log lacks values that did not change; None until the first batch.
        self._has_unavailable: bool | None = None

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch."""
        batch = batch.persist()
        try:
            rows, key = changes.by_key(batch, self._keys), self._keys[0]
            first_ingestion = F.min(F.col(INGESTED_AT).cast("double"))
            first, *key_range = rows.agg(first_ingestion, F.min(key), F.max(key)).collect()[0]
            truncates = self._find(batch, IS_TRUNCATE)
            if first is None and not truncates:
                return
            ties = tie_message(changes.tied_changes(rows, self._keys), self._source)
            if ties:
                self._say(f"  silver.{self._source.name} batch {batch_id}: {ties}")
            # A truncate or a snapshot concerns keys beyond those of the batch.
            is_complete = truncates or self._cdc.snapshot
            is_pruned = dict(batch.dtypes)[key] in _PRUNED_TYPES and not is_complete
            merged, condition = self._rows_to_merge(rows, first, is_complete)
            query = checkpoints.query_id(self._checkpoint)
            if not delta_tables.row_count(self._table):  # no row to find
                self._insert(merged, checkpoints.once_only(query, batch_id))
                return
            settings = batch.sparkSession.conf  # of this query alone
            settings.set(_APPLICATION, query)
            settings.set(_TRANSACTION, str(batch_id))
            self._execute(merged, condition, key_range if is_pruned else ())
        finally:
            batch.unpersist()

    def _find(self, rows: DataFrame, column: str) -> bool:
        """Return whether a technical column, if the source has it, has a value in some rows."""
        has_column = column in self._source.change_columns
        return has_column and not rows.where(F.col(column).isNotNull()).isEmpty()

    def _rows_to_merge(
        self, batch: DataFrame, first: float, is_complete: bool
    ) -> tuple[DataFrame, str]:
        """Return the rows to merge, and the condition that one replaces or deletes the old row.

        Args:
            batch: the changes, by key.
            first: the time of the first ingestion among them.
            is_complete: whether the batch concerns all keys, and not its own alone.
        """
        log = delta.read_table(batch.sparkSession, self._log)
        cdc = self._cdc
        seconds, nulls = cdc.tombstone_retention.seconds, cdc.ignore_null_updates
        if not self._has_unavailable:
            known = self._has_unavailable
            self._has_unavailable = self._find(log if known is None else batch, UNAVAILABLE)
        is_history = cdc.stored_as_scd_type == 2
        can_delete = cdc.apply_as_deletes or cdc.apply_as_truncates or self._source.is_debezium
        needs_log = is_history or nulls or is_complete or self._has_unavailable
        if can_delete and not needs_log and time.time() - first >= seconds - _ROUNDING:
            # Replayed changes may be older than others by more than the retention.
            newest = log.agg(F.max(F.col(INGESTED_AT).cast("double"))).collect()[0][0]
            needs_log = newest - first >= seconds - _ROUNDING
        if not needs_log:
            latest = changes.latest_changes(batch, self._keys)
            if can_delete:
                since = F.timestamp_seconds(F.lit(first - seconds - _ROUNDING))
                recent = log.where(F.col(INGESTED_AT) >= since)
                latest = changes.without_deleted(latest, recent, self._keys, seconds)
            return latest, self._comparison(latest, ">")
        log = delta.rows_at(batch.sparkSession, self._log)
        log = with_quarantined(log, self._config, self._source)
        touched = (log if is_complete else batch).select(*self._keys)
        if self._has_unavailable:  # a row that moved may have values of a key of the batch
            touched = touched.union(log.where(changes.is_move(log, self._keys)).select(*self._keys))
        else:
            log = log.drop(UNAVAILABLE)
        touched = touched.distinct().dropna()
        truncates = log if is_complete or self._find(log, IS_TRUNCATE) else None
        own = _every_change(log, self._source, truncates).join(touched, self._keys, "left_semi")
        if is_history:
            track = tracked_columns(self._source)
            rows = changes.spans(own, self._keys, nulls, track)
            if track is not None:  # a late change may join spans
                rows = rows.unionByName(self._gone(rows, touched), allowMissingColumns=True)
        else:
            current = changes.current_rows(own, self._keys, seconds, nulls)
            found = current.withColumn(IS_DELETE, F.lit(False))
            gone = touched.join(current, self._keys, "left_anti").withColumn(IS_DELETE, F.lit(True))
            rows = found.unionByName(gone, allowMissingColumns=True)
        return rows, f"not {self._comparison(rows, '<=>')}"

    def _gone(self, rows: DataFrame, touched: DataFrame) -> DataFrame:
        """Return deletes of the spans of some keys that the table has and the rows do not."""
        table = delta.read_table(rows.sparkSession, self._table)
        keys = merge_keys(self._source)
        old = table.join(touched, self._keys, "left_semi").select(*keys)
        return old.join(rows, keys, "left_anti").withColumn(IS_DELETE, F.lit(True))

    def _comparison(self, rows: DataFrame, operator: str) -> str:
        new = changes.order_sql(rows, self._keys, "new")
        old = changes.order_sql(rows, self._keys, "old", has_deletes=False)
        return f"({new} {operator} {old})"

    def _insert(self, rows: DataFrame, once_only: Mapping[str, str]) -> None:
        """Append rows that are no deletes in one commit, in half the time of a merge."""
        columns = delta.read_table(rows.sparkSession, self._table).columns
        delta.write_once(rows.where(f"not {IS_DELETE}").select(*columns), self._table, once_only)

    def _execute(self, rows: DataFrame, condition: str, key_range: Sequence[Any]) -> None:
        """Merge rows in one commit.

        Args:
            rows: the rows, and deletes with `_is_delete`.
            condition: SQL that is true if a row replaces or deletes the old one.
            key_range: the least and the greatest value of the first key, for data skipping.
        """
        on = F.expr(" and ".join(f"old.`{key}` = new.`{key}`" for key in merge_keys(self._source)))
        if key_range:
            on &= F.col(f"old.{self._keys[0]}").between(*map(F.lit, key_range))
        (
            DeltaTable.forPath(rows.sparkSession, str(self._table))
            .alias("old")
            .merge(rows.alias("new"), on)
            .whenMatchedDelete(f"new.{IS_DELETE} and {condition}")
            .whenMatchedUpdateAll(condition)
            .whenNotMatchedInsertAll(f"not new.{IS_DELETE}")
            .execute()
        )
