"""The versions of a source's schema."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from medallion.ingest.schema import registry
from medallion.ingest.schema.registry import Version
from medallion.storage.text import printable


def as_json(found: Sequence[Version]) -> dict[str, Any]:
    """A list of versions, each with its columns and their types."""
    return {"versions": [asdict(version) for version in found]}


def as_text(found: Sequence[Version]) -> str:
    """Each version with what it has that the one before has not."""
    if not found:
        return "no version yet: the schema is made when the source is first run"
    lines = []
    for before, version in zip((None, *found), found, strict=False):
        lines.append(f"version {version.version}  {version.created_at}  {version.why}")
        lines += [f"  {line}" for line in registry.differences(before, version)]
    return "\n".join(map(printable, lines))
