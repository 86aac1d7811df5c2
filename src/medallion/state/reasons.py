"""Reasons in the ledger: a code that decides, and a sentence that explains it to users."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class ReasonCode(StrEnum):
    """The column `reason_code` of `ops.files`: what a file's state is due to."""

    # A file that is not ingested under its name, or not yet.
    HIDDEN = "hidden"
    LINK = "symbolic_link"
    NOT_A_FILE = "not_a_file"
    UNSUPPORTED_NAME = "unsupported_name"
    INACCESSIBLE = "inaccessible"
    BEING_WRITTEN = "being_written"
    CSV_HEADER = "csv_header"
    # A folder whose files are not known.
    FOLDER_MISSING = "folder_missing"
    FOLDER_UNREADABLE = "folder_unreadable"
    # A rejected file.
    UNREADABLE = "unreadable"
    NAME_TAKEN = "name_taken"
    GREW = "grew_after_reading"
    SAME_FILE = "same_file"
    # What became of a path or a file that was ingested.
    GONE = "gone"
    RENAMED = "renamed"
    LISTED_AGAIN = "listed_again"
    REPLACED = "replaced"
    DELETED = "deleted"
    CANNOT_MOVE = "cannot_move"
    CHANGED_IN_ARCHIVE = "changed_in_archive"
    OTHER = "other"


class Reason(NamedTuple):
    """A reason as code and sentence."""

    code: ReasonCode
    text: str


# The first words of what earlier releases wrote into the column `why`, which had no code.
_OLD_TEXTS = {
    "hidden: ": ReasonCode.HIDDEN,
    "a symbolic link": ReasonCode.LINK,
    "neither a file nor a directory": ReasonCode.NOT_A_FILE,
    "its name is not UTF-8": ReasonCode.UNSUPPORTED_NAME,
    "its name, or its folder's, has": ReasonCode.UNSUPPORTED_NAME,
    "cannot be looked at": ReasonCode.INACCESSIBLE,
    "cannot be opened": ReasonCode.INACCESSIBLE,
    "still being written": ReasonCode.BEING_WRITTEN,
    "there is no such folder": ReasonCode.FOLDER_MISSING,
    "cannot be listed": ReasonCode.FOLDER_UNREADABLE,
    "a file of this name was taken in before": ReasonCode.NAME_TAKEN,
    "a file of this name and size was taken in before": ReasonCode.NAME_TAKEN,
    "a file of this name, size and time was taken in before": ReasonCode.SAME_FILE,
    "the same file as": ReasonCode.SAME_FILE,
    "gone b": ReasonCode.GONE,
    "not there any more under this name": ReasonCode.RENAMED,
    "a folder that can be listed again": ReasonCode.LISTED_AGAIN,
    "deleted, as clean_source": ReasonCode.DELETED,
    "cannot be moved": ReasonCode.CANNOT_MOVE,
}


def code_of_old_text(text: str) -> ReasonCode:
    """Return the code of a reason that an earlier release wrote without one."""
    codes = (code for start, code in _OLD_TEXTS.items() if text.startswith(start))
    return next(codes, ReasonCode.OTHER)
