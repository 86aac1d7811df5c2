"""Files in batches of bounded size."""

from __future__ import annotations

import pytest

from medallion.ingest.files.content import bounded_batches


@pytest.mark.parametrize(
    ("sizes", "batches"),
    [
        ([], []),
        ([5, 5, 5], [[5, 5], [5]]),  # 10 is within the limit
        ([5, 6], [[5], [6]]),
        ([11, 1], [[11], [1]]),  # a larger one has a batch of its own
        ([1, 1, 1, 1], [[1, 1, 1], [1]]),
        ([0, 10, 0], [[0, 10, 0]]),
    ],
)
def test_bounded_batches(sizes: list[int], batches: list[list[int]]) -> None:
    assert list(bounded_batches(sizes, int, max_size=10, max_count=3)) == batches
