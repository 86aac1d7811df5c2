"""Rebuilds of silver and gold tables from the layer before, and of bronze from its own rows.

A new table and its checkpoint are built in `_refresh/`, and then replace the old ones: see
`resume`. The journal has each table that is built, or is still to be rebuilt.
"""

from collections.abc import Collection, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from typing import cast

from medallion.config.expressions import did_you_mean
from medallion.config.model import Config
from medallion.config.queries import layers_in_use, query_names, readers
from medallion.errors import MedallionError, UsageError
from medallion.layers.bronze.flow import Bronze
from medallion.layers.flow import Flow
from medallion.layers.publish import Publish
from medallion.runtime.pipeline import Pipeline
from medallion.runtime.recorder import flow_row, record_flows
from medallion.runtime.resume import swap_tables
from medallion.spark import checkpoints
from medallion.spark.errors import as_medallion_error, raise_combined
from medallion.spark.query import AVAILABLE_NOW, trigger_options
from medallion.spark.watch import await_all
from medallion.state import journal
from medallion.state.journal import Entry, Rebuild
from medallion.state.runs import REFRESHED, run_row
from medallion.storage import clock, delta_tables
from medallion.storage.layout import PUBLISH, StagingLayout, layer_of
from medallion.storage.paths import StoragePath
from medallion.storage.table_specs import RESCUED
from medallion.storage.text import counted

Failures = list[tuple[Flow, MedallionError]]
"""The flows that failed, or whose tables could not be rebuilt, each with its error."""


def layers_to_lock(config: Config, *tables: str) -> tuple[str, ...]:
    """Return the layers whose locks a refresh of tables needs.

    Raises:
        UsageError: one of the tables cannot be rebuilt.
    """
    layers = layers_in_use(config)
    known = query_names(config, layers)
    for table in tables:
        if table not in known:
            hint = did_you_mean(table, known) or f"; these can: {', '.join(known)}"
            raise UsageError(f"{table} cannot be rebuilt{hint}.")
    return layers[min(layers.index(layer_of(table)) for table in tables) :]


def refresh_tables(pipeline: Pipeline, tables: Collection[str]) -> None:
    """Rebuild tables in the order of their queries, each once; see `refresh_table`."""
    rebuilt = set[str]()
    for table in query_names(pipeline.config, layers_in_use(pipeline.config)):
        if table in tables and table not in rebuilt:
            refresh_table(pipeline, table)
            targets = pipeline.flow(table).targets
            rebuilt |= {q.name for q in readers(pipeline.config, targets) if q.targets}


def refresh_table(pipeline: Pipeline, table: str) -> None:
    """Rebuild a table, and all tables that are built from it.

    Silver can be rebuilt while a gate blocks gold, as that may repair the rows. Its gold tables are
    then rebuilt by the nightly run that passes the gate.

    Raises:
        MedallionError: a table cannot be rebuilt (the others are), or a gate blocks it.
    """
    first, *later = layers_to_lock(pipeline.config, table)
    if first == PUBLISH:
        publish_all_again(pipeline, table)
        return
    if first == "bronze":
        if not delta_tables.table_exists(pipeline.config.layout.table(table)):
            raise UsageError(f"{table} does not exist yet: nothing has been ingested.")
        _rewrite_bronze(pipeline, cast(Bronze, pipeline.flow(table)), can_rewrite=True)
        _rebuild_all_pending(pipeline, later)
        return
    if source := pipeline.config.silver_source(table):  # a log of changes and its table
        table = source.rows_table
    pipeline.refuse_if_blocked(pipeline.flow(table))
    # Outputs are left out: they read the changes of a refresh like any others.
    _rebuild(pipeline, table, with_readers=True)
    _rebuild_all_pending(pipeline, (first, *later))


def apply_edits(pipeline: Pipeline, tables: Collection[str]) -> None:
    """Rebuild tables whose definition was edited; if it is interrupted, the next run continues.

    Args:
        pipeline: with the locks of all layers.
        tables: the edited tables, and the tables that read them.

    Raises:
        MedallionError: a table cannot be rebuilt; the others are.
    """
    journal.require_rebuilds(pipeline.config, tables)
    for flow in pipeline.flows("bronze"):
        if {reader.name for reader in readers(pipeline.config, flow.targets)} & {*tables}:
            with suppress(MedallionError):  # the next run reports it
                pipeline.start_flow(flow, None)  # it gets the fields that silver names now
    _rebuild_all_pending(pipeline, ("silver", "gold"))


def _rebuild_all_pending(pipeline: Pipeline, layers: Sequence[str]) -> None:
    """Rebuild the pending tables of these layers; raise one MedallionError for all failures."""
    raise_combined(error for layer in layers for _, error in rebuild_pending(pipeline, layer))


