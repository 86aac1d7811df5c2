"""A silver or gold table rebuilt from the layer before it, and put in its place at the end.

The new table and its checkpoint are built in `_refresh/`. One Delta commit then overwrites the old
table, so that whoever reads sees a whole one before and after, and the checkpoint follows. What is
to be done is written down first: a process that is cut off there is finished by the next one.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medallion.config.model import Config
from medallion.config.queries import names
from medallion.errors import UsageError
from medallion.lakehouse import specs, storage, tables
from medallion.lakehouse.layout import LAYERS, Layout
from medallion.lakehouse.text import counted
from medallion.ops.runs import REFRESHED
from medallion.pipeline.pipeline import Pipeline
from medallion.pipeline.settlement import row_of
from medallion.spark.query import AVAILABLE_NOW, await_all, trigger
from medallion.spark.watch import Watch


@dataclass(frozen=True)
class Beside(Layout):
    """The layout of a lakehouse whose named tables, and their checkpoints, are built beside it."""

    names: tuple[str, ...] = ()

    def table(self, name: str) -> Path:
        """The table, in `_refresh/` if it is one of those that are built."""
        return super().table(name) if name not in self.names else self.refresh_plan.parent / name

    def checkpoint(self, query: str) -> Path:
        """The checkpoint, likewise."""
        beside = self.refresh_plan.parent / "_checkpoints" / query
        return super().checkpoint(query) if query not in self.names else beside


def layers_of(config: Config, table: str) -> tuple[str, ...]:
    """The layers whose locks a refresh needs.

    Raises:
        UsageError: it is no table that can be built from another one.
    """
    rebuilt = LAYERS[1:]  # bronze is made of files, which may be gone
    known = names(config, rebuilt)
    if table not in known:
        raise UsageError(f"{table} cannot be rebuilt; these can: {', '.join(known)}.")
    return rebuilt[rebuilt.index(table.partition(".")[0]) :]


def refresh(pipeline: Pipeline, table: str) -> None:
    """Rebuild a table, and with a silver table the gold tables that read it.

    While a gate holds rows back from gold, silver can be rebuilt (it may be what puts the rows
    right); its gold tables then wait for the nightly batch in which they pass.

    Raises:
        MedallionError: the table is gold's, and a gate holds rows back from gold.
    """
    _, *later = layers_of(pipeline.config, table)
    if pipeline.flow(table).is_gated:
        pipeline.refuse_held()
    finish(pipeline)
    plan = _plan(pipeline.config.layout)
    left = list(plan["then"]) if plan else []  # what an earlier refresh has left to do
    readers = [f.name for layer in later for f in pipeline.flows(layer) if table in f.upstream]
    then = dict.fromkeys((*readers, *left))
    _rebuild(pipeline, table, [step for step in then if step != table])
    finish(pipeline)


def finish(pipeline: Pipeline) -> None:
    """Do what a refresh has left to do: nothing where there is none, or while gold is held."""
    layout = pipeline.config.layout
    plan = _plan(layout)
    if plan and plan["built"]:
        pipeline.say(f"refresh   {plan['table']}: goes on where it was cut off")
        _swap(pipeline, plan)
        plan = _plan(layout)
    while plan:
        if pipeline.held():
            pipeline.say(f"refresh   {', '.join(plan['then'])}: when gold is no longer held back")
            return
        first, *later = plan["then"]
        if first in names(pipeline.config):
            _rebuild(pipeline, first, later)
        else:  # the configuration has given it up
            _write_plan(layout, {**plan, "then": later})
        plan = _plan(layout)


def take_up_late(pipeline: Pipeline) -> None:
    """Make the tables of gold anew for which rows came too late: of joins, whose state had gone."""
    for flow in pipeline.flows("gold"):
        if pipeline.runs.late_rows(flow.name):
            refresh(pipeline, flow.name)


def cut_off(layout: Layout) -> str | None:
    """The table of a refresh that has something left to do; mostly None."""
    plan = _plan(layout)
    return plan["table"] if plan else None


def _plan(layout: Layout) -> dict[str, Any] | None:
    file = layout.refresh_plan
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _write_plan(layout: Layout, plan: dict[str, Any]) -> None:
    """The plan is there whole, or as it was; with nothing left to do it goes before the rest."""
    file = layout.refresh_plan
    if plan["built"] or plan["then"]:
        storage.write(file, json.dumps(plan))
    else:
        file.unlink(missing_ok=True)
        shutil.rmtree(file.parent)


def _rebuild(pipeline: Pipeline, table: str, then: list[str]) -> None:
    """Build one table beside the old one, and put it in its place."""
    layout = pipeline.config.layout
    built = pipeline.flow(table).targets
    area = Beside(layout.root, built)
    for leftover in (*map(area.table, built), area.checkpoint(table)):
        shutil.rmtree(leftover, ignore_errors=True)
    beside = replace(pipeline, config=replace(pipeline.config, layout=area))
    flow = beside.flow(table)
    if not beside.begin(flow, trigger(AVAILABLE_NOW), is_new=True):
        raise UsageError(
            f"{table} cannot be rebuilt yet: nothing has landed that tells its schema."
        )
    await_all([flow.ran], Watch(pipeline.say).look)
    row = row_of(beside.config, beside.runs, flow, flow.settle(-1))
    row |= {"run_id": pipeline.run_id, "command": f"refresh {table}", "state": REFRESHED}
    before = tables.row_count(layout.table(table))
    plan = {"table": table, "built": built, "row": row, "then": then}
    _write_plan(layout, plan)
    _swap(pipeline, plan)
    now = tables.row_count(layout.table(table))
    pipeline.say(f"refresh   {table}: {counted(before, 'row')} before, {now:,} now")


def _swap(pipeline: Pipeline, plan: dict[str, Any]) -> None:
    """Put what was built in the place of the old tables; every step may be repeated."""
    layout, table = pipeline.config.layout, plan["table"]
    beside = Beside(layout.root, tuple(plan["built"]))
    for name in plan["built"]:
        new = beside.table(name)
        if tables.exists(new):
            frame = pipeline.spark.read.format("delta").load(str(new))
            kept = pipeline.config.maintain.properties(specs.of(name))
            tables.create(layout.table(name), frame.schema.json(), kept)
            writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
            writer.save(str(layout.table(name)))
    if beside.checkpoint(table).is_dir():
        shutil.rmtree(layout.checkpoint(table), ignore_errors=True)
        layout.checkpoint(table).parent.mkdir(parents=True, exist_ok=True)
        beside.checkpoint(table).rename(layout.checkpoint(table))
    # What the table's log counts from now on comes after this version.
    row = plan["row"] | {"table_version": tables.version(layout.table(table))}
    if len(plan["built"]) > 1:
        row["quarantine_version"] = tables.version(layout.table(plan["built"][1]))
    if (row["query"], row["run_id"]) not in pipeline.runs.standing.refreshing_runs:
        pipeline.runs.write([row])
    _write_plan(layout, {**plan, "built": [], "row": {}})
