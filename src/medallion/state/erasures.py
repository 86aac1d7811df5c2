"""Erasures: the plan of a running or interrupted one, and their record, `ops.erasures`.

The plan has the condition, because each step may have to be repeated. It is deleted at the end; the
record has only a hash of the condition.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

from medallion.errors import MedallionError
from medallion.storage import delta_tables, records
from medallion.storage.paths import Layout
from medallion.storage.table_specs import TableSpec

TABLE = "ops.erasures"


class Action(StrEnum):
    """The column `action` of `ops.erasures`: what was done with a table, a file or a partition."""

    ERASED = "erased"
    REBUILT = "rebuilt"
    REWRITTEN = "rewritten"
    DELETED = "deleted"
    GONE = "gone"  # a file that was deleted or overwritten before
    KEPT = "kept"  # a file outside of the source's folders, or messages of a topic


@dataclass(frozen=True)
class ErasedOrigin:
    """The rows to erase from one file, or from one partition of a topic.

    Attributes:
        path: the path in the ledger, or `topic/partition`.
        rows: the number of rows in bronze that match.
        action: what happens to the file.
        version: the version of the path in the ledger; 0 for a partition.
        location: the current path of a file; empty for a partition.
    """

    path: str
    rows: int
    action: Action
    version: int = 0
    location: str = ""


@dataclass(frozen=True)
class ErasurePlan:
    """One erasure.

    Attributes:
        id: identifies it in `ops.erasures`.
        table: the silver table, as `silver.orders`.
        condition: SQL over its columns.
        purge: whether data files and commits of older versions are removed at once.
        started_at: microseconds since 1970.
        rows: the number of matching rows by table.
        undecided: the number of rows in bronze for which the condition is null.
        origins: the files or partitions of these rows.
        rebuilt: the gold tables that follow.
        done: the steps that are complete.
    """

    id: str
    table: str
    condition: str
    purge: bool
    started_at: int
    rows: Mapping[str, int]
    undecided: int = 0
    origins: tuple[ErasedOrigin, ...] = ()
    rebuilt: tuple[str, ...] = ()
    done: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        """The source whose rows are erased."""
        return self.table.partition(".")[2]

    @property
    def has_rows(self) -> bool:
        """Return whether any row matches."""
        return any(self.rows.values())


def read_plan(layout: Layout) -> ErasurePlan | None:
    """Return the plan of an unfinished erasure; None if there is none.

    Raises:
        MedallionError: it is damaged.
    """
    file = layout.erasure_plan
    if not file.is_stored():
        return None
    try:
        plan = json.loads(file.read())
        origins = tuple(
            ErasedOrigin(**{**each, "action": Action(each["action"])}) for each in plan["origins"]
        )
        lists = {name: tuple(plan[name]) for name in ("rebuilt", "done")}
        return ErasurePlan(**{**plan, "origins": origins, **lists})
    except (ValueError, LookupError, TypeError):
        raise MedallionError(
            f"{file} is damaged, and an erasure is incomplete. Restore the whole root from one "
            "backup, and run medallion erase again."
        ) from None


def write_plan(layout: Layout, plan: ErasurePlan) -> None:
    """Write the plan atomically and durably."""
    layout.erasure_plan.write_atomic(json.dumps(asdict(plan)))


def delete_plan(layout: Layout) -> None:
    """Delete the plan, and the condition with it."""
    layout.erasure_plan.parent.delete_prefix()


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


def record(layout: Layout, plan: ErasurePlan, now: int) -> None:
    """Add an erasure to `ops.erasures` in one commit, unless it is there already."""
    table = layout.table(TABLE)
    if delta_tables.select_rows(table, "erasure", f"where erasure = '{plan.id}' limit 1"):
        return
    items: list[tuple[str, Action, int | None]] = [
        *((table, Action.ERASED, rows) for table, rows in plan.rows.items()),
        *((origin.path, origin.action, origin.rows) for origin in plan.origins),
        *((table, Action.REBUILT, None) for table in plan.rebuilt),
    ]
    digest = hashlib.sha256(plan.condition.encode()).hexdigest()
    rows = [ErasureRow(plan.id, plan.source, digest, now, *item) for item in items]
    records.append_records(table, TableSpec(_COLUMNS), map(asdict, rows))


def erased_rows(layout: Layout, source: str, item: str) -> int:
    """Return the number of rows that all erasures have removed; no JVM.

    Args:
        layout: the paths of the lakehouse.
        source: the source of the rows.
        item: a table, the path of a file, or `topic/partition`.
    """
    quoted = item.replace("'", "''")
    where = f"where source = '{source}' and item = '{quoted}'"
    ((total,),) = delta_tables.select_rows(layout.table(TABLE), "sum(rows)", where) or [(0,)]
    return int(total or 0)
