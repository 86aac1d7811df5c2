"""Files that the user has to see to: named in lines, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from medallion.inspect.ledger_files import Attention
from medallion.state.ledger import PENDING, REJECTED, Entry
from medallion.storage.text import counted

_SHOWN = 10
_DISMISS = "medallion files --dismiss PATTERN acknowledges them"


def as_json(files: Attention) -> dict[str, Any]:
    """The first ten of each group and how many more there are; only groups with files."""
    return {
        group: {
            "files": [_one(entry) for entry in entries[:_SHOWN]],
            "more": max(len(entries) - _SHOWN, 0),
        }
        for group, entries in _groups(files).items()
        if entries
    }


def errors(files: Attention) -> list[str]:
    """Lines for a run that ends with status 1 because of them."""
    lines = _of_groups(files, lambda entry: entry.reported_at is None)
    if lines:
        lines.append(f"{_DISMISS}; until then each run names them")
    return lines + _lines(files.folders, "no files were read from", PENDING)


def warnings(files: Attention) -> list[str]:
    """Lines for a run that comes after the one which ended with status 1."""
    lines = _of_groups(files, lambda entry: entry.reported_at is not None)
    return [*lines, _DISMISS] if lines else []


def every(files: Attention) -> list[str]:
    """Lines for all of them, reported by a run or not."""
    lines = _of_groups(files, lambda _: True)
    lines += _lines(files.folders, "no files were read from", PENDING)
    return [*lines, _DISMISS] if lines else []


def _of_groups(files: Attention, is_shown: Callable[[Entry], bool]) -> list[str]:
    groups = (
        (files.rejected, "rejected", REJECTED),
        (files.waiting, "waits", PENDING),
        (files.changed, "changed", None),
    )
    found = (_lines(list(filter(is_shown, group)), *told) for group, *told in groups)
    return [line for lines in found for line in lines]


def summary(files: Attention) -> str | None:
    """How many there are, as the end of a sentence; None if there are none."""
    counts = (
        (len(files.rejected), "file", "rejected"),
        (len(files.waiting), "file", "waiting"),
        (len(files.changed), "archived file", "written after it was read"),
        (len(files.folders), "folder", "not readable"),
    )
    told = [
        f"{counted(number, noun)} {'was' if number == 1 else 'were'} {what}"
        for number, noun, what in counts
        if number
    ]
    return " and ".join(told) or None


def _groups(files: Attention) -> dict[str, Sequence[Entry]]:
    return {
        "rejected": files.rejected,
        "waiting": files.waiting,
        "changed": files.changed,
        "unreadable_folders": files.folders,
    }


def _one(entry: Entry) -> dict[str, Any]:
    names = ("source", "path", "version", "state", "reason_code", "why", "moved_to")
    return {name: getattr(entry, name) for name in names}


def _lines(entries: Sequence[Entry], what: str, state: str | None) -> list[str]:
    lines = [f"{what}: {entry.path}: {entry.why}" for entry in entries[:_SHOWN]]
    if more := len(entries) - len(lines):
        where = f" (medallion files --state {state})" if state else ""
        lines.append(f"{what}: and {counted(more, 'more file')}{where}")
    return lines
