"""OpenLineage events of a run: the inputs and outputs of each query, with columns and rows."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from medallion.config.model import Config
from medallion.config.queries import Query, queries
from medallion.config.tables import ToKafka
from medallion.errors import MedallionError
from medallion.state.runs import FAILED, RecordedRun, RunRecords
from medallion.storage import delta_tables
from medallion.storage.paths import PUBLISH
from medallion.storage.text import Reporter, error_reason

if TYPE_CHECKING:
    from openlineage.client.event_v2 import InputDataset, OutputDataset, RunEvent

_PRODUCER = "https://pypi.org/project/medallion"


def report_run(config: Config, runs: RunRecords, report: Reporter) -> None:
    """Send the events of a command's queries, if so configured; a failure is only reported.

    Args:
        config: the configuration.
        runs: the record, which has the rows of this command.
        report: reports that the events were not sent.
    """
    if config.monitoring.openlineage is None:
        return
    try:
        from openlineage.client import OpenLineageClient  # here: an optional package

        client = OpenLineageClient()
        for event in run_events(config, runs):
            client.emit(event)
        client.close()
    except ImportError:
        report("openlineage: no events were sent: pip install 'medallion[openlineage]'.")
    except Exception as error:  # of any transport
        report(f"openlineage: events were not sent: {type(error).__name__}: {error_reason(error)}")


def run_events(config: Config, runs: RunRecords) -> Iterator[RunEvent]:
    """Yield the start and the end of each query that this command recorded."""
    from openlineage.client import event_v2, set_producer

    assert config.monitoring.openlineage is not None
    set_producer(_PRODUCER)
    namespace = config.monitoring.openlineage.namespace
    by_name = {query.name: query for query in queries(config)}
    for recorded in runs.recorded_runs():
        query = by_name.get(recorded.query)
        if query is None:
            continue
        # The same id if the events are sent again.
        run = event_v2.Run(str(uuid.uuid5(uuid.UUID(runs.run_id), query.name)))
        job = event_v2.Job(namespace, query.name)
        inputs, outputs = _inputs(config, query, recorded), _outputs(config, query, recorded)
        end = "FAIL" if recorded.state == FAILED else "COMPLETE"
        for state, at in (("START", recorded.started_at), (end, recorded.ended_at)):
            yield event_v2.RunEvent(
                eventType=event_v2.RunState[state],
                eventTime=datetime.fromtimestamp(at / 1e6, UTC).isoformat(),
                run=run,
                job=job,
                inputs=inputs,
                outputs=outputs,
                producer=_PRODUCER,
            )


def _inputs(config: Config, query: Query, run: RecordedRun) -> list[InputDataset]:
    """Return the folders or topics that a query of bronze reads, or the tables of another."""
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    facet = statistics.InputStatisticsInputDatasetFacet
    names = [_table_name(config, table) for table in query.upstream]
    source = config.sources[query.source]
    if not query.upstream and source.stream:
        names = [(f"kafka://{source.stream.servers[0]}", topic) for topic in source.stream.topics]
    elif not query.upstream:
        names = [("file", str(folder)) for folder in source.folders_in(config.layout)]
    # The rows of several inputs are not counted by input.
    facets: Any = {"inputStatistics": facet(rowCount=run.rows_in)} if len(names) == 1 else {}
    schemas: list[dict[str, Any]] = [_schema(config, table) for table in query.upstream]
    return [
        event_v2.InputDataset(*name, inputFacets=facets, facets=schemas[at] if schemas else {})
        for at, name in enumerate(names)
    ]


def _outputs(config: Config, query: Query, run: RecordedRun) -> list[OutputDataset]:
    """Return the tables that a query writes, or the folder or topic to which it publishes."""
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    facet = statistics.OutputStatisticsOutputDatasetFacet
    outputs = [
        (_table_name(config, table), rows, _schema(config, table))
        for table, rows in zip(query.targets, (run.rows_out, run.quarantined_rows), strict=False)
    ]
    if query.layer == PUBLISH:
        _, table, output = query.name.split(".")
        to, name = config.gold[table].outputs[output], ("file", str(config.layout.published(table)))
        if isinstance(to, ToKafka):
            name = (f"kafka://{to.servers[0]}", to.topic)
        outputs = [(name, run.rows_out, {})]
    return [
        event_v2.OutputDataset(
            *name, outputFacets={"outputStatistics": facet(rowCount=rows)}, facets=schema
        )
        for name, rows, schema in outputs
    ]


def _table_name(config: Config, table: str) -> tuple[str, str]:
    """Return namespace and name of a table, as OpenLineage names files."""
    return "file", str(config.layout.table(table))


def _schema(config: Config, table: str) -> dict[str, Any]:
    """Return the facet of a table's columns; none if it cannot be read."""
    from openlineage.client.facet_v2 import schema_dataset

    path = config.layout.table(table)
    try:
        columns = delta_tables.open_table(path).schema().fields
    except MedallionError:
        return {}
    facet = schema_dataset.SchemaDatasetFacetFields
    fields = [facet(name=each.name, type=str(each.type)) for each in columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields=fields)} if fields else {}
