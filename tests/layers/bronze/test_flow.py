"""Bronze's query while it is on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from medallion.layers.bronze.flow import Bronze


@pytest.mark.parametrize(
    ("is_active", "is_processing", "polls"), [(True, False, 1), (True, True, 0), (False, False, 0)]
)
def test_what_comes_while_a_batch_is_under_way_is_handed_over_at_once_after_it(
    is_active: bool, is_processing: bool, polls: int
) -> None:
    polled: list[bool] = []
    source = SimpleNamespace(poll=lambda: polled.append(True))
    bronze: Any = SimpleNamespace(
        run=SimpleNamespace(is_active=is_active, is_processing=is_processing),
        _writer=SimpleNamespace(source=source),
    )
    assert Bronze.poll(bronze) != is_processing  # it is asked again at the next look
    assert len(polled) == polls
