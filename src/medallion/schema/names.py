"""Names of columns: which a table can have, and how many."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from medallion.config.values import folded
from medallion.lakehouse.columns import FAILED_RULES, FULL_TIMES, OF_FILES, TECHNICAL

# A file whose field names are data, one to a row, must not make a table of as many columns.
MOST_COLUMNS = 500
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
    columns: Mapping[str, str], known: Iterable[str], origin: Iterable[str] = OF_FILES
) -> dict[str, str]:
    """Those of the columns that a table can have beside the known ones; the rest stays rescued."""
    before = {folded(name) for name in known}
    taken = {*before, *reserved(origin)}
    room = MOST_COLUMNS - len(before)
    found: dict[str, str] = {}
    for name, kind in columns.items():
        if is_plain(name) and folded(name) not in taken and len(found) < room:
            found[name] = kind
            taken.add(folded(name))
    return found


def is_plain(name: str) -> bool:
    """Whether a column, or a field within one, can have this name."""
    return bool(name) and len(name) <= 128 and not _REFUSED.search(name) and name.isprintable()
