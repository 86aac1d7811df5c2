"""Triggers by name."""

from __future__ import annotations

from typing import Any

import pytest

from medallion.errors import UsageError
from medallion.streams import trigger


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("default", {"processingTime": "0 seconds"}),
        ("4 seconds", {"processingTime": "4 seconds"}),
        ("once", {"once": True}),
        ("available-now", {"availableNow": True}),
        ("continuous", {"continuous": "1 second"}),
        ("continuous  2 minutes ", {"continuous": "2 minutes"}),
    ],
)
def test_triggers_by_name(text: str, arguments: dict[str, Any]) -> None:
    assert trigger(text) == arguments


@pytest.mark.parametrize("text", ["", "now", "4", "continuous 4", "continuous4 seconds", None])
def test_a_trigger_that_there_is_not(text: Any) -> None:
    with pytest.raises(UsageError, match="is none of default, once, available-now, continuous"):
        trigger(text)
