"""Records of queries; a failure does not affect other queries."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from medallion.errors import MedallionError
from medallion.runtime.recorder import Notices, record_flows
from medallion.state.runs import RunRecords
from tests.support.home import Home


def new_flow(name: str, figures: Mapping[str, Any] | Exception) -> Any:
    """Return a flow whose query has run its first batch; `released` lists the released batches."""

    def finish_batches(_: int) -> Mapping[str, Any]:
        if isinstance(figures, Exception):
            raise figures
        return figures

    run = SimpleNamespace(
        is_recorded=False,
        batches={0: None},
        started_at=0,
        seconds=1.0,
        collect=lambda: None,
        error=lambda: None,
        watermark=lambda: None,
    )
    run.mark_recorded = lambda: vars(run).update(is_recorded=True)
    released = list[int]()
    return SimpleNamespace(
        name=name,
        run=run,
        started_run=run,
        upstream_paths=(),
        targets=(),
        target_paths=(),
        finish_batches=finish_batches,
        released=released,
        release=released.append,
    )


def test_failed_record_hides_no_other_failure(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files read by an unrecorded batch are not released, as their rows may be counted again."""
    flows = [
        new_flow("bronze.a", {"rows_in": 7, "last_batch": 0}),
        new_flow("bronze.b", MedallionError("files are gone")),
    ]
    runs = RunRecords(home.layout, run_id="r", command="test")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("medallion.storage.records.append_records", fail)
        expected = {name: str(error) for name, error in record_flows(runs, flows).items()}
    assert expected["bronze.a"].startswith("batches cannot be recorded in ops.runs: OSError")
    assert expected["bronze.b"] == "files are gone"
    assert [(flow.run.is_recorded, flow.released) for flow in flows] == [(False, []), (False, [])]
    # The next call records what is left.
    assert record_flows(runs, flows).keys() == {"bronze.b"}
    assert [(flow.run.is_recorded, flow.released) for flow in flows] == [(True, [0]), (False, [-1])]
    assert runs.run_state.sums["bronze.a"].rows_in == 7
    assert runs.run_state.last["bronze.b"].error == "files are gone"


def test_cleared_notice_is_reported_again() -> None:
    messages = list[str]()
    notices = Notices(messages.append)
    for topic in ("a", "a", "b"):
        notices.report(topic, "the disk is full")
    assert len(messages) == 2
    notices.clear("a")
    assert [notices.report(topic, "the disk is full") for topic in ("a", "b")] == [True, False]
    assert len(messages) == 3
