"""A silver or gold table rebuilt from the layer before it, with those that are made of it; and a
bronze table rewritten under another schema, from its own rows.

The new table and its checkpoint are built in `_refresh/`, and then put in the place of the old ones
(`swap`). What is left to do is written down first (`ops.refresh_plan`): where a process is cut off,
the next one finishes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medallion.config.model import Config
from medallion.config.queries import layers_in_use, query_names
from medallion.errors import MedallionError, UsageError
from medallion.layers.bronze.flow import Bronze
from medallion.layers.flow import Flow
from medallion.layers.publish.flow import Publish
from medallion.runtime.graph import Pipeline
from medallion.runtime.recorder import flow_row, record_flows
from medallion.runtime.swap import clear, swap
from medallion.spark import checkpoints
from medallion.spark.errors import as_medallion_error, combine_errors
from medallion.spark.query import AVAILABLE_NOW, trigger_options
from medallion.spark.watch import Watch
from medallion.state import refresh_plan
from medallion.state.runs import REFRESHED
from medallion.storage import clock, delta_tables
from medallion.storage.paths import PUBLISH, layer_of
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import counted


def layers_of(config: Config, table: str) -> tuple[str, ...]:
    """The layers whose locks a refresh needs.

    Raises:
        UsageError: it is no table that can be built from another one.
    """
    layers = layers_in_use(config)
    known = query_names(config, layers)
    if table not in known:
        raise UsageError(f"{table} cannot be rebuilt; these can: {', '.join(known)}.")
    return layers[layers.index(layer_of(table)) :]


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
    if first == "bronze":
        flow = pipeline.flow(table)
        assert isinstance(flow, Bronze), "names of bronze are those of its queries"
        if not delta_tables.table_exists(pipeline.config.layout.table(table)):
            raise UsageError(f"{table} is not there yet: nothing has been ingested.")
        _recast(pipeline, flow, can_rewrite=True)
        _finish_all(pipeline, later)
        return
    pipeline.refuse_if_blocked([pipeline.flow(table)])
    # What is published of a table reads what a refresh has changed, as it reads any change.
    rebuilt = (flow for layer in later for flow in pipeline.flows(layer) if flow.targets)
    _rebuild(pipeline, table, [flow.name for flow in rebuilt if table in flow.upstream])
    _finish_all(pipeline, (first, *later))


def _finish_all(pipeline: Pipeline, layers: Sequence[str]) -> None:
    """Rebuild what a refresh has left in these layers; raise MedallionError for what cannot be."""
    if failures := [error for layer in layers for _, error in finish(pipeline, layer)]:
        raise combine_errors(failures)


def _recast(pipeline: Pipeline, flow: Bronze, can_rewrite: bool = False) -> None:
    """Rewrite a bronze table under its source's newest schema, from its own rows.

    The plan comes first, which has silver and gold rebuilt: their checkpoints know the old table.
    The table changes in one commit, so that a process that dies leaves the old or the new one.

    Args:
        pipeline: with the locks of all layers.
        flow: bronze's.
        can_rewrite: whether the configuration may change types, as a user asked for the refresh.
    """
    layout, (table,) = pipeline.config.layout, flow.target_paths
    schema, started = flow.schema(can_rewrite), clock.now_micros()
    schema.add_configured_fields()
    silver = f"silver.{flow.source.name}"
    queries = (each for layer in ("silver", "gold") for each in pipeline.flows(layer))
    readers = [each.name for each in queries if {flow.name, silver} & {*each.upstream}]
    built = [name for name in readers if delta_tables.table_exists(layout.table(name))]
    left = dict.fromkeys((*built, *refresh_plan.resume_plan(layout)))
    refresh_plan.write_plan(layout, refresh_plan.RefreshPlan(flow.name, then=tuple(left)))
    rows, before = _rescued(table)
    flow.rewrite_table(schema)
    sums = pipeline.runs.run_state.totals_of(flow.name)
    row = {"kind": "query", "query": flow.name, "state": REFRESHED, "batches": 0}
    row |= {"started_at": started, "seconds": (clock.now_micros() - started) / 1e6}
    # The record starts again with this row, so it repeats what was recorded until now.
    row |= {"rows_in": sums.rows_in, "last_batch": sums.last_batch}
    pipeline.runs.write([row | {"rows_out": 0, "table_version": delta_tables.table_version(table)}])
    _, after = _rescued(table)
    pipeline.say(
        f"refresh   {flow.name}: {counted(rows, 'row')} rewritten; {before:,} had rescued values "
        f"before, {after:,} now"
    )


def _rescued(table: Path) -> tuple[int, int]:
    """Return the rows of a bronze table, and those among them with rescued values."""
    (counts,) = delta_tables.select_rows(table, f"count(*), count({RESCUED})")
    return int(counts[0]), int(counts[1])


def _recast_if_due(pipeline: Pipeline, flows: Sequence[Flow]) -> list[Flow]:
    """Rewrite the bronze tables whose columns have other types than their schema.

    Returns:
        The flows whose tables were rewritten. What is wrong with the others, their start reports.
    """
    done = list[Flow]()
    for flow in flows:
        with suppress(MedallionError):
            if isinstance(flow, Bronze) and flow.needs_rewrite():
                _recast(pipeline, flow)
                done.append(flow)
    return done


def _publish_anew(pipeline: Pipeline, name: str) -> None:
    """Send all rows of a table to an output as if it had got none; files that it has go."""
    flow = pipeline.flow(name)
    assert isinstance(flow, Publish), "names of outputs are those of no other queries"
    pipeline.check_inputs(flow)
    flow.reset(pipeline.runs.last_batch(name))
    if not pipeline.start_flow(flow, trigger_options(AVAILABLE_NOW)):
        raise UsageError(f"{name} waits: {flow.unknown_schema_reason()}.")
    Watch(pipeline.say).await_all([flow.started_run])
    sent = sum(map(flow.sent, flow.started_run.batches.values()))
    if failures := record_flows(pipeline.config, pipeline.runs, [flow]):
        raise next(iter(failures.values()))
    pipeline.say(f"refresh   {name}: {counted(sent, 'row')} published anew")


def run_layer(
    pipeline: Pipeline, layer: str, without: AbstractSet[str] = frozenset()
) -> list[tuple[Flow, MedallionError]]:
    """Do what a refresh has left to do in one layer, and then all that the layer has to do.

    Args:
        layer: its lock is held, and that of gold.
        without: sources whose rows are to stay where they are.

    Returns:
        Why some tables could not be rebuilt, or some queries failed; the others have ended well.

    Raises:
        MedallionError: the layer is held back.
    """
    failures = finish(pipeline, layer, without)
    unbuilt = {flow.name for flow, _ in failures}
    flows = [flow for flow in pipeline.flows(layer) if not flow.source_names & without]
    flows = [flow for flow in flows if flow.name not in unbuilt]
    _recast_if_due(pipeline, flows)
    failed = pipeline.run_flows(flows)
    # A batch whose values need a wider type stops before it writes.
    if rewritten := {flow.name for flow in _recast_if_due(pipeline, [flow for flow, _ in failed])}:
        failed = [(flow, error) for flow, error in failed if flow.name not in rewritten]
        failed += pipeline.run_flows([pipeline.flow(name) for name in rewritten])
    return failures + failed


def finish(
    pipeline: Pipeline, layer: str, without: AbstractSet[str] = frozenset()
) -> list[tuple[Flow, MedallionError]]:
    """Rebuild the tables of one layer that a refresh has left to be rebuilt; none of gold while a
    gate holds that back.

    A silver table whose swap could not be ended is among them. It comes in its own layer's turn, so
    that whoever rebuilds it has its lock, and a night asks its gate before gold reads it. Arguments
    and answer are those of `run_layer`.
    """
    layout, failures = pipeline.config.layout, list[tuple[Flow, MedallionError]]()
    for table in refresh_plan.pending_tables(layout):
        if layer_of(table) != layer:
            continue
        if table not in query_names(pipeline.config):  # the configuration has given it up
            rest = tuple(other for other in refresh_plan.pending_tables(layout) if other != table)
            refresh_plan.write_plan(layout, refresh_plan.RefreshPlan(table, then=rest))
            continue
        flow = pipeline.flow(table)
        if pipeline.blocking_gates([flow]):
            pipeline.say(f"refresh   {table}: when gold is no longer held back")
        elif not flow.source_names & without and (error := _failure(pipeline, table)):
            failures.append((flow, error))
    return failures


def rebuild_if_left(pipeline: Pipeline, flow: Flow) -> None:
    """Rebuild a table, if a refresh has left that to do; raises MedallionError where it cannot."""
    _recast_if_due(pipeline, [flow])
    if flow.name in refresh_plan.pending_tables(pipeline.config.layout):
        _rebuild(pipeline, flow.name)


def take_up_late(
    pipeline: Pipeline, without: AbstractSet[str] = frozenset()
) -> list[MedallionError]:
    """Make the tables of gold anew for which rows came too late: of joins, whose state had gone.

    Args:
        without: sources whose rows are to stay where they are.

    Returns:
        Why some could not be made.
    """
    flows = pipeline.flows("gold")
    if pipeline.blocking_gates(flows):
        return []
    left = refresh_plan.pending_tables(pipeline.config.layout)  # those are for `finish`
    late = [
        flow.name
        for flow in flows
        if pipeline.runs.late_rows(flow.name) and not flow.source_names & without
    ]
    return [e for table in late if table not in left and (e := _failure(pipeline, table))]


def _failure(pipeline: Pipeline, table: str) -> MedallionError | None:
    """Rebuild one table; why it cannot be, which is not the others' trouble."""
    try:
        _rebuild(pipeline, table)
    except Exception as error:
        return as_medallion_error(error, f"{table} cannot be rebuilt")
    return None


