"""A Delta table's log, read commit by commit in the format of its protocol.

Each commit of a streaming query has a transaction, Delta's `txn` action: the application (the
query's id) and the number of the batch. Functions raise FileNotFoundError if the log no longer has
a commit that they need, unless documented otherwise.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple
from urllib.parse import unquote

from medallion.storage.paths import StoragePath

Actions = list[dict[str, Any]]
_OF_APPENDS = {"commitInfo", "txn", "add"}  # a compaction also removes files


class Transaction(NamedTuple):
    """A commit of an application.

    Attributes:
        version: the version of the table.
        application: the application.
        number: its number; several applications may count alike.
        actions: the actions of the commit.
    """

    version: int
    application: str
    number: int
    actions: Actions

    @property
    def rows(self) -> int:
        """The number of added rows."""
        return _row_count(self.actions)

    @property
    def user_metadata(self) -> dict[str, Any]:
        """The JSON in `userMetadata`; empty if there is none."""
        infos = _actions_named("commitInfo", self.actions)
        return dict(json.loads(infos[0].get("userMetadata", "{}"))) if infos else {}


def committed_version(
    table: StoragePath, application: str, transaction: int, *others: str
) -> int | None:
    """Return the version that committed an application's transaction; None if there is none.

    Args:
        application: the application.
        transaction: the number of its transaction.
        others: applications that count alike: an earlier transaction of theirs ends the search.
    """
    for each in transactions(table, transaction, application, *others):
        if each[1:3] == (application, transaction):
            return each.version
    return None


def transactions(table: StoragePath, first: int = 0, *applications: str) -> Iterator[Transaction]:
    """Yield transactions, newest first, as far as the log reaches.

    Args:
        first: the lowest number: the first lower one ends the search.
        applications: only transactions of these applications; by default of all.
    """
    for version in range(_newest_version(table), -1, -1):
        try:
            content = commit_file(table, version).read().decode()
        except FileNotFoundError:
            return
        actions = _parse_actions(content) if '"txn"' in content else []
        for txn in _actions_named("txn", actions):
            if not applications or txn["appId"] in applications:
                if int(txn["version"]) < first:
                    return
                yield Transaction(version, txn["appId"], int(txn["version"]), actions)


def batch_commits(table: StoragePath, batches: range, *applications: str) -> list[Transaction]:
    """Return the transactions with the numbers of some batches, newest first."""
    since = transactions(table, batches.start, *applications) if batches else ()
    return [each for each in since if each.number in batches]


def newest_transaction(table: StoragePath, application: str | None = None) -> int:
    """Return the last transaction, of one application or of any; -1 if there is none."""
    newest = transactions(table, 0, *filter(None, [application]))
    return next((each.number for each in newest), -1)


def rows_added(table: StoragePath, first: int, last: int) -> int | None:
    """Return how many rows versions `first` to `last` added; None if the log lacks one."""
    try:
        return sum(map(_row_count, _read_commits(table, first, last)))
    except FileNotFoundError:
        return None


def added_files(table: StoragePath, first: int, last: int) -> list[StoragePath]:
    """Return the data files of new rows that versions `first` to `last` added."""
    commits = _read_commits(table, first, last)
    return [table / unquote(add["path"]) for each in commits for add in _added_actions(each)]


def are_readable(table: StoragePath, versions: Iterable[int]) -> bool:
    """Return True if the log and the files of the rows that these versions added still exist."""
    try:
        return all(file.is_stored() for v in versions for file in added_files(table, v, v))
    except FileNotFoundError:
        return False


def first_readable_version(table: StoragePath) -> int:
    """Return the oldest version from which a stream can read all versions up to the newest.

    It is the version after the newest if even the newest cannot be read. A commit stays in the log
    after its files were compacted and removed.
    """
    first = _newest_version(table) + 1
    while first > 0 and are_readable(table, [first - 1]):
        first -= 1
    return first


def only_appends(table: StoragePath, most: int = 20) -> bool:
    """Return True if a table has few versions, and all but the first only add rows.

    Its rows are then those of all commits, which Spark reads in less time than a snapshot.

    Args:
        most: how many versions are few.
    """
    if not 0 <= _newest_version(table) < most:
        return False
    try:
        _, *later = _read_commits(table, 0)
    except FileNotFoundError:
        return False
    return {name for actions in later for each in actions for name in each} <= _OF_APPENDS


def commit_time(table: StoragePath, version: int) -> float:
    """Return when a version was committed, in seconds since 1970."""
    commits = _actions_named("commitInfo", _read_actions(table, version))
    times = [float(commit["timestamp"]) / 1000 for commit in commits]
    # A copied log has newer file times.
    if info := commit_file(table, version).info():
        times.append(info.modified_at / 1_000_000)
    return min(times, default=inf)


def commit_writer(table: StoragePath, version: int) -> str | None:
    """Return which writer of records made a commit; None if another writer did, or none yet."""
    with suppress(FileNotFoundError):
        commits = _actions_named("commitInfo", _read_actions(table, version))
        return next((commit.get("writer") for commit in commits), None)
    return None


def has_changes(table: StoragePath, first: int) -> bool:
    """Return True if a version from `first` on changed rows, or is no longer in the log."""
    try:
        return any(map(_changed_files, _read_commits(table, first)))
    except FileNotFoundError:
        return True


def has_complete_change_feed(table: StoragePath, first: int) -> bool:
    """Return True if the changes of all versions from `first` on can still be read."""
    try:
        for actions in _read_commits(table, first):
            settings = [each["configuration"] for each in _actions_named("metaData", actions)]
            if any(each.get("delta.enableChangeDataFeed") != "true" for each in settings):
                return False
            if not all((table / unquote(path)).is_stored() for path in _changed_files(actions)):
                return False
    except FileNotFoundError:
        return False
    return True


def has_more_changes(table: StoragePath, version: int, files: int) -> bool:
    """Return True if a version has more than `files` files of changes.

    These are the files of its change data feed or, without one, the files that it adds or removes
    (DeltaSourceCDCSupport in Delta's source). Also True if the log lacks the version.
    """
    try:
        return files < len(_changed_files(_read_actions(table, version)))
    except FileNotFoundError:
        return True


def first_checksum(table: StoragePath) -> StoragePath:
    """Return the path of the checksum of a table's first version."""
    return table / "_delta_log" / f"{0:020}.crc"


def write_first_checksum(table: StoragePath) -> None:
    """Write the checksum of a table's first version, which delta-rs committed without rows.

    Without it, Spark reads the log in a job for the table's columns, and in two for its first
    commit. Errors are ignored: Delta's protocol does not require checksums.
    """
    names = {"metaData": "metadata", "protocol": "protocol"}
    checksum: dict[str, Any] = {"numMetadata": 1, "numProtocol": 1}
    checksum |= dict.fromkeys(("numFiles", "tableSizeBytes"), 0)
    checksum |= {name: [] for name in ("setTransactions", "domainMetadata", "allFiles")}
    with suppress(OSError):
        actions = (each for action in _read_actions(table, 0) for each in action.items())
        checksum |= {names[name]: value for name, value in actions if name in names}
        first_checksum(table).write_atomic(json.dumps(checksum))


def remove_older_commits(table: StoragePath, version: int) -> None:
    """Remove all commits, checkpoints and change data before a version that has a checkpoint."""
    for name, _ in (table / "_delta_log").list_files():
        number = name.lstrip(".").partition(".")[0]
        if number.isdigit() and int(number) < version:
            (table / "_delta_log" / name).delete()
    (table / "_change_data").delete_prefix()


def commit_versions(table: StoragePath) -> list[int]:
    """Return the versions whose commits are in a table's log, in order."""
    names = (name.removesuffix(".json") for name in (table / "_delta_log").names())
    return [int(name) for name in names if name.isdigit()]


def commit_file(table: StoragePath, version: int) -> StoragePath:
    """Return the path of a version's commit file."""
    return table / "_delta_log" / f"{version:020}.json"


def _changed_files(actions: Actions) -> list[str]:
    """Return the files that contain a commit's changes."""
    feed = [change["path"] for change in _actions_named("cdc", actions)]
    data = (action.get("add") or action.get("remove") or {} for action in actions)
    return feed or [file["path"] for file in data if file.get("dataChange")]


def _newest_version(table: StoragePath) -> int:
    return max(commit_versions(table), default=-1)


def _read_actions(table: StoragePath, version: int) -> Actions:
    return _parse_actions(commit_file(table, version).read().decode())


def _read_commits(table: StoragePath, first: int, last: int | None = None) -> Iterator[Actions]:
    """Return the actions of versions `first` to `last`, by default to the newest."""
    end = _newest_version(table) if last is None else last
    return (_read_actions(table, version) for version in range(first, end + 1))


def _parse_actions(content: str) -> Actions:
    return [json.loads(line) for line in content.split("\n") if line]


def _actions_named(name: str, actions: Actions) -> Actions:
    return [action[name] for action in actions if name in action]


def _added_actions(actions: Actions) -> Actions:
    """Return the added files whose rows are new: compaction only rewrites rows."""
    return [add for add in _actions_named("add", actions) if add["dataChange"]]


def _row_count(actions: Actions) -> int:
    return sum(int(json.loads(add["stats"])["numRecords"]) for add in _added_actions(actions))
