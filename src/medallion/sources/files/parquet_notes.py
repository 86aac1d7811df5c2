"""What Spark noted in a Parquet file of its columns, by which it reads them, held against the file.

Other writers keep the note when they add a column, or make it another one; Spark would then leave
columns out, or cut numbers to the size that stands there, and say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

NOTE = b"org.apache.spark.sql.parquet.row.metadata"
_NUMBERS = {"byte": "Int8", "short": "Int16", "integer": "Int32", "long": "Int64"}


def unlike(note: bytes | None, fields: Iterable[Any]) -> str | None:
    """The first column or field that is not as the note has it; None where all are, or there is no
    note that Spark could read.

    Args:
        note: the text of it.
        fields: the file's columns, as Arrow has them.
    """
    try:
        noted: Any = json.loads(note or b"null")
        return _in_struct(noted, fields) if noted else None
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _in_struct(noted: Any, fields: Iterable[Any]) -> str | None:
    there: dict[str, Any] = {field.name: field.type for field in fields}
    known: dict[str, Any] = {field["name"]: field["type"] for field in noted["fields"]}
    if more := sorted(there.keys() - known.keys()):  # what is noted and not there is null
        return more[0]
    found = ((name, _within(known[name], kind)) for name, kind in there.items())
    return next((f"{name}{within}" for name, within in found if within is not None), None)


def _within(noted: Any, kind: Any) -> str | None:
    """Where within a type they differ: "" is all of it."""
    if isinstance(noted, str):
        wanted = _NUMBERS.get(noted) or noted.replace("decimal", "Decimal128").replace(",", ", ")
        is_number = noted in _NUMBERS or noted.startswith("decimal")
        return "" if is_number and f"<{wanted}>" not in str(kind) else None
    if noted["type"] == "udt":
        return _within(noted["sqlType"], kind)
    if noted["type"] == "struct" and kind.is_struct(kind):
        within = _in_struct(noted, kind.fields)
        return f".{within}" if within else None
    if noted["type"] == "array" and kind.is_list(kind):
        return _within(noted["elementType"], kind.value_type)
    return None