def _rewrite_bronze(pipeline: Pipeline, flow: Bronze, can_rewrite: bool = False) -> None:
    """Rewrite a bronze table under its source's newest schema, from its own rows.

    Silver and gold are rebuilt, as their checkpoints refer to the old table. The table changes in
    one commit.

    Args:
        pipeline: with the locks of all layers.
        flow: the flow of the table.
        can_rewrite: whether the configuration may change types, because the user asked for it.
    """
    (table,), started = flow.target_paths, clock.now_micros()
    schema = flow.schema(can_rewrite)
    schema.add_configured_fields()
    require_readers(pipeline.config, flow.name)
    rows, before = _count_rescued(table)
    flow.rewrite_table(schema)
    record_rewrite(pipeline, flow, started)
    _, after = _count_rescued(table)
    pipeline.report(
        f"refresh   {flow.name}: {counted(rows, 'row')} rewritten; {before:,} had rescued values "
        f"before, {after:,} now"
    )


def require_readers(config: Config, table: str) -> None:
    """Write that all existing tables that are built from a table have to be rebuilt.

    Call it before the table is replaced: the checkpoints of its readers refer to the old rows.
    """
    names = (query.name for query in readers(config, [table]) if query.targets)
    exists = delta_tables.table_exists
    journal.require_rebuilds(config, [n for n in names if exists(config.layout.table(n))])


def record_rewrite(pipeline: Pipeline, flow: Bronze, started: int) -> None:
    """Record that a bronze table was rewritten; its totals restart there, so repeat them."""
    sums = pipeline.runs.run_state.totals_of(flow.name)
    seconds = (clock.now_micros() - started) / 1e6
    row = run_row("query", flow.name, REFRESHED, started, seconds) | {"batches": 0, "rows_out": 0}
    row |= {"rows_in": sums.rows_in, "last_batch": sums.last_batch}
    version = delta_tables.table_version(flow.target_paths[0])
    pipeline.runs.write([row | {"table_version": version}])


def _count_rescued(table: StoragePath) -> tuple[int, int]:
    """Return the numbers of rows of a bronze table, and of those with rescued values."""
    (counts,) = delta_tables.select_rows(table, f"count(*), count({RESCUED})")
    return int(counts[0]), int(counts[1])


def _rewrite_if_due(pipeline: Pipeline, flows: Sequence[Flow]) -> list[Flow]:
    """Rewrite the bronze tables whose columns have other types than their schema.

    Returns:
        The flows whose tables were rewritten. An error is reported when its flow starts.
    """
    rewritten = list[Flow]()
    for flow in flows:
        with suppress(MedallionError):
            if isinstance(flow, Bronze) and flow.needs_rewrite():
                _rewrite_bronze(pipeline, flow)
                rewritten.append(flow)
    return rewritten


def publish_all_again(pipeline: Pipeline, name: str) -> None:
    """Publish all rows of a table again; the files of the output are removed first."""
    flow = cast(Publish, pipeline.flow(name))
    pipeline.refuse_if_blocked(flow)
    pipeline.check_inputs(flow)
    flow.reset(pipeline.runs.last_batch(name))
    if not pipeline.start_flow(flow, trigger_options(AVAILABLE_NOW)):
        raise UsageError(f"{name} waits: {flow.unknown_schema_reason()}.")
    await_all([flow.started_run])
    sent = sum(map(flow.sent, flow.started_run.batches.values()))
    if failures := record_flows(pipeline.runs, [flow]):
        raise next(iter(failures.values()))
    pipeline.report(f"refresh   {name}: {counted(sent, 'row')} published again")


def run_layer(pipeline: Pipeline, layer: str, without: AbstractSet[str] = frozenset()) -> Failures:
    """Rebuild the pending tables of a layer, and then run all its queries that have work.

    Last, rebuild the gold tables whose join missed late rows.

    Args:
        pipeline: with the locks of the layer and of gold.
        layer: the layer to run.
        without: queries that must not run.

    Returns:
        The flows that could not be rebuilt, or failed, each with its error. A flow that a gate
        blocks is reported and left out.
    """
    failures = rebuild_pending(pipeline, layer, without)
    skipped = {*without, *(flow.name for flow, _ in failures)}
    flows = pipeline.unblocked_flows(f for f in pipeline.flows(layer) if f.name not in skipped)
    _rewrite_if_due(pipeline, flows)
    failed = pipeline.run_flows(flows)
    # A batch whose values need a wider type fails before it writes: rewrite, and run it again.
    if rewritten := {flow.name for flow in _rewrite_if_due(pipeline, [flow for flow, _ in failed])}:
        failed = [(flow, error) for flow, error in failed if flow.name not in rewritten]
        failed += pipeline.run_flows([pipeline.flow(name) for name in rewritten])
    return [*failures, *failed, *(rebuild_late(pipeline, without) if layer == "gold" else ())]