def _rebuild(pipeline: Pipeline, table: str, readers: Sequence[str] = ()) -> None:
    """Build one table beside the old one, and put it in its place.

    Args:
        readers: tables that are to be rebuilt after it; what an earlier refresh has left comes
            after those.
    """
    layout = pipeline.config.layout
    left = refresh_plan.resume_plan(layout)
    old = pipeline.flow(table)
    _refuse_before(old, left)
    built = old.targets
    area = refresh_plan.StagingLayout(layout.root, built)
    clear(area, table)
    staged = replace(pipeline, config=replace(pipeline.config, layout=area))
    flow = staged.flow(table)
    if not staged.start_flow(flow, trigger_options(AVAILABLE_NOW), is_new=True):
        raise UsageError(f"{table} cannot be rebuilt yet: {flow.unknown_schema_reason()}.")
    Watch(pipeline.say).await_all([flow.started_run])
    row = flow_row(staged.config, staged.runs, flow, flow.finish_batches(-1), is_new=True)
    row |= {"run_id": pipeline.run_id, "command": f"refresh {table}", "state": REFRESHED}
    before = delta_tables.row_count(layout.table(table))
    checkpoint = area.checkpoint(table)
    query, batch = checkpoints.query_id(checkpoint), checkpoints.last_committed(checkpoint)
    then = tuple(name for name in dict.fromkeys((*readers, *left)) if name != table)
    plan = refresh_plan.RefreshPlan(table, tuple(built), query, batch, row, then)
    refresh_plan.write_plan(layout, plan)
    swap(pipeline.spark, pipeline.config, pipeline.runs, plan)
    now = delta_tables.row_count(layout.table(table))
    pipeline.say(f"refresh   {table}: {counted(before, 'row')} before, {now:,} now")


def _refuse_before(flow: Flow, left: Sequence[str]) -> None:
    """Raise MedallionError where a table that it reads is to be rebuilt first."""
    if old := [name for name in flow.upstream if name in left]:
        raise MedallionError(
            f"{flow.name} waits for {old[0]}, which a refresh has left to be rebuilt: "
            f"medallion refresh {old[0]} rebuilds both."
        )
