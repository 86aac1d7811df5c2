"""What a refresh has left to do, written down: who is cut off in it is finished by the next."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from medallion.errors import MedallionError
from medallion.storage import files
from medallion.storage.paths import Layout, StoragePath
from medallion.storage.text import printable

_BUILT = ".refresh."


@dataclass(frozen=True)
class RefreshPlan:
    """The steps that are left.

    Attributes:
        table: what was rebuilt last.
        built: its tables, while they are still to be put in the place of the old ones.
        query: the id of the query that built them, and `batch` its last batch: what it has written
            is known by these.
        row: what then goes into `ops.runs`.
        then: the tables that are to be rebuilt after it, in this order.
    """

    table: str
    built: tuple[str, ...] = ()
    query: str = ""
    batch: int = -1
    row: Mapping[str, Any] = field(default_factory=dict)
    then: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[str, ...]:
        """The tables whose queries cannot go on: rebuilt by half, or not yet."""
        return (self.table, *self.then) if self.built else self.then


@dataclass(frozen=True)
class StagingLayout(Layout):
    """The layout of a lakehouse whose named tables, and their checkpoints, are built beside it."""

    names: tuple[str, ...] = ()

    def table(self, name: str) -> StoragePath:
        """The table, in `_refresh/` if it is one of those that are built."""
        return super().table(name) if name not in self.names else self.refresh_plan.parent / name

    def checkpoint(self, query: str) -> StoragePath:
        """The checkpoint, likewise, but among the others: there it can be renamed to the old one's
        name, on whatever disk they lie."""
        return super().checkpoint(f"{_BUILT}{query}" if query in self.names else query)


def read_plan(layout: Layout) -> RefreshPlan | None:
    """The plan; mostly there is none.

    Raises:
        MedallionError: it is damaged, and what to do: nobody knows what it said.
    """
    file = layout.refresh_plan
    if not file.is_file():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        return RefreshPlan(
            **{**found, "built": tuple(found["built"]), "then": tuple(found["then"])}
        )
    except (ValueError, LookupError, TypeError) as error:
        raise MedallionError(
            f"{file} is damaged ({printable(str(error))}): it said which tables a refresh has left "
            "to rebuild, and one may be put in its place by half. Move it away, and before "
            "anything else run medallion refresh for each silver table, which rebuilds the gold "
            "tables that read it as well."
        ) from None


def pending_tables(layout: Layout) -> tuple[str, ...]:
    """The tables that the plan has left; none where there is no plan."""
    plan = read_plan(layout)
    return plan.left if plan else ()


def is_refreshing(layout: Layout, layers: Sequence[str]) -> bool:
    """Whether a table is being rebuilt, from all of those that it is made of, or was by half.

    Args:
        layers: those whose locks the caller holds; nobody rebuilds without gold's.
    """
    if "gold" not in layers:
        return layout.refresh_plan.parent.exists()
    plan = read_plan(layout)
    return bool(plan and plan.built)


def resume_plan(layout: Layout) -> tuple[str, ...]:
    """What the plan has left, before another table is built.

    A swap that could not be ended is to be built once more: what was built for it may go now, and
    must not be taken for put in its place.
    """
    plan = read_plan(layout)
    if plan and plan.built:
        write_plan(layout, RefreshPlan(plan.table, then=plan.left))
    return plan.left if plan else ()


def write_plan(layout: Layout, plan: RefreshPlan) -> None:
    """Write the plan, whole or not at all. With nothing left to do it is removed, and after it what
    was built."""
    file = layout.refresh_plan
    if plan.built or plan.then:
        file.parent.mkdir(parents=True, exist_ok=True)
        files.write_atomic(file, json.dumps(asdict(plan)))
    else:
        file.unlink(missing_ok=True)
        remove_unfinished(layout)


def remove_unfinished(layout: Layout) -> None:
    """Remove what was built for no plan: its refresh has failed, or was killed, and begins anew.

    Whoever calls this holds the lock of gold, without which nothing is rebuilt.
    """
    if not layout.refresh_plan.is_file():
        built = layout.checkpoint(f"{_BUILT}*")
        for folder in (layout.refresh_plan.parent, *built.parent.glob(built.name)):
            shutil.rmtree(folder, ignore_errors=True)