def rebuild_pending(
    pipeline: Pipeline, layer: str, without: AbstractSet[str] = frozenset()
) -> Failures:
    """Rebuild the pending tables of one layer, unless a gate blocks them.

    A silver table whose swap failed is rebuilt with its own layer, so that its lock is held and its
    gate runs before gold reads it.

    Args:
        pipeline: with the locks of the layer and of gold.
        without: queries that must not run.

    Returns:
        The flows whose tables could not be rebuilt, each with its error.
    """
    known, entries = query_names(pipeline.config, [layer]), journal.rebuilds(pipeline.config)
    for table, entry in entries.items():
        if layer_of(table) == layer and table not in known:  # it is not configured any more
            entry.file(pipeline.config.layout).delete()
    return _try_rebuild(pipeline, [table for table in known if table in entries], without)


def rebuild_if_pending(pipeline: Pipeline, flow: Flow) -> None:
    """Rebuild a table if a refresh is pending for it; raise MedallionError if that fails."""
    _rewrite_if_due(pipeline, [flow])
    if flow.name in journal.rebuilds(pipeline.config):
        _rebuild(pipeline, flow.name)


def rebuild_late(pipeline: Pipeline, without: AbstractSet[str] = frozenset()) -> Failures:
    """Rebuild the gold tables whose join missed late rows; see `rebuild_pending`."""
    pending = journal.rebuilds(pipeline.config)  # `rebuild_pending` rebuilds those
    tables = query_names(pipeline.config, ["gold"])
    late = [table for table in tables if pipeline.runs.late_rows(table) and table not in pending]
    return _try_rebuild(pipeline, late, without)


def _try_rebuild(pipeline: Pipeline, tables: Iterable[str], without: AbstractSet[str]) -> Failures:
    """Rebuild tables that no gate blocks; return the flows that failed, each with its error."""
    failures = Failures()
    for table in tables:
        flow = pipeline.flow(table)
        if table in without:
            continue
        if pipeline.blocking_gates(flow):
            pipeline.report(f"refresh   {table}: waits until no gate blocks it")
        else:
            try:
                _rebuild(pipeline, table)
            except Exception as error:
                failures.append((flow, as_medallion_error(error, f"{table} cannot be rebuilt")))
                pending = journal.rebuilds(pipeline.config)
                if table in pending and not pending.keys() & {*flow.upstream}:  # else that is why
                    cause = str(failures[-1][1]).removeprefix(f"{table}: ")
                    entry = replace(pending[table], failure=cause)
                    journal.write_entry(pipeline.config.layout, entry)
    return failures


def _rebuild(pipeline: Pipeline, table: str, with_readers: bool = False) -> None:
    """Build a new table beside the old one, and replace the old one.

    Args:
        pipeline: with the locks of the table's layer and of gold.
        table: the table to rebuild.
        with_readers: whether the tables that are built from it have to be rebuilt, too.
    """
    layout = pipeline.config.layout
    journal.require_rebuilds(pipeline.config)
    pending, old = journal.rebuilds(pipeline.config), pipeline.flow(table)
    if inputs := [name for name in old.upstream if name in pending]:
        raise MedallionError(f"{table} waits for {inputs[0]}, whose refresh is unfinished.")
    staging = StagingLayout(layout.root, old.targets)
    for leftover in (*map(staging.table, old.targets), staging.checkpoint(table)):
        leftover.delete_prefix()
    staged = replace(pipeline, config=replace(pipeline.config, layout=staging))
    flow = staged.flow(table)
    if not staged.start_flow(flow, trigger_options(AVAILABLE_NOW), is_new=True):
        raise UsageError(f"{table} cannot be rebuilt yet: {flow.unknown_schema_reason()}.")
    await_all([flow.started_run])
    row = flow_row(staged.runs, flow, flow.finish_batches(-1), is_new=True)
    row |= {"run_id": pipeline.run_id, "command": f"refresh {table}", "state": REFRESHED}
    before = delta_tables.row_count(layout.table(table))
    checkpoint = staging.checkpoint(table)
    query, batch = checkpoints.query_id(checkpoint), checkpoints.last_committed(checkpoint)
    if with_readers:
        require_readers(pipeline.config, table)
    entry = Entry(table, Rebuild(old.targets, query, batch, row))
    journal.write_entry(layout, entry)
    swap_tables(pipeline, entry)
    now = delta_tables.row_count(layout.table(table))
    pipeline.report(f"refresh   {table}: {counted(before, 'row')} before, {now:,} now")
