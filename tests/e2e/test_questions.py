"""What one nightly run asks: its source's directory, gates, tables and ledger, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from medallion.inspect.audit import run_audit
from medallion.runtime import planner
from medallion.runtime.nightly import Nightly
from medallion.runtime.pipeline import Pipeline
from medallion.state import ledger, pending_work
from medallion.storage import files
from tests.support.lakehouse import Lakehouse, NoGates
from tests.support.three_nights import NAME, SECOND

QUERIES = (f"bronze.{NAME}", f"silver.{NAME}", "gold.device_totals")


def run_nightly(lakehouse: Lakehouse) -> None:
    """Plan, and run what is planned, as the command does."""
    with planner.plan_under_lock(lakehouse.config, "nightly", print) as plan:
        assert planner.end_if_idle(lakehouse.config, plan, print) is None
        planner.estimate_workload(lakehouse.config, plan)
        planned = plan.reusable
        pipeline = Pipeline(lakehouse.spark, lakehouse.config, "nightly", print, planned=planned)
        nightly = Nightly(pipeline)
        nightly.gates = NoGates(lakehouse.config.conf_dir)
        assert nightly.run().is_good


def test_nightly_run_asks_each_question_once(
    filled: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[tuple[str, str]] = Counter()

    def count(owner: Any, name: str, subject: Callable[..., str]) -> None:
        function = getattr(owner, name)

        def counting(*arguments: Any) -> Any:
            asked[name, subject(*arguments)] += 1
            return function(*arguments)

        monkeypatch.setattr(owner, name, counting)

    # Maintenance asks after the batches, before it removes what is older.
    monkeypatch.setattr(Nightly, "_maintain", lambda _: None)
    count(files, "list_entries", str)
    count(pending_work, "blocking_gates", lambda _, __, query: query)
    count(pending_work, "older_table_reason", lambda _, __, query: query)
    count(ledger, "write_entries", lambda _, entries: "ops.files" if list(entries) else "nothing")
    landing = filled.layout.landing(NAME).local
    filled.land(NAME, "second.json", *SECOND)
    run_nightly(filled)
    assert asked.pop(("list_entries", str(landing))) == 1
    assert asked.pop(("write_entries", "ops.files")) <= 2
    for query in QUERIES:
        assert asked.pop(("blocking_gates", query)) == 1
        assert asked.pop(("older_table_reason", query)) == 1
    del asked["write_entries", "nothing"]
    # Tables and checkpoints are listed more often, as Spark writes them; other folders are not.
    listed = {key for key in asked if key[0] == "list_entries"}
    assert asked.keys() == listed
    folders = ("/landing", "/archive", "/rejected")
    assert not [path for _, path in listed if any(folder in path for folder in folders)]
    assert run_audit(filled.config).findings == ()
