"""Polling for new files beside a running bronze query."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medallion.layers.bronze.flow import Bronze


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
