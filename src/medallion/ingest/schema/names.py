"""Names of columns: which a table can have, and how many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from medallion.config.values import folded
from medallion.storage.table_specs import FAILED_RULES, FULL_TIMES, OF_FILES, TECHNICAL

# A file whose field names are data, one to a row, must not become a table of as many columns.
MOST_COLUMNS = 2_000
# Delta refuses some of these, the rest would have to be quoted wherever the column is named, and
# ? and * mean something else in the paths that Spark reads JSON by.
_REFUSED = re.compile(r"[\s,;{}()=`'\"\\.<>:?*]")
_RESERVED = {
    *TECHNICAL,
    FAILED_RULES,
    FULL_TIMES,
    "_conflict",
    "_metadata",  # Spark's own, of each file that it reads
    "_change_type",  # Delta's change data feed has these three
    "_commit_version",
    "_commit_timestamp",
}


def reserved(origin: Iterable[str]) -> set[str]:
    """Names that no field can have in a table whose rows' origin is told by these columns."""
    return {*_RESERVED, *origin}


def acceptable(
    columns: Mapping[str, str],
    known: Iterable[str],
    origin: Iterable[str] = OF_FILES,
    named: Iterable[str] = (),
) -> dict[str, str]:
    """Return the columns that a table can have beside the known ones; the rest stays rescued.

    Args:
        columns: names with their types; the first ones are taken if there are too many.
        known: names of columns that the table has.
        origin: names of the columns that say where a row came from.
        named: names of fields that the configuration uses, which are taken before all others, even
            if there are too many.
    """
    before = {folded(name) for name in known}
    taken = {*before, *reserved(origin)}
    fit: dict[str, str] = {}  # by folded name
    for name in filter(is_plain, columns):
        if folded(name) not in taken:
            fit.setdefault(folded(name), name)
    first = [name for name in map(folded, named) if name in fit]
    room = max(MOST_COLUMNS - len(before), len(set(first)))
    chosen = set(list(dict.fromkeys([*first, *fit]))[:room])
    return {name: columns[name] for key, name in fit.items() if key in chosen}


def is_plain(name: str) -> bool:
    """Whether a column, or a field within one, can have this name."""
    return bool(name) and len(name) <= 128 and not _REFUSED.search(name) and name.isprintable()
