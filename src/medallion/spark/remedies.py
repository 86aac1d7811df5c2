"""What stops a query for a reason that is known, and what is to be done about it."""

from __future__ import annotations

import re

# One that cannot be read for what it is. Where it cannot be written, or reading it fails with an
# IOException of no kind, the disk is to blame: nothing is to be rebuilt.
_DAMAGED_STATE = re.compile(
    r"LOAD_STATE_STORE(?!.*\(java\.io\.IOException: )|MISSING_STATE_DIR"
    "|(Checksum|FileNotFound)Exception.*/state/"
)
_GONE = re.compile("KAFKA_DATA_LOSS|Some data may have been lost because they are not available")
# Of a table: bronze reads files that land, and sees to those that go itself.
_GONE_FILE = re.compile(r"FILE_NOT_EXIST\].*?/(bronze|silver|gold)/[^/ ]+/")
# Spark turns the time of each message into microseconds, and fails where they are too many.
_NO_TIME = re.compile(
    r"topic (\S+) partition (\d+) offset (\d+) has timestamp value (\d+) that over"
)
_NO_FEED = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_DATA_FILE_NOT_FOUND")
_REWRITTEN = (
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES",
    "DELTA_SOURCE_IGNORE_DELETE",
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION",
    "unexpected Delta table (id",  # its class has two spellings
)
PUT_BACK = "the clock was put back"
# What ends a query that only has to be started again, and what it is told to have done then.
_RESTARTS = {
    "DELTA_SCHEMA_CHANGED": "goes on with new columns",
    "DELTA_METADATA_CHANGED": "is started anew: somebody has changed the settings of its table",
    PUT_BACK: f"is started anew, for {PUT_BACK}: Spark would wait until it says again what it said",
    "no Kafka broker answers": "has stopped, for no Kafka broker answers; it is tried again",
}


def restart_note(error: str) -> str | None:
    """What is told of a query that such an error has ended, if it only has to be started again."""
    return next((told for name, told in _RESTARTS.items() if name in error), None)


def explain(error: str, query: str) -> str:
    """What a query was stopped by, in words; as Spark says it where nothing better is known.

    Args:
        error: Spark's account of it, in one line.
        query: its name, which commands take.
    """
    if any(name in error for name in _REWRITTEN):
        return (
            "the table that it reads is another one since it last ran, or rows of it have been "
            f"changed or deleted, or are not kept any more: medallion refresh {query} rebuilds its "
            "own"
        )
    if any(name in error for name in _NO_FEED):
        return (
            "what its table has changed since it last ran is not kept any more: medallion "
            f"refresh {query} publishes the whole table anew"
        )
    if _GONE.search(error):
        return "messages are gone, or a topic was made anew: medallion run bronze says which"
    if found := _NO_TIME.search(error):
        topic, part, offset, at = found.groups()
        return (
            f"topic {topic}, partition {part}, offset {offset} has the timestamp {at}, which is no "
            "time in milliseconds, and Spark cannot read past it: have its sender put that right; "
            f"then delete the partition's messages before offset {int(offset) + 1} from the topic "
            f"(kafka-delete-records), and medallion backfill {query.partition('.')[2]} {topic} "
            "goes on, with those that were not taken in counted as lost"
        )
    if _DAMAGED_STATE.search(error):
        return f"its state cannot be read: medallion refresh {query} rebuilds it ({error})"
    if _GONE_FILE.search(error) and not query.startswith("bronze."):
        return (
            "a file that it has still to read is gone, as after a VACUUM by hand: medallion "
            f"refresh {query} rebuilds its own of what there is now ({error})"
        )
    return error
