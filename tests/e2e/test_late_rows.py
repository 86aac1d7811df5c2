"""What the watermark drops: admitted, or set aside where the configuration asks for that."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support import Lakehouse

from medallion.accounting import Balance


def event(time: str, device: str | None = "p") -> str:
    return json.dumps({"id": device, "action": "open", "ts": f"2018-03-02T{time}"})


FIRST = (event("10:00:00"), event("15:00:00"))  # the watermark goes to 14:00
LATE = (
    event("09:00:00"),
    event("09:00:00"),  # a duplicate of a late row
    event("09:00:01"),
    event("10:00:00"),  # silver has it
    event("16:00:00"),  # on time
    event("09:00:02", device=None),  # without identity: no watermark, no duplicate
)


@pytest.mark.parametrize("late", ["admit", "quarantine"])
def test_late_rows(lakehouse: Lakehouse, late: str) -> None:
    sources = {"event": replace(lakehouse.config.sources["event"], late=late)}
    lakehouse.config = replace(lakehouse.config, sources=sources, gold={})
    lakehouse.land("event", "1.json", *FIRST)
    assert lakehouse.nightly().is_good
    lakehouse.land("event", "2.json", *LATE)
    report = lakehouse.nightly()
    assert report.is_good, report
    admitted = 2 if late == "admit" else 0
    assert report.balances["event"] == Balance(
        landed_lines=8,
        bronze_rows=8,
        silver_rows=2 + 2 + admitted,
        quarantined_rows=2 - admitted,
        duplicate_rows=2,
        late_rows=admitted,
        waiting_rows=0,
    )
    if late == "quarantine":
        found = lakehouse.rows("quarantine.event", "ts", "_failed_rules")
        assert found == [
            ("2018-03-02 09:00:00", ["late"]),
            ("2018-03-02 09:00:01", ["late"]),
        ]
    # A night with nothing new finds nothing late a second time.
    assert lakehouse.nightly().balances == report.balances
