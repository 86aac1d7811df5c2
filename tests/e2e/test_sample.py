"""The sample files give the counts that the contract publishes."""

from __future__ import annotations

from tests.support.lakehouse import Lakehouse

FIRST, SECOND = "2018-03-02 10:00:00", "2018-03-02 10:10:00"


def test_event_files_one_at_a_time(lakehouse: Lakehouse) -> None:
    lakehouse.about("event", "action_counts")
    published = {
        "file1.json": [(FIRST, "close", 1), (FIRST, "open", 3)],
        "file2.json": [(FIRST, "close", 2), (FIRST, "open", 4)],
        "file3.json": [(FIRST, "close", 3), (FIRST, "open", 4), (SECOND, "open", 1)],
    }
    for name, counts in published.items():
        lakehouse.land_sample("event", name)
        lakehouse.fill()
        found = lakehouse.rows("gold.action_counts", "window_start", "action", "total_events")
        assert found == counts, name


def test_all_activity_samples_reach_gold(lakehouse: Lakehouse) -> None:
    lakehouse.about("activity", "device_counts", "device_totals")
    lakehouse.land_sample("activity", "sample.json")
    assert lakehouse.nightly().is_good
    window = ("2015-02-23 10:10:00", "2015-02-23 10:20:00")
    assert lakehouse.rows("gold.device_counts") == [
        (*window, "nexus4_1", 1),
        (*window, "nexus4_2", 9),
    ]
    assert lakehouse.rows("gold.device_totals") == [("nexus4_1", 1), ("nexus4_2", 9)]
