"""Which ORC files have timestamps that are finer than microseconds, and in which column."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from medallion.sources.files.typed_times import in_orc
from tests.support.typed_files import MAKE

AT = 1_519_984_953  # 2018-03-02 10:02:33
MICROS, NANOS = (AT, 123_457_000), (AT, 123_457_001)
FAR = (10**13, 0)  # beyond the year 9999


@pytest.mark.parametrize(
    ("kind", "value", "is_finer"),
    [
        ("timestamp", MICROS, False),
        ("timestamp", NANOS, True),
        ("timestamp", (-AT, 999_999_001), True),
        ("timestamp", FAR, False),
        ("array<timestamp>", [None, MICROS, FAR], False),
        ("array<timestamp>", [None, MICROS, NANOS], True),
        ("map<string,timestamp>", {"a": NANOS}, True),
        ("struct<day:date,at:timestamp>", {"day": date(2018, 3, 2), "at": NANOS}, True),
        ("struct<timestamp:bigint>", {"timestamp": NANOS[1]}, False),
    ],
)
def test_in_orc(tmp_path: Path, kind: str, value: object, is_finer: bool) -> None:
    file = tmp_path / "a.orc"
    columns = {"Index": "bigint", "sound": "timestamp", "seen": kind, "text": "string"}
    rows: list[dict[str, object]] = [
        {"Index": 1},
        {"Index": NANOS[1], "sound": MICROS, "seen": value},
        {"text": "x"},
    ]
    file.write_bytes(MAKE["orc"](columns, rows))
    assert in_orc(file) == ("seen" if is_finer else None)
