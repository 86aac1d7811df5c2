"""The record of completed erasures, `ops.erasures`, which has only a hash of their conditions."""

import hashlib
from dataclasses import asdict, dataclass

from medallion.state.journal import Action, Erasure
from medallion.storage import delta_tables, records
from medallion.storage.layout import Layout
from medallion.storage.table_specs import TableSpec

TABLE = "ops.erasures"


@dataclass(frozen=True)
class ErasureRow:
    """One row of `ops.erasures`: a table, file or partition of one erasure.

    `rows` is null for a table that was rebuilt. Times are microseconds since 1970.
    """

    erasure: str
    source: str
    condition_sha256: str
    erased_at: int
    item: str
    action: str
    rows: int | None


_COLUMNS = records.record_columns(ErasureRow)


def record(layout: Layout, erasure: Erasure, now: int) -> None:
    """Add an erasure to `ops.erasures` in one commit, unless it is there already."""
    table = layout.table(TABLE)
    if delta_tables.select_rows(table, "erasure", f"where erasure = '{erasure.id}' limit 1"):
        return
    items: list[tuple[str, Action, int | None]] = [
        *((table, Action.ERASED, rows) for table, rows in erasure.rows.items()),
        *((origin.path, origin.action, origin.rows) for origin in erasure.origins),
        *((table, Action.REBUILT, None) for table in erasure.rebuilt),
    ]
    digest = hashlib.sha256(erasure.condition.encode()).hexdigest()
    rows = [ErasureRow(erasure.id, erasure.source, digest, now, *item) for item in items]
    records.append_records(table, TableSpec(_COLUMNS), map(asdict, rows))


def erased_rows(layout: Layout, source: str, item: str) -> int:
    """Return the number of rows that all erasures have removed; no JVM.

    Args:
        source: the source of the rows.
        item: a table, the path of a file, or `topic/partition`.
    """
    quoted = item.replace("'", "''")
    where = f"where source = '{source}' and item = '{quoted}'"
    ((total,),) = delta_tables.select_rows(layout.table(TABLE), "sum(rows)", where) or [(0,)]
    return int(total or 0)
