"""The balance of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from medallion.cli.render.values import table
from medallion.inspection.audit import Audit
from medallion.inspection.balance import Balance
from medallion.lakehouse.text import visible


def as_json(found: Audit) -> dict[str, Any]:
    """What programs rely on; findings and notes only where there are any."""
    sources = {name: asdict(balance) for name, balance in found.balances.items()}
    document: dict[str, Any] = {"balanced": found.is_balanced, "sources": sources}
    lists = {"findings": list(found.findings), "notes": list(found.notes)}
    return {**document, **{name: lines for name, lines in lists.items() if lines}}


def as_text(found: Audit) -> str:
    """An aligned table, the findings under it, and the verdict."""
    verdict = "balanced" if found.is_balanced else "NOT BALANCED"
    if found.is_balanced and found.unjudged:
        verdict += f", but for {', '.join(found.unjudged)}, which was not judged"
    said = (*found.findings, *found.notes, verdict)
    return "\n".join([*balances(found.balances), *map(visible, said)])


def balances(found: Mapping[str, Balance]) -> list[str]:
    """The lines of a table with a row a source."""
    rows = [(name, *asdict(balance).values()) for name, balance in found.items()]
    return table(("source", *Balance.__dataclass_fields__), rows)
