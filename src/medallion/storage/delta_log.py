"""A Delta table's log read commit by commit, as its protocol writes it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

Actions = list[dict[str, Any]]
_FEED = "delta.enableChangeDataFeed"


def committed_version(table: Path, application: str, transaction: int) -> int | None:
    """The version that one idempotent write of an application made; None where it made none."""
    for version, found, _ in _transactions(table, application):
        if found <= transaction:
            return version if found == transaction else None
    return None


def transactions_after(table: Path, transaction: int) -> Iterator[tuple[int, int]]:
    """Version and transaction of the idempotent writes after one, whoever made them."""
    for version, found, _ in _transactions(table):
        if found <= transaction:
            return
        yield version, found


def rows_by_transaction(table: Path, application: str | None, first: int) -> dict[int, int]:
    """The rows that each idempotent write of an application, or of all, added from one transaction
    on."""
    rows = dict[int, int]()
    for _, transaction, actions in _transactions(table, application):
        if transaction < first:
            break
        rows.setdefault(transaction, _rows(actions))  # the newest of that number
    return rows


def newest_transaction(table: Path, application: str | None = None) -> int:
    """The number of the last idempotent write of an application, or of whoever made the last one;
    -1 where there was none."""
    return next((found for _, found, _ in _transactions(table, application)), -1)


def newest_application(table: Path) -> str | None:
    """Who made the last idempotent write that the log has; None where there is none."""
    for _, _, actions in _transactions(table):
        return next(str(action["txn"]["appId"]) for action in actions if "txn" in action)
    return None


def rows_added(table: Path, first: int, last: int) -> int | None:
    """The rows that versions `first` to `last` added; None where the log does not say all."""
    try:
        return sum(_rows(_actions(table, version)) for version in range(first, last + 1))
    except FileNotFoundError:
        return None


def added_files(table: Path, first: int, last: int) -> list[Path]:
    """The data files with rows that versions `first` to `last` added.

    Raises:
        FileNotFoundError: the log does not have all of these versions any more.
    """
    versions = range(first, last + 1)
    return [table / unquote(add["path"]) for v in versions for add in _added(_actions(table, v))]


def are_readable(table: Path, versions: Iterable[int]) -> bool:
    """Whether the rows that these versions added can still be read one by one."""
    try:
        return all(file.exists() for v in versions for file in added_files(table, v, v))
    except FileNotFoundError:
        return False


def first_readable_version(table: Path) -> int:
    """The first version from which on the rows of all that follow can still be read; the one after
    the newest, where not even those can.

    A commit stays in the log after its files were put together with others, and removed.
    """
    first = _newest(table) + 1
    while first > 0 and are_readable(table, [first - 1]):
        first -= 1
    return first


def change_feed_files(table: Path, first: int, last: int) -> list[Path]:
    """The files in which versions `first` to `last` say what they changed.

    Raises:
        FileNotFoundError: the log does not have all of these versions any more.
    """
    actions = (action for v in range(first, last + 1) for action in _actions(table, v))
    return [table / unquote(action["cdc"]["path"]) for action in actions if "cdc" in action]


def has_changes(table: Path, first: int) -> bool:
    """Whether versions from `first` on say of any change, or are not all there to be asked."""
    try:
        return any(_changed(_actions(table, v)) for v in range(first, _newest(table) + 1))
    except FileNotFoundError:
        return True


def has_complete_change_feed(table: Path, first: int) -> bool:
    """Whether all that versions from `first` on have changed can still be read: they have a feed,
    and the files that it names are there."""
    try:
        for version in range(first, _newest(table) + 1):
            actions = _actions(table, version)
            kept = [a["metaData"]["configuration"].get(_FEED) for a in actions if "metaData" in a]
            if any(value != "true" for value in kept):
                return False
            if not all((table / unquote(path)).exists() for path in _changed(actions)):
                return False
    except FileNotFoundError:
        return False
    return True


def has_more_changes(table: Path, version: int, files: int) -> bool:
    """Whether a version says of more changes than its first files do, of which there are so many.

    They are those of its feed, or, where a commit has none, the files that it adds or removes.
    (Source: DeltaSourceCDCSupport of Delta.)
    """
    try:
        return files < len(_changed(_actions(table, version)))
    except FileNotFoundError:
        return True


def _changed(actions: Actions) -> list[str]:
    """The files in which a commit's changes are."""
    feed = [action["cdc"]["path"] for action in actions if "cdc" in action]
    data = (action.get("add") or action.get("remove") or {} for action in actions)
    return feed or [file["path"] for file in data if file.get("dataChange")]


def _transactions(
    table: Path, application: str | None = None
) -> Iterator[tuple[int, int, Actions]]:
    """Version, transaction and actions of the writes of an application, or of all, newest first."""
    for version in range(_newest(table), -1, -1):
        try:
            text = commit_file(table, version).read_text(encoding="utf-8")
        except FileNotFoundError:
            return
        if '"txn"' in text:
            actions = _parsed(text)
            for txn in (action["txn"] for action in actions if "txn" in action):
                if application in (None, txn["appId"]):
                    yield version, int(txn["version"]), actions


def commit_files(table: Path) -> dict[int, Path]:
    """The commits that are in a table's log, by their versions."""
    found = (table / "_delta_log").glob("*.json")
    return {int(file.stem): file for file in found if file.stem.isdigit()}


def _newest(table: Path) -> int:
    return max(commit_files(table), default=-1)


def _actions(table: Path, version: int) -> Actions:
    return _parsed(commit_file(table, version).read_text(encoding="utf-8"))


def commit_file(table: Path, version: int) -> Path:
    """Where the commit of a version lies, or would."""
    return table / "_delta_log" / f"{version:020}.json"


def _parsed(text: str) -> Actions:
    return [json.loads(line) for line in text.split("\n") if line]


def _added(actions: Actions) -> list[dict[str, Any]]:
    """The files with rows that are new to the table: what is only compacted is not."""
    adds = (action["add"] for action in actions if "add" in action)
    return [add for add in adds if add["dataChange"]]


def _rows(actions: Actions) -> int:
    return sum(int(json.loads(add["stats"])["numRecords"]) for add in _added(actions))
