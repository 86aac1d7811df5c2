"""Spark's own writes fail, one at a time: the run reports it, and the next one continues."""

from __future__ import annotations

import pytest

from medallion.inspect.audit import run_audit
from medallion.spark.errors import StreamError
from tests.support.lakehouse import Lakehouse
from tests.support.lines import event
from tests.support.strikes import failing_checkpoint_writes

BRONZE, SILVER, GOLD = "bronze.event", "silver.event", "gold.action_counts"
FEW = (f"rename .*{BRONZE}/commits/", f"list .*{GOLD}/offsets")
MANY = (
    *(f"rename .*{BRONZE}/commits/", f"rename .*{GOLD}/state/", f"list .*{GOLD}/offsets"),
    *(f"create .*{BRONZE}/offsets/", f"create .*{SILVER}/offsets/", f"create .*{GOLD}/commits/"),
    *(f"create .*{BRONZE}/commits/", f"rename .*{SILVER}/commits/", f"create .*{SILVER}/state/"),
    *(f"rename .*{BRONZE}/offsets/", f"rename .*{SILVER}/state/", f"create .*{GOLD}/state/"),
    *(f"list .*{BRONZE}/commits", f"list .*{SILVER}/state/", f"rename .*{GOLD}/offsets/"),
)


@pytest.mark.parametrize("strikes", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
@pytest.mark.usefixtures("production_streams")
def test_failed_checkpoint_write_is_retried(lakehouse: Lakehouse, strikes: tuple[str, ...]) -> None:
    lakehouse.keep_only("event", "action_counts")
    lakehouse.land("event", "0.json", event("10:00:00"))
    with failing_checkpoint_writes(lakehouse.spark) as failing_writes:
        lakehouse.run()
        for number, strike in enumerate(strikes, 1):
            lakehouse.land("event", f"{number}.json", event(f"10:00:{number:02}"))
            failing_writes.ask(strike)
            with pytest.raises(StreamError, match=r"^[^\n]*injected: [^\n]*$") as error:
                lakehouse.run()
            # The disk failed; no table needs a refresh.
            assert "medallion refresh" not in str(error.value)
            assert failing_writes.has_struck
        lakehouse.run()
    total = len(strikes) + 1
    assert lakehouse.rows("gold.action_counts", "action", "total_events") == [("open", total)]
    assert len(lakehouse.rows("silver.event")) == total
    assert run_audit(lakehouse.config).is_balanced
