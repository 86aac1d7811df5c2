"""Counts of the batches of `silver.<source>`, from the logs of its tables."""

from collections import Counter
from typing import NamedTuple

from medallion.layers.silver.rules import LATE_RULE
from medallion.layers.silver.writer import LATE_ROWS, ROWS_READ, SilverWriter
from medallion.spark import checkpoints
from medallion.storage import delta_log, delta_tables
from medallion.storage.table_specs import INGESTED_AT, quote_identifier


class BatchCounts(NamedTuple):
    """Counts of the rows of one batch.

    Attributes:
        read: rows of bronze that it read.
        duplicates: rows that it wrote to neither table.
        late: late rows inserted into silver.
    """

    read: int = 0
    duplicates: int = 0
    late: int = 0


def batch_counts(writer: SilverWriter, batches: range) -> dict[int, BatchCounts]:
    """Return the counts of some batches.

    Spark counts rows as it computes them, and on a cluster rows that are computed twice count
    twice; a log has each commit once.
    """
    if not batches:
        return {}
    tables = writer.tables
    query, late_id = (get(tables.checkpoint) for get in (checkpoints.query_id, checkpoints.late_id))
    read, written, late = Counter[int](), Counter[int](), Counter[int]()
    for each in delta_log.transactions(tables.silver, batches.start, query, late_id):
        written[each.number] += each.rows
        if each.application == late_id:
            late[each.number] += each.rows
        else:
            metadata = each.user_metadata or _older_metadata(writer, each)
            read[each.number] = metadata[ROWS_READ]
            late[each.number] += metadata[LATE_ROWS]
    for each in delta_log.transactions(tables.quarantine, batches.start, query, late_id):
        written[each.number] += each.rows
    return {n: BatchCounts(read[n], read[n] - written[n], late[n]) for n in batches}


def _older_metadata(writer: SilverWriter, batch: delta_log.Transaction) -> dict[str, int]:
    """Return the counts that the commit of an older version of medallion lacks."""
    tables, number = writer.tables, batch.number
    counts = {ROWS_READ: tables.rows_read(writer.spark, number), LATE_ROWS: 0}
    watermark = checkpoints.watermark(tables.checkpoint, number)
    if writer.source.compares_with_silver and watermark:
        time = quote_identifier(writer.source.event_time)
        is_late = f"where {time} <= to_timestamp_millis({watermark})"
        rows = delta_tables.select_added_rows(tables.silver, batch.version, "count(*)", is_late)
        counts[LATE_ROWS] = sum(count for (count,) in rows)
    return counts


def complete_older_batches(writer: SilverWriter, batches: range) -> dict[int, BatchCounts]:
    """Insert the late rows of unrecorded batches of an older version, and return their counts.

    It inserted them as it recorded a batch, without a transaction.
    """
    if not batches or not writer.drops_late_rows:
        return {}
    query = checkpoints.query_id(writer.tables.checkpoint)
    written = delta_log.transactions(writer.tables.silver, batches.start, query)
    older = {each.number for each in written if not each.user_metadata} & {*batches}
    return {number: _complete_older_batch(writer, number, query) for number in sorted(older)}


def _complete_older_batch(writer: SilverWriter, number: int, query: str) -> BatchCounts:
    tables, spark = writer.tables, writer.spark
    read = dropped = tables.rows_read(spark, number)
    for table in (tables.silver, tables.quarantine):
        dropped -= delta_log.rows_by_transaction(table, query, number).get(number, 0)
    if not dropped:
        return BatchCounts(read)
    writer.write_late_rows(number)
    # Spark's deduplication drops rows by the watermark of the batch before.
    row = [*writer.source.keys, *writer.source.silver_origin_columns, INGESTED_AT]
    late = writer.late_rows(number, number - 1).select(row).distinct()
    silver, quarantine = (
        spark.read.format("delta").load(str(table)) for table in (tables.silver, tables.quarantine)
    )
    inserted = late.join(silver.select(row), row, "semi").count()
    rules = [*writer.lookup_rules, *[LATE_RULE] * writer.quarantines_late]
    if rules:
        quarantined = writer.validated(quarantine, rules).select(row)
        dropped -= late.join(quarantined, row, "semi").count()
    return BatchCounts(read, dropped - inserted, inserted)
