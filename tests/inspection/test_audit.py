"""What the balance says of a lakehouse while something is on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from medallion.config.loader import load
from medallion.inspection import audit as module
from medallion.inspection.audit import audit
from medallion.lakehouse import lock
from medallion.ops.runs import Runs
from tests.support import PROJECT, checkpoints
from tests.support.home import Home


@pytest.mark.parametrize(("state", "is_balanced"), [("done", True), ("failed", False)])
def test_a_source_that_is_stuck_beside_a_stream_is_not_balanced(
    state: str, is_balanced: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last batch is not on record: for the moment, or because that could not be done."""
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    config = replace(load({}, PROJECT), layout=home.layout)
    checkpoints.done(config.layout, "bronze.activity", 0, version=1)
    row = {"kind": "query", "query": "bronze.activity", "started_at": 1, "state": state}
    Runs(config.layout).write([{**row, "error": None if is_balanced else "the disk is full"}])
    with lock.hold(config.layout, ["bronze", "silver"], "stream"):
        found = audit(config)
    assert found.is_balanced == is_balanced
    told = ["bronze.activity: it has failed, and what it did last is not on record (the disk is "]
    assert [finding[: len(told[0])] for finding in found.findings] == told * (not is_balanced)
    assert found.unjudged == ("activity",)
