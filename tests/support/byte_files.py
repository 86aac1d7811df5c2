"""Write files as bytes, and read the rows that result from each."""

from __future__ import annotations

from typing import Any

from medallion.inspect.audit import run_audit
from tests.support.lakehouse import Lakehouse

SCHEMA = {"Index": "long", "Device": "string"}


def land(lakehouse: Lakehouse, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        lakehouse.land("activity", name).write_bytes(data)


def rows_by_file(lakehouse: Lakehouse, *columns: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows in order, by file name."""
    rows: dict[str, list[tuple[Any, ...]]] = {}
    for path, *values in lakehouse.rows("bronze.activity", "_source_file", *columns):
        rows.setdefault(path.removeprefix("landing/activity/"), []).append(tuple(values))
    return rows


def audit_findings(lakehouse: Lakehouse) -> list[str]:
    return list(run_audit(lakehouse.config, everything=True).findings)
