"""Counts of the change records of a source, from their log; no JVM."""

from __future__ import annotations

from dataclasses import dataclass

from medallion.config.model import Config, SourceConfig
from medallion.state import pending_work
from medallion.storage import delta_tables
from medallion.storage.table_specs import INGESTED_AT, IS_DELETE, SEQUENCE


@dataclass(frozen=True)
class ChangeCounts:
    """The change records of a source that are not rows of its table.

    Attributes:
        superseded_rows: those that a later change or delete replaced; in a history none.
        deleted_rows: those that delete their key.
        duplicate_rows: those with the key and the sequence of a later one.
        waiting_rows: those that are not merged yet.
    """

    superseded_rows: int = 0
    deleted_rows: int = 0
    duplicate_rows: int = 0
    waiting_rows: int = 0


def count_changes(config: Config, source: SourceConfig) -> ChangeCounts:
    """Count the changes that the query of the table has read, and those that wait for it."""
    assert source.cdc, f"{source.name} has no change records"
    name, log = f"silver.{source.name}", config.layout.table(source.rows_table)
    if not delta_tables.table_exists(log):
        return ChangeCounts()
    read = pending_work.read_up_to(config, name, log)
    waiting = pending_work.unread_rows_in(read, log)
    # If all is read, the newest version: an older one may have files that are compacted and gone.
    version = read.version - read.is_between_versions if waiting else None
    if version == -1:
        return ChangeCounts(waiting_rows=waiting)
    key = ", ".join(f'"{name}"' for name in source.keys)
    same = f"partition by {key}, {SEQUENCE}"
    last_first = ", ".join((INGESTED_AT, *source.silver_origin_columns, IS_DELETE, ""))
    last_first = last_first.replace(",", " desc,").rstrip(", ")
    numbered = (
        f"select *, row_number() over ({same} order by {last_first}) as copy, "
        f"count(*) over ({same}) as copies from rows"
    )
    deleted_at = (
        f"max(case when {IS_DELETE} then {INGESTED_AT} end) over (partition by {key} "
        f"order by {SEQUENCE} desc rows between unbounded preceding and current row)"
    )
    ordered = f"select *, {deleted_at} as deleted_at from ({numbered}) where copy = 1"
    forgotten_at = f"deleted_at + interval '{source.cdc.tombstone_retention.seconds} seconds'"
    by_key = (
        f"select sum(copies - 1) as duplicates, count(*) as changes, "
        f"count(case when {IS_DELETE} then 1 end) as deletes, count(case when not {IS_DELETE} "
        f"and coalesce({INGESTED_AT} > {forgotten_at}, true) then 1 end) as kept "
        f"from ({ordered}) group by {key}"
    )
    what = "sum(duplicates), sum(deletes), sum(changes - deletes), count(nullif(kept, 0))"
    ((duplicates, deletes, updates, current),) = delta_tables.select_rows(
        log, what, source=f"({by_key})", version=version
    )
    is_history = source.cdc.stored_as_scd_type == 2
    superseded = 0 if is_history else (updates or 0) - current
    return ChangeCounts(superseded, deletes or 0, duplicates or 0, waiting)
