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

from pyspark.sql import SparkSession

from medallion import accounting, runs, tables
from medallion.config import Config
from medallion.errors import UsageError
from medallion.layers import gold, silver
from medallion.layout import Layout
from medallion.pipeline import Pipeline
from medallion.streams import AVAILABLE_NOW, Run, await_all, trigger

REFRESHED = "refreshed"


@dataclass(frozen=True)
class Beside(Layout):
    """The layout of a lakehouse whose named tables, and their checkpoints, are built beside it."""

    names: tuple[str, ...] = ()

    def table(self, name: str) -> Path:
        """The table, in `_refresh/` if it is one of those that are built."""
        return super().table(name) if name not in self.names else _area(self) / name

    def checkpoint(self, query: str) -> Path:
        """The checkpoint, likewise."""
        beside = _area(self) / "_checkpoints" / query
        return super().checkpoint(query) if query not in self.names else beside


def layers_of(config: Config, table: str) -> tuple[str, ...]:
    """The layers whose locks a refresh needs.

    Raises:
        UsageError: it is no table that can be built from another one.
    """
    layer, _, name = table.partition(".")
    known = {"silver": config.sources, "gold": config.gold}.get(layer, {})
    if name not in known:
        tables_ = [*(f"silver.{s}" for s in config.sources), *(f"gold.{g}" for g in config.gold)]
        raise UsageError(f"{table} cannot be rebuilt; these can: {', '.join(tables_)}.")
    return ("silver", "gold") if layer == "silver" else ("gold",)


def refresh(pipeline: Pipeline, table: str) -> None:
    """Rebuild a table, and with a silver table the gold tables that read it.

    Raises:
        MedallionError: a gate holds rows back from gold.
    """
    layers_of(pipeline.config, table)
    pipeline.refuse_held()
    layer, _, name = table.partition(".")
    steps = [table]
    if layer == "silver":
        steps += [f"gold.{g.name}" for g in pipeline.config.gold.values() if g.source == name]
    for number, step in enumerate(steps):
        _rebuild(pipeline, step, steps[number + 1 :])


def finish(pipeline: Pipeline) -> None:
    """Do what a refresh that was cut off has left to do; nothing where there is none."""
    plan = _plan(pipeline.config.layout)
    if plan is None:
        return
    pipeline.say(f"refresh   {plan['table']}: goes on where it was cut off")
    _swap(pipeline, plan)
    later: list[str] = plan["then"]
    for number, step in enumerate(later):
        _rebuild(pipeline, step, later[number + 1 :])


def cut_off(layout: Layout) -> str | None:
    """The table that a refresh was putting in its place when it was cut off; mostly None."""
    plan = _plan(layout)
    return plan["table"] if plan else None


def _area(layout: Layout) -> Path:
    return layout.root / "_refresh"


def _plan_file(layout: Layout) -> Path:
    return _area(layout) / "plan.json"


def _plan(layout: Layout) -> dict[str, Any] | None:
    file = _plan_file(layout)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def _rebuild(pipeline: Pipeline, table: str, then: list[str]) -> None:
    """Build one table beside the old one, and put it in its place."""
    layout = pipeline.config.layout
    layer, _, name = table.partition(".")
    pipeline.need(table)
    built = (table, f"quarantine.{name}") if layer == "silver" else (table,)
    area = Beside(layout.root, built)
    for leftover in (*map(area.table, built), area.checkpoint(table)):
        shutil.rmtree(leftover, ignore_errors=True)
    beside = replace(pipeline.config, layout=area)
    run = _start(pipeline.spark, beside, layer, name)
    await_all([run])
    figures = _figures(pipeline.spark, beside, layer, name, run)
    row = accounting.row_of(beside, run, figures)
    row |= {"run_id": pipeline.run_id, "command": f"refresh {table}", "state": REFRESHED}
    before = tables.row_count(layout.table(table))
    plan = {"table": table, "built": built, "row": row, "then": then}
    unfinished = _plan_file(layout).with_suffix(".tmp")
    unfinished.write_text(json.dumps(plan), encoding="utf-8")
    unfinished.replace(_plan_file(layout))
    _swap(pipeline, plan)
    now = tables.row_count(layout.table(table))
    pipeline.say(f"refresh   {table}: {before:,} rows before, {now:,} now")


def _start(spark: SparkSession, config: Config, layer: str, name: str) -> Run:
    how = trigger(AVAILABLE_NOW)
    if layer == "gold":
        return gold.start(spark, config, config.gold[name], how)
    return silver.start(spark, config, config.sources[name], how)


def _figures(
    spark: SparkSession, config: Config, layer: str, name: str, run: Run
) -> dict[str, Any]:
    if layer == "silver":
        return accounting.settle_silver(spark, config, config.sources[name], run, -1)
    return {
        "rows_in": sum(batch.rows for batch in run.batches.values()),
        "first_batch": min(run.batches, default=None),
        "last_batch": max(run.batches, default=-1),
    }


def _swap(pipeline: Pipeline, plan: dict[str, Any]) -> None:
    """Put what was built in the place of the old tables; every step may be repeated."""
    layout, table = pipeline.config.layout, plan["table"]
    beside = Beside(layout.root, tuple(plan["built"]))
    for name in plan["built"]:
        new = beside.table(name)
        if (new / "_delta_log").is_dir():
            frame = pipeline.spark.read.format("delta").load(str(new))
            tables.create(layout.table(name), frame.schema.json())
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
    if row["run_id"] not in runs.refreshed(layout, table):
        runs.write(layout, [row])
    if plan["then"]:  # gold's streams cannot go on from a table that was overwritten
        rest = {"table": plan["table"], "built": [], "row": row, "then": plan["then"]}
        _plan_file(layout).write_text(json.dumps(rest), encoding="utf-8")
    else:
        shutil.rmtree(_area(layout))
