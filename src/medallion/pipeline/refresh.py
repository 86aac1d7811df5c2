"""A silver or gold table rebuilt from the layer before it, and put in its place at the end.

The new table and its checkpoint are built in `_refresh/`. One Delta commit then overwrites the old
table, so that whoever reads sees a whole one before and after, and the checkpoint follows. What is
to be done is written down first: a process that is cut off there is finished by the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from medallion.config.model import Config
from medallion.config.queries import layers_in_use, names
from medallion.errors import MedallionError, UsageError
from medallion.lakehouse import tables
from medallion.lakehouse.layout import PUBLISH, Layout, layer_of
from medallion.lakehouse.text import counted
from medallion.layers.flow import Flow
from medallion.layers.publish.flow import Publish
from medallion.ops import refresh_plan
from medallion.ops.runs import REFRESHED
from medallion.pipeline.pipeline import Pipeline
from medallion.pipeline.settlement import row_of
from medallion.spark import checkpoints
from medallion.spark.errors import ours, together
from medallion.spark.query import AVAILABLE_NOW, trigger
from medallion.spark.watch import await_end


def layers_of(config: Config, table: str) -> tuple[str, ...]:
    """The layers whose locks a refresh needs.

    Raises:
        UsageError: it is no table that can be built from another one.
    """
    rebuilt = layers_in_use(config)[1:]  # bronze is made of files, which may be gone
    known = names(config, rebuilt)
    if table not in known:
        raise UsageError(f"{table} cannot be rebuilt; these can: {', '.join(known)}.")
    return rebuilt[rebuilt.index(layer_of(table)) :]


def refresh(pipeline: Pipeline, table: str) -> None:
    """Rebuild a table, and with a silver table the gold tables that read it.

    While a gate holds rows back from gold, silver can be rebuilt (it may be what puts the rows
    right); its gold tables then wait for the nightly batch in which they pass.

    Raises:
        MedallionError: a table cannot be rebuilt, and why; the others are. Or the table is gold's,
            and a gate holds rows back from gold.
    """
    first, *later = layers_of(pipeline.config, table)
    if first == PUBLISH:
        _publish_anew(pipeline, table)
        return
    if pipeline.flow(table).is_gated:
        pipeline.refuse_held()
    left = _reopen_plan(pipeline.config.layout)
    # What is published of a table reads what a refresh has changed, as it reads any change.
    rebuilt = (flow for layer in later for flow in pipeline.flows(layer) if flow.targets)
    readers = [flow.name for flow in rebuilt if table in flow.upstream]
    then = dict.fromkeys((*readers, *left))
    _rebuild(pipeline, table, [step for step in then if step != table])
    failures = [error for layer in (first, *later) for _, error in finish(pipeline, layer)]
    if failures:
        raise together(failures)


def _publish_anew(pipeline: Pipeline, name: str) -> None:
    """Send all rows of a table to an output as if it had got none; files that it has go."""
    flow = pipeline.flow(name)
    assert isinstance(flow, Publish), "names of outputs are those of no other queries"
    pipeline.check(flow)
    flow.forget(pipeline.runs.last_batch(name))
    if not pipeline.begin(flow, trigger(AVAILABLE_NOW)):
        raise UsageError(f"{name} waits: nothing has landed that tells its schema.")
    await_end([flow.ran], pipeline.say)
    sent = sum(map(flow.sent, flow.ran.batches.values()))
    if failures := pipeline.settle([flow]):
        raise next(iter(failures.values()))
    pipeline.say(f"refresh   {name}: {counted(sent, 'row')} published anew")


def end_swap(pipeline: Pipeline) -> None:
    """End a refresh that was cut off while it put tables in the place of the old ones."""
    plan = refresh_plan.read(pipeline.config.layout)
    if plan and plan.built:
        pipeline.say(f"refresh   {plan.table}: goes on where it was cut off")
        _swap(pipeline, plan)


def finish(
    pipeline: Pipeline, layer: str, without: AbstractSet[str] = frozenset()
) -> list[tuple[Flow, MedallionError]]:
    """Do what a refresh has left to do in one layer: in gold nothing, while that is held.

    A silver table whose swap could not be ended is among it. It comes in its own layer's turn, so
    that whoever rebuilds it has its lock, and a night asks its gate before gold reads it.

    Args:
        layer: its lock is held, and that of gold.
        without: sources whose rows are to stay where they are.

    Returns:
        Why some tables could not be rebuilt, which are left to do; the others are.
    """
    layout, failures = pipeline.config.layout, list[tuple[Flow, MedallionError]]()
    for table in (left for left in _reopen_plan(layout) if layer_of(left) == layer):
        rest = tuple(other for other in _reopen_plan(layout) if other != table)
        if table not in names(pipeline.config):  # the configuration has given it up
            refresh_plan.write(layout, refresh_plan.Plan(table, then=rest))
            continue
        flow = pipeline.flow(table)
        if flow.is_gated and pipeline.held():
            pipeline.say(f"refresh   {table}: when gold is no longer held back")
        elif not flow.source_names & without and (error := _failure(pipeline, table, rest)):
            failures.append((flow, error))
    return failures


def rebuild_if_left(pipeline: Pipeline, flow: Flow) -> None:
    """Rebuild a table, if a refresh has left that to do; raises MedallionError where it cannot."""
    left = _reopen_plan(pipeline.config.layout)
    if flow.name in left:
        _rebuild(pipeline, flow.name, [table for table in left if table != flow.name])


def take_up_late(
    pipeline: Pipeline, without: AbstractSet[str] = frozenset()
) -> list[MedallionError]:
    """Make the tables of gold anew for which rows came too late: of joins, whose state had gone.

    Args:
        without: sources whose rows are to stay where they are.

    Returns:
        Why some could not be made.
    """
    if pipeline.held():
        return []
    failures = []
    for flow in pipeline.flows("gold"):
        left = _reopen_plan(pipeline.config.layout)
        is_late = pipeline.runs.late_rows(flow.name) and not flow.source_names & without
        if is_late and flow.name not in left:  # those are for `finish`
            failures.append(_failure(pipeline, flow.name, left))
    return [error for error in failures if error]


def _reopen_plan(layout: Layout) -> tuple[str, ...]:
    """What an earlier refresh has left to do. A swap that could not be ended begins with building
    once more: what was built may go then, and must not be taken for put in place."""
    plan = refresh_plan.read(layout)
    if plan and plan.built:
        refresh_plan.write(layout, refresh_plan.Plan(plan.table, then=plan.left))
    return plan.left if plan else ()


def _failure(pipeline: Pipeline, table: str, then: Sequence[str]) -> MedallionError | None:
    """Rebuild one table; why it cannot be, which is not the others' trouble."""
    try:
        _rebuild(pipeline, table, then)
    except Exception as error:
        return ours(error, f"{table} cannot be rebuilt")
    return None


