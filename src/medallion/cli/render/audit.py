"""The balance of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from medallion.cli.render import attention
from medallion.cli.render.values import table
from medallion.inspect.audit import Audit
from medallion.inspect.balance import Balance
from medallion.storage.text import printable


def as_json(found: Audit) -> dict[str, Any]:
    """What programs rely on; findings, notes and files only where there are any."""
    sources = {name: asdict(balance) for name, balance in found.balances.items()}
    document: dict[str, Any] = {"balanced": found.is_balanced, "sources": sources}
    lists = {"findings": list(found.findings), "notes": list(found.notes)}
    files = attention.as_json(found.files)
    return {**document, **files, **{name: lines for name, lines in lists.items() if lines}}


def as_text(found: Audit) -> str:
    """An aligned table, the findings and the files under it, and the verdict."""
    files = attention.every(replace(found.files, changed=()))  # those are findings
    said = (*found.findings, *found.notes, *files, verdict(found))
    return "\n".join([*balances(found.balances), *map(printable, said)])


def verdict(found: Audit) -> str:
    """One line: never `balanced` alone, if there is something to see to."""
    if not found.is_balanced:
        return "NOT BALANCED"
    but = [f"for {', '.join(found.unjudged)}, which was not judged"] if found.unjudged else []
    if found.failed:
        but.append(f"{', '.join(found.failed)} failed when last run (medallion status)")
    but += filter(None, [attention.summary(found.files)])
    return f"balanced, but {'; '.join(but)}" if but else "balanced"


def balances(found: Mapping[str, Balance]) -> list[str]:
    """The lines of a table with a row a source."""
    rows = [(name, *asdict(balance).values()) for name, balance in found.items()]
    return table(("source", *Balance.__dataclass_fields__), rows)
