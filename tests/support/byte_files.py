"""Files landed as bytes, and the rows that became of each."""

from __future__ import annotations

from typing import Any

from medallion.inspect.audit import run_audit
from tests.support.lakehouse import Lakehouse

SCHEMA = {"Index": "long", "Device": "string"}


def land(home: Lakehouse, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        home.land("activity", name).write_bytes(data)


def found(home: Lakehouse, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Rows by the name of their file, in order."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for path, *values in home.rows("bronze.activity", "_source_file", *columns):
        rows.setdefault(path.removeprefix("landing/activity/"), []).append(tuple(values))
    return rows


def recounted(home: Lakehouse) -> list[str]:
    return list(run_audit(home.config, everything=True).findings)
