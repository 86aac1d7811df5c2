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


def in_words(error: Exception) -> str:
    """Any exception in one line; with its class, if it is neither ours nor Spark's."""
    if isinstance(error, MedallionError):
        return str(error)
    if isinstance(error, _JAVA_IS_GONE):
        return "Java has ended (memory, or a signal)"
    told = one_line(str(error)) if str(error).strip() else "no message"
    return told if isinstance(error, SPARK_ERRORS) else f"{type(error).__name__}: {told}"


def ours(error: Exception, what: str) -> MedallionError:
    """The error itself, if it is ours; any other one as what came of it, and why."""
    if isinstance(error, MedallionError):
        return error
    told = StreamError(f"{what}: {in_words(error)}")
    told.__cause__ = error  # for whoever asks for the stack trace
    return told


def together(failures: Sequence[MedallionError]) -> MedallionError:
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
