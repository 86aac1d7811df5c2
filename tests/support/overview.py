"""An overview that fills every part of the report, with hostile values."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime

from medallion.ingest.schema.registry import SchemaVersion
from medallion.inspect.audit import Audit
from medallion.inspect.balance import Balance
from medallion.inspect.catalog import FirstRows
from medallion.inspect.ledger_files import Attention
from medallion.inspect.overview import Overview, Run
from medallion.inspect.problems import LakehouseVerdict, Problem, ProblemCode
from medallion.inspect.status import QueryStatus
from medallion.inspect.verdict import Observations
from medallion.quality.suites import Failure
from medallion.sql.result import Result
from medallion.state.ledger import Entry
from medallion.state.runs import RunState
from medallion.storage.delta_tables import TableSize

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J"
DAYS = [datetime(2026, 5, day, tzinfo=UTC) for day in (1, 2, 3, 4)]
MICROS = [int(day.timestamp()) * 1_000_000 for day in DAYS]
RUNS = tuple(
    Run("bronze.event", "done", at, 2.5, 2, 100, 100, None, None, None, None)
    for at in reversed(MICROS)
)
FAILURE = Failure("silver.event", "small", "stop", 3, 12, (HOSTILE,), "3 of 12 rows are large")
COUNTS = Result(
    ("window_start", "device", "n", "mean"),
    [(day, device, at, at / 3) for at, day in enumerate(DAYS) for device in (HOSTILE, "phone")],
)


def gate(
    state: str, at: int, seconds: float, rows: int, failures: str, accepted: str | None
) -> Run:
    of_queries = (None,) * 5
    return Run("silver.event", state, at, seconds, None, rows, *of_queries, failures, accepted)


OVERVIEW = Overview(
    root="/some/where",
    created_at=0,
    audit=Audit(
        {
            "event": Balance(10, 10, 6, 3, 1, 0, 0, 1),
            "idle": Balance(0, 0, 0, 0, 0, 0, 0),
            "erased": Balance(2, 0, 0, 0, 0, 0, 0, erased_rows=2),
        },
        (Problem(ProblemCode.NOTE, "event", "a note"),),
    ),
    seen=Observations(
        RunState(),
        Attention(rejected=(Entry("event", HOSTILE, 1, 5, 0, 0, "rejected", "it is not gzip"),)),
        verdict=LakehouseVerdict(
            (
                Problem(ProblemCode.FAILED, "silver.event", HOSTILE, "run medallion nightly"),
                Problem(ProblemCode.STALE, "event", "no new rows since May", "ask"),
                Problem(ProblemCode.RESCUED, "event", "2 rows do not fit", "set hints"),
            )
        ),
    ),
    arrivals={"event": MICROS[3], "gold.counts": None},
    gold=(
        FirstRows("gold.totals", 7, Result(("device", "n"), [(HOSTILE, 8), ("phone", 2)])),
        FirstRows("gold.counts", 8, COUNTS, groups=("window_start", "device")),
        FirstRows("gold.broken", 0, Result((), []), "gold.broken: a file is missing"),
        FirstRows("gold.empty", 0, Result((), [])),
    ),
    broken={"event": {"no_device": 4, HOSTILE: 1}, "activity": {}},
    gates=(
        gate("held", MICROS[3], 1.5, 12, json.dumps([asdict(FAILURE)]), None),
        gate("passed", MICROS[0], 1.0, 9, "[]", "small"),
    ),
    runs=(
        Run("silver.event", "failed", MICROS[3], None, 1, 1234567, 5, 1, 1, 0, HOSTILE),
        *RUNS,
    ),
    statuses=(
        QueryStatus("bronze.event", "done", 3, None, 100, 100, 0, None, None),
        QueryStatus("silver.event", "failed", 3, None, 100, 100, 0, None, HOSTILE),
    ),
    periods={"event": [(day, "silver", 6) for day in DAYS]},
    examples={
        "event": (
            {"rule": "no_device", "id": HOSTILE, "_failed_rules": ["no_device"], "n": 5},
        )
    },
    sizes={
        "bronze.event": TableSize(10, 1, 123_456, MICROS[0]),
        "gold.counts": TableSize(8, 1, 999, MICROS[0]),
    },
    schemas=(
        ("event", SchemaVersion(1, "2026-05-01T00:00:00Z", HOSTILE, {}), ["+ id string"]),
    ),
    edges=(
        ("json: event", "bronze.event"),
        ("bronze.event", "silver.event"),
        ("bronze.event", "quarantine.event"),
        ("silver.event", "gold.counts"),
        ("silver.event", HOSTILE),
        ("gold.counts", "publish.counts.files"),
    ),
)  # fmt: skip
