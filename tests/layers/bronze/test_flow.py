"""Polling for new files beside a running bronze query, and the paths that a batch plans."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medallion.ingest.parsing.exact_path import exact_path
from medallion.layers.bronze.flow import Bronze
from tests.support.lakehouse import Lakehouse, only_rows
from tests.support.lines import row


@pytest.mark.parametrize(
    ("is_active", "is_processing", "polls"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_poll_waits_for_the_running_batch(is_active: bool, is_processing: bool, polls: int) -> None:
    polled: list[bool] = []
    source = SimpleNamespace(poll=lambda: polled.append(True))
    bronze: Any = SimpleNamespace(
        run=SimpleNamespace(is_active=is_active, is_processing=is_processing),
        _writer=SimpleNamespace(source=source),
    )
    assert Bronze.poll(bronze) != is_processing  # false: poll again soon
    assert len(polled) == polls


def test_small_batch_plans_the_exact_path_if_it_needs_it(
    lakehouse: Lakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the first line on that needs them, until the run ends."""
    planned = list[int]()

    def count_plans(fields: Any) -> str:
        planned.append(1)
        return exact_path(fields)

    monkeypatch.setattr("medallion.ingest.parsing.parse.exact_path", count_plans)
    home = only_rows(lakehouse, max_files_per_trigger=1)
    for number, lines in enumerate(([row(1)], [row(2), row(3, x="high")], [row(4)])):
        home.land("activity", f"{number}.json", *lines)
    home.fill("bronze")
    assert home.rows("bronze.activity", "_source_file", "Index", "_rescued_data") == [
        ("landing/activity/0.json", 1, None),
        ("landing/activity/1.json", 2, None),
        ("landing/activity/1.json", 3, '{"x":"high"}'),
        ("landing/activity/2.json", 4, None),
    ]
    assert len(planned) == 2
