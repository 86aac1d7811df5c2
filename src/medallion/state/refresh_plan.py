"""The refresh plan: a file with the remaining steps, so that the next run completes a refresh."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from medallion.errors import MedallionError
from medallion.storage.paths import Layout, StoragePath
from medallion.storage.text import printable


@dataclass(frozen=True)
class RefreshPlan:
    """The remaining steps.

    Attributes:
        table: the table that was rebuilt last.
        built: the staged tables that still have to replace the old ones.
        query: the id of the query that built them.
        batch: the last batch of that query.
        row: the row for `ops.runs`.
        then: the tables to rebuild after it, in this order.
    """

    table: str
    built: tuple[str, ...] = ()
    query: str = ""
    batch: int = -1
    row: Mapping[str, Any] = field(default_factory=dict)
    then: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[str, ...]:
        """Return the tables whose queries cannot continue: partly rebuilt, or to be rebuilt."""
        return (self.table, *self.then) if self.built else self.then


@dataclass(frozen=True)
class StagingLayout(Layout):
    """A layout in which the named tables, and their checkpoints, have staging paths."""

    names: tuple[str, ...] = ()

    def table(self, name: str) -> StoragePath:
        """Return the path of a table, in `_refresh/` if it is being built."""
        return super().table(name) if name not in self.names else self.refresh_plan.parent / name

    def checkpoint(self, query: str, ahead: int = 0) -> StoragePath:
        """Return the path of a checkpoint, the next generation if its table is being built."""
        return super().checkpoint(query, ahead + (query in self.names))


def read_plan(layout: Layout) -> RefreshPlan | None:
    """Return the plan; None if there is none.

    Raises:
        MedallionError: it is damaged.
    """
    file = layout.refresh_plan
    if not file.is_stored():
        return None
    try:
        plan = json.loads(file.read())
        return RefreshPlan(**{**plan, "built": tuple(plan["built"]), "then": tuple(plan["then"])})
    except (ValueError, LookupError, TypeError) as error:
        raise MedallionError(
            f"{file} is damaged ({printable(str(error))}), and a table may be partly replaced. "
            "Delete it, and run medallion refresh for each silver table, which also rebuilds the "
            "gold tables that read it."
        ) from None


def pending_tables(layout: Layout) -> tuple[str, ...]:
    """Return the tables that still have to be rebuilt."""
    plan = read_plan(layout)
    return plan.pending if plan else ()


def is_refreshing(layout: Layout, layers: Sequence[str]) -> bool:
    """Return whether a table is being rebuilt, or is partly rebuilt.

    Args:
        layout: the paths of the lakehouse.
        layers: the layers whose locks the caller holds; a refresh holds gold's.
    """
    if "gold" not in layers:
        return layout.refresh_plan.parent.is_stored()
    plan = read_plan(layout)
    return bool(plan and plan.built)


def resume_plan(layout: Layout) -> tuple[str, ...]:
    """Return the tables that still have to be rebuilt, before a new rebuild starts.

    The staged tables of an interrupted swap are outdated: that table is rebuilt again.
    """
    plan = read_plan(layout)
    if plan and plan.built:
        write_plan(layout, RefreshPlan(plan.table, then=plan.pending))
    return plan.pending if plan else ()


def write_plan(layout: Layout, plan: RefreshPlan) -> None:
    """Write the plan atomically; if nothing remains to do, delete it and the staged tables."""
    file = layout.refresh_plan
    if plan.built or plan.then:
        file.write_atomic(json.dumps(asdict(plan)))
    else:
        file.delete()
        remove_unfinished(layout)


def remove_unfinished(layout: Layout) -> None:
    """Remove staged tables without a plan, left by a refresh that failed or was killed.

    The caller holds the lock of gold, without which nothing is rebuilt.
    """
    if not layout.refresh_plan.is_stored():
        staged = layout.refresh_plan.parent
        for table in staged.children():
            layout.checkpoint(table.name, ahead=1).delete_prefix()
        staged.delete_prefix()
