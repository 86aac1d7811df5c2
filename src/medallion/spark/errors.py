"""What goes wrong inside Spark, told in one line and without stack traces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.java_gateway import is_instance_of
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from medallion.errors import MedallionError

# On the threads that call back from a stream, PySpark leaves some of the JVM's errors as they are.
SPARK_ERRORS = (PySparkException, Py4JError)
# What Python meets where the other process is gone.
_JAVA_IS_GONE = (ConnectionRefusedError, Py4JNetworkError)
_NO_KAFKA = "data source: kafka"
_TRACEBACK = "Traceback (most recent call last):\n"
# What Py4J says before the error of Java.
_CALLED = re.compile(r"\AAn error occurred while calling \S+?\.( Trace:)?\n(: )?")
# The part of a query that failed at a row, with its place underlined; or all of one that is no SQL,
# of which the line above the mark is enough.
_FRAGMENT = re.compile(
    r"^== SQL (?:\(.*\) ==\n((?:.+\n?)+)|==\n(?:.*\n)*?(.+)\n-*\^)", re.MULTILINE
)
_UNDERLINE = re.compile(r"^ *\^+$", re.MULTILINE)


class StreamError(MedallionError):
    """A streaming query stopped with an error."""


def raised_code(error: Exception) -> str | None:
    """Return the code that `raise_error(code)` in SQL failed with; None if it was another error."""
    for found in _spark_errors(error):
        if found.getCondition() == "USER_RAISED_EXCEPTION":
            return str(found.getMessageParameters().get("errorMessage"))
    return None


def _spark_errors(error: Exception) -> Iterator[Any]:
    """Yield Spark's own errors behind one that PySpark may or may not have converted."""
    if isinstance(error, PySparkException) and error.getCondition():
        yield error
    found = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    gateway = SparkContext._gateway
    while found is not None:
        if is_instance_of(gateway, found, "org.apache.spark.SparkThrowable"):
            yield found
        found = found.getCause()


def missing_jars(error: Exception) -> str | None:
    """What has to be set up, where that is why Spark failed."""
    if _NO_KAFKA not in str(error):
        return None
    return "Spark's Kafka jars are not set up here: make setup-kafka brings them."


def describe_error(error: Exception) -> str:
    """Any exception in one line; with its class, if it is neither ours nor Spark's."""
    if isinstance(error, MedallionError):
        return str(error)
    if isinstance(error, _JAVA_IS_GONE):
        return "Java has ended (memory, or a signal)"
    told = one_line(str(error)) if str(error).strip() else "no message"
    return told if isinstance(error, SPARK_ERRORS) else f"{type(error).__name__}: {told}"


def as_medallion_error(error: Exception, what: str) -> MedallionError:
    """The error itself, if it is ours; any other one as what came of it, and why."""
    if isinstance(error, MedallionError):
        return error
    told = StreamError(f"{what}: {describe_error(error)}")
    told.__cause__ = error  # for whoever asks for the stack trace
    return told


def combine_errors(failures: Sequence[MedallionError]) -> MedallionError:
    """Several errors as one, of the first one's kind."""
    told = type(failures[0])("; ".join(dict.fromkeys(map(str, failures))))
    told.__cause__ = failures[0]
    return told


def one_line(text: str) -> str:
    """An exception of Spark without its stack traces, Python's among them; with the SQL that failed
    at a row, or could not be read, where Spark says it."""
    told, found = _of_python(text) or _of_java(text), _FRAGMENT.search(text)
    sql = " ".join(_UNDERLINE.sub("", found[1] or found[2]).split()) if found else ""
    return f"{told} (in {sql})" if sql else told


def _of_python(text: str) -> str:
    """What was raised in Python, if that is told: the line after the last of its stack traces."""
    _, found, traced = text.rpartition(_TRACEBACK)
    raised = (line for line in traced.splitlines() if found and line and not line[0].isspace())
    told = next(raised, "")
    kind, colon, message = told.partition(": ")  # the class, which may be within a module
    return message if colon and re.fullmatch(r"[\w.]+", kind) else told


def _of_java(text: str) -> str:
    """What is said first, and the last cause, unless that is said already."""
    lines = [line.strip() for line in _CALLED.sub("", text).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    said = [line for line in lines if line] or ["unknown error"]
    first = " ".join(said[:2]) if said[0].endswith(":") else said[0]
    cause = causes[-1].removeprefix("Caused by:").strip() if causes else ""
    return f"{first} ({cause})" if cause and cause not in first else first


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