def _rebuild(pipeline: Pipeline, table: str, then: Sequence[str]) -> None:
    """Build one table beside the old one, and put it in its place."""
    layout = pipeline.config.layout
    _refuse_before(pipeline, table)
    built = pipeline.flow(table).targets
    area = refresh_plan.Beside(layout.root, built)
    _clear(area, table)
    beside = replace(pipeline, config=replace(pipeline.config, layout=area))
    flow = beside.flow(table)
    if not beside.begin(flow, trigger(AVAILABLE_NOW), is_new=True):
        raise UsageError(
            f"{table} cannot be rebuilt yet: nothing has landed that tells its schema."
        )
    await_end([flow.ran], pipeline.say)
    row = row_of(beside.config, beside.runs, flow, flow.settle(-1), is_new=True)
    row |= {"run_id": pipeline.run_id, "command": f"refresh {table}", "state": REFRESHED}
    before = tables.row_count(layout.table(table))
    checkpoint = area.checkpoint(table)
    query, batch = checkpoints.query_id(checkpoint), checkpoints.last_committed(checkpoint)
    plan = refresh_plan.Plan(table, tuple(built), query, batch, row, tuple(then))
    refresh_plan.write(layout, plan)
    _swap(pipeline, plan)
    now = tables.row_count(layout.table(table))
    pipeline.say(f"refresh   {table}: {counted(before, 'row')} before, {now:,} now")


def _refuse_before(pipeline: Pipeline, table: str) -> None:
    """Raise MedallionError where a table that it reads is to be rebuilt first."""
    left = refresh_plan.left(pipeline.config.layout)
    if old := [name for name in pipeline.flow(table).upstream if name in left]:
        raise MedallionError(
            f"{table} waits for {old[0]}, which a refresh has left to be rebuilt: "
            f"medallion refresh {old[0]} rebuilds both."
        )


def _swap(pipeline: Pipeline, plan: refresh_plan.Plan) -> None:
    """Put what was built in the place of the old tables; every step may be repeated.

    Raises:
        MedallionError: what was built is gone.
    """
    layout, table = pipeline.config.layout, plan.table
    beside = refresh_plan.Beside(layout.root, plan.built)
    # The tables know the last batch again: should its end be torn, it is not written twice.
    known = {"txnAppId": plan.query, "txnVersion": str(plan.batch)}
    once = known if plan.batch >= 0 else {}
    for name in plan.built:
        new = beside.table(name)
        if not tables.exists(new):
            raise MedallionError(f"{new}, which it has built, is gone")
        frame = pipeline.spark.read.format("delta").load(str(new))
        kept = pipeline.config.maintain.properties(pipeline.config.spec(name))
        tables.create(layout.table(name), frame.schema.json(), kept)
        tables.align(layout.table(name), kept)  # it may be published from now on
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.options(**once).save(str(layout.table(name)))
    place = layout.checkpoint(table)
    if beside.checkpoint(table).is_dir():
        shutil.rmtree(place, ignore_errors=True)
        beside.checkpoint(table).rename(place)
    elif not (place / "metadata").is_file() or checkpoints.query_id(place) != plan.query:
        raise MedallionError(f"{beside.checkpoint(table)}, which it has built, is gone")
    # What the table's log counts from now on comes after this version.
    row = {**plan.row, "table_version": tables.version(layout.table(table))}
    if len(plan.built) > 1:
        row["quarantine_version"] = tables.version(layout.table(plan.built[1]))
    if (row["query"], row["run_id"]) not in pipeline.runs.standing.refreshing_runs:
        pipeline.runs.write([row])
    refresh_plan.write(layout, refresh_plan.Plan(table, then=plan.then))
    _clear(beside, table)


def _clear(beside: refresh_plan.Beside, table: str) -> None:
    """Remove what was built; a copy of a table is large."""
    for leftover in (*map(beside.table, beside.names), beside.checkpoint(table)):
        shutil.rmtree(leftover, ignore_errors=True)
