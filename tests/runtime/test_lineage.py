"""OpenLineage events of a command, from records written by hand, sent to a local server."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from medallion.config.model import Config
from medallion.config.operations import Monitoring, OpenLineage
from medallion.config.tables import ToFiles
from medallion.runtime import lineage
from medallion.state.runs import RunRecords
from medallion.storage import records
from medallion.storage.table_specs import TableSpec
from tests.support.home import Home

RUN_ID = uuid.UUID(int=7)
START = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z


@pytest.fixture
def config(home: Home) -> Config:
    monitoring = Monitoring(openlineage=OpenLineage("shop"))
    config = replace(home.project_config, monitoring=monitoring)
    published = replace(config.gold["action_counts"], outputs={"files": ToFiles("json")})
    return replace(config, gold={**config.gold, "action_counts": published})


def record(config: Config) -> RunRecords:
    """Record a run of four queries, one of which failed."""
    runs = RunRecords(config.layout, run_id=RUN_ID.hex, command="nightly")
    row = {"kind": "query", "state": "done", "started_at": START, "seconds": 2.5}
    batch = {"rows_in": 5, "rows_out": 3}
    runs.write([row | batch | {"query": "bronze.event"}])
    runs.write([row | batch | {"query": "silver.event", "quarantined_rows": 2}])
    later = {"started_at": START + 10_000_000, "rows_in": 1, "rows_out": 1}
    runs.write([row | later | {"query": "silver.event"}])
    runs.write([row | {"query": "gold.action_counts", "state": "failed", "error": "'secret'"}])
    runs.write([row | batch | {"query": "publish.action_counts.files"}])
    runs.write([row | {"kind": "gate", "query": "silver.event", "state": "passed"}])
    other_run = RunRecords(config.layout, run_id="other", command="run gold")
    other_run.write([row | batch | {"query": "silver.activity"}])
    return runs


def test_events_reach_a_server(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"event_at": "timestamp", "action": "string"}
    records.append_records(config.layout.table("silver.event"), TableSpec(columns), [])
    runs, events, messages = record(config), list[Any](), list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            events.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Keep the test's output clean."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("OPENLINEAGE_URL", url)
        lineage.report_run(config, runs, messages.append)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert messages == []
    assert [(e["job"]["name"], e["eventType"]) for e in events] == [
        *(("bronze.event", "START"), ("bronze.event", "COMPLETE")),
        *(("gold.action_counts", "START"), ("gold.action_counts", "FAIL")),
        *(("publish.action_counts.files", "START"), ("publish.action_counts.files", "COMPLETE")),
        *(("silver.event", "START"), ("silver.event", "COMPLETE")),
    ]
    assert {event["job"]["namespace"] for event in events} == {"shop"}
    assert "secret" not in json.dumps(events)

    start, end = events[-2:]
    assert start["run"]["runId"] == end["run"]["runId"] == str(uuid.uuid5(RUN_ID, "silver.event"))
    assert start["eventTime"] == "2023-11-14T22:13:20+00:00"
    assert end["eventTime"] == "2023-11-14T22:13:32.500000+00:00"
    table = config.layout.table
    assert counts(end["inputs"], "inputFacets", "inputStatistics") == {
        ("file", str(table("bronze.event"))): 6
    }
    assert counts(end["outputs"], "outputFacets", "outputStatistics") == {
        ("file", str(table("silver.event"))): 4,
        ("file", str(table("quarantine.event"))): 2,
    }
    fields = end["outputs"][0]["facets"]["schema"]["fields"]
    assert [field["name"] for field in fields] == ["event_at", "action"]
    assert counts(events[1]["inputs"], "inputFacets", "inputStatistics") == {
        ("file", str(config.layout.landing("event"))): 5
    }
    assert counts(events[5]["outputs"], "outputFacets", "outputStatistics") == {
        ("file", str(config.layout.published("action_counts"))): 3
    }


def counts(datasets: list[Any], facets: str, name: str) -> dict[tuple[str, str], int]:
    return {(d["namespace"], d["name"]): d[facets][name]["rowCount"] for d in datasets}


def test_unreachable_server_is_reported(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    messages: list[str] = []
    lineage.report_run(config, record(config), messages.append)
    (message,) = messages
    assert message.startswith("openlineage: events were not sent: ")


def test_lineage_is_off_by_default(home: Home) -> None:
    without_lineage = home.project_config
    assert without_lineage.monitoring == Monitoring()
    lineage.report_run(without_lineage, RunRecords(without_lineage.layout), print)
