"""Errors of Spark and Java, as a code for decisions and a message of one line.

Only `classify` searches the text of an error: it checks Spark's error conditions first, then Java's
classes, and the text if there is nothing else.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from py4j.java_gateway import JavaObject, is_instance_of
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from medallion.errors import MedallionError, UnreachableError, error_message

# On the threads that call back from a stream, PySpark does not convert all of Java's errors.
SPARK_ERRORS = (PySparkException, Py4JError)
# Python raises these if the Java process is gone.
_JAVA_IS_GONE = (ConnectionRefusedError, Py4JNetworkError)
_TRACEBACK = "Traceback (most recent call last):\n"
# The prefix that Py4J adds to a Java error.
_CALLED = re.compile(r"\AAn error occurred while calling \S+?\.( Trace:)?\n(: )?")
# The part of a query that failed at a row, which Spark underlines; if SQL does not parse, the line
# above the mark.
_FRAGMENT = re.compile(
    r"^== SQL (?:\(.*\) ==\n((?:.+\n?)+)|==\n(?:.*\n)*?(.+)\n-*\^)", re.MULTILINE
)
_UNDERLINE = re.compile(r"^ *\^+$", re.MULTILINE)


class StreamError(MedallionError):
    """A streaming query stopped with an error."""


class FailureCode(StrEnum):
    """The causes of failures that decisions depend on."""

    # The query only has to be started again.
    SCHEMA_CHANGED = "schema_changed"
    TABLE_SETTINGS_CHANGED = "table_settings_changed"
    BROKER_UNREACHABLE = "broker_unreachable"
    RULES_CHANGED = "rules_changed"
    # The user has to act.
    INPUT_REPLACED = "input_replaced"
    CHANGES_REMOVED = "changes_removed"
    MESSAGES_LOST = "messages_lost"
    STATE_CORRUPT = "state_corrupt"
    TABLE_FILE_MISSING = "table_file_missing"
    FILE_CHECKSUM_WRONG = "file_checksum_wrong"
    COLUMN_TYPE_UNREADABLE = "column_type_unreadable"
    OTHER = "other"


@dataclass(frozen=True)
class Failure:
    """A failure as a code that decides, and a message of one line."""

    code: FailureCode
    message: str

    def __str__(self) -> str:
        """Return the message."""
        return self.message


# Prefixes of Spark's and Delta's error conditions; the first match decides.
_CONDITIONS = {
    "DELTA_SOURCE_TABLE_IGNORE_CHANGES": FailureCode.INPUT_REPLACED,
    "DELTA_SOURCE_IGNORE_DELETE": FailureCode.INPUT_REPLACED,
    "DELTA_MISSING_FILES_UNEXPECTED_VERSION": FailureCode.INPUT_REPLACED,
    "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": FailureCode.INPUT_REPLACED,
    "DELTA_DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE": FailureCode.INPUT_REPLACED,
    "DELTA_MISSING_CHANGE_DATA": FailureCode.CHANGES_REMOVED,
    "DELTA_CHANGE_DATA_FILE_NOT_FOUND": FailureCode.CHANGES_REMOVED,
    "KAFKA_DATA_LOSS": FailureCode.MESSAGES_LOST,
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIR": FailureCode.STATE_CORRUPT,
    "CANNOT_LOAD_STATE_STORE": FailureCode.STATE_CORRUPT,
    "FAILED_READ_FILE.FILE_NOT_EXIST": FailureCode.TABLE_FILE_MISSING,
    "DELTA_SCHEMA_CHANGED": FailureCode.SCHEMA_CHANGED,
    "DELTA_METADATA_CHANGED": FailureCode.TABLE_SETTINGS_CHANGED,
    "PARQUET_TYPE_": FailureCode.COLUMN_TYPE_UNREADABLE,
    "UNSUPPORTED_TIME_TYPE": FailureCode.COLUMN_TYPE_UNREADABLE,
}
# Conditions that do not name the cause of a failed read or write: the root cause is added.
_WITHOUT_CAUSE = ("TASK_WRITE_FAILED", "CANNOT_WRITE_STATE_STORE", "CANNOT_LOAD_STATE_STORE")
_CONDITION_IN_TEXT = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_CLASS_NAME = re.compile(r"((?:\b[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error))(?::? |$)", re.MULTILINE)
# Causes for which Kafka's source and Hadoop have no condition.
_LOST_MESSAGES = "Some data may have been lost because they are not available"
_STATE_FILE = re.compile(r"_checkpoints/.*/state/")

RESTART_NOTES = {
    FailureCode.SCHEMA_CHANGED: "continues with new columns",
    FailureCode.TABLE_SETTINGS_CHANGED: "is restarted: the properties of its table were changed",
    FailureCode.BROKER_UNREACHABLE: "stopped: no Kafka broker answers; it is retried",
    FailureCode.RULES_CHANGED: "restarts with the current rules",
}
"""Messages about queries that stopped and only have to be started again."""

_MESSAGES = {
    FailureCode.INPUT_REPLACED: (
        "a table that it reads was replaced, modified or vacuumed since its last run: medallion "
        "refresh {query} rebuilds it"
    ),
    FailureCode.CHANGES_REMOVED: (
        "the changes of its table since its last run were removed: medallion refresh {query} "
        "publishes the complete table again"
    ),
    FailureCode.MESSAGES_LOST: (
        "messages are gone, or a topic was recreated: medallion run bronze names the offsets"
    ),
    FailureCode.STATE_CORRUPT: (
        "its state cannot be read: medallion refresh {query} rebuilds it ({message})"
    ),
    FailureCode.TABLE_FILE_MISSING: (
        "a data file that it has not read yet is missing, such as after a manual VACUUM: medallion "
        "refresh {query} rebuilds the table from the remaining rows ({message})"
    ),
}


def classify(
    error: Exception, message: str | None = None, throwable: JavaObject | None = None
) -> Failure:
    """Return the code and the one-line message of an error, by its conditions and causes.

    Args:
        error: the Python exception.
        message: the message to report; None for Spark's own message in one line.
        throwable: the Java error, if the Python exception does not refer to it.
    """
    throwables = list(_throwables(error if throwable is None else throwable))
    conditions, classes, text = _evidence(error, throwables)
    if message is None:
        message = _message(error, throwables, conditions)
    if any(isinstance(each, UnreachableError) for each in _causes(error)):
        return Failure(FailureCode.BROKER_UNREACHABLE, message)
    return Failure(_code(conditions, classes, text), message)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes, also hidden ones (`from None`)."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _code(conditions: Sequence[str], classes: Sequence[str], text: str) -> FailureCode:
    codes = (
        code
        for start, code in _CONDITIONS.items()
        if any(condition.startswith(start) for condition in conditions)
    )
    code, names = next(codes, None), {each.rpartition(".")[2] for each in classes}
    # A failing disk raises a plain IOException: there is nothing to rebuild.
    if code is FailureCode.STATE_CORRUPT and classes[-1:] == ["java.io.IOException"]:
        return FailureCode.OTHER
    if code:
        return code
    if _LOST_MESSAGES in text:
        return FailureCode.MESSAGES_LOST
    if _STATE_FILE.search(text) and names & {"ChecksumException", "FileNotFoundException"}:
        return FailureCode.STATE_CORRUPT
    is_corrupt = "ChecksumException" in names
    return FailureCode.FILE_CHECKSUM_WRONG if is_corrupt else FailureCode.OTHER


def explain(failure: Failure, query: str) -> Failure:
    """Return a failure with a message that names the remedy, if its code has one.

    Args:
        failure: the failure that stopped a query.
        query: the name of the query.
    """
    template = _MESSAGES.get(failure.code)
    # Bronze reads landed files, and rejects missing ones itself: they are no files of tables.
    is_landed = failure.code is FailureCode.TABLE_FILE_MISSING and query.startswith("bronze.")
    if template is None or is_landed:
        return failure
    return Failure(failure.code, template.format(query=query, message=failure))


def raised_code(error: Exception) -> str | None:
    """Return the code that `raise_error(code)` in SQL failed with; None if it was another error."""
    for throwable in _throwables(error):
        if _condition(throwable) == "USER_RAISED_EXCEPTION":
            return str(throwable.getMessageParameters().get("errorMessage"))
    return None


def _throwables(error: Any) -> Iterator[Any]:
    """Yield Java's throwables behind an error and its causes, of Python and of Java."""
    if isinstance(error, BaseException):
        for each in _causes(error):
            yield from _throwables(getattr(each, "java_exception", None))
            yield from _throwables(getattr(each, "_origin", None))
        return
    while error is not None:
        yield error
        error = error.getCause()


def _condition(throwable: Any) -> str | None:
    interface = "org.apache.spark.SparkThrowable"
    has_condition = is_instance_of(SparkContext._gateway, throwable, interface)
    return throwable.getCondition() if has_condition else None


def _evidence(
    error: Exception, throwables: Sequence[Any]
) -> tuple[Sequence[str], Sequence[str], str]:
    """Return the facts about an error, from its text if there is no Java error."""
    conditions = [name for each in throwables if (name := _condition(each))]
    classes = [str(each.getClass().getName()) for each in throwables]
    texts = [str(each.getMessage() or "") for each in throwables]
    for each in () if throwables else _causes(error):
        if isinstance(each, SPARK_ERRORS):
            texts.append(text := str(each))
            conditions += _CONDITION_IN_TEXT.findall(text)
            classes += _CLASS_NAME.findall(text)
    return conditions, classes, "\n".join(texts)


def _message(error: Exception, throwables: Sequence[Any], conditions: Iterable[str]) -> str:
    """Return an error in one line, with the root cause if the error does not name it."""
    if not throwables:
        return describe_error(error)
    root = throwables[-1]
    root_text = one_line(str(root.toString()))
    if not any(each.getMessage() for each in throwables[1:] or throwables):  # a stack overflow
        return root_text
    text = one_line(str(error))
    has_cause = not any(each.startswith(_WITHOUT_CAUSE) for each in conditions)
    return text if has_cause or root_text in text else f"{text} ({root_text})"


def describe_error(error: Exception) -> str:
    """Return any error in one line, with its class unless it is a MedallionError or Spark's."""
    if isinstance(error, MedallionError):
        return str(error)
    if isinstance(error, _JAVA_IS_GONE):
        return "the Java process has ended (out of memory, or a signal)"
    text = one_line(error_message(error)) if str(error).strip() else "no message"
    return text if isinstance(error, SPARK_ERRORS) else f"{type(error).__name__}: {text}"


def as_medallion_error(error: Exception, what: str) -> MedallionError:
    """Return a MedallionError as it is; any other error as a StreamError: `what` and the cause."""
    if isinstance(error, MedallionError):
        return error
    failure = StreamError(f"{what}: {describe_error(error)}")
    failure.__cause__ = error  # --debug prints its stack trace
    return failure


def raise_combined(errors: Iterable[MedallionError]) -> None:
    """Raise several errors as one, of the class of the first; do nothing if there are none."""
    if failures := list(errors):
        combined = type(failures[0])(str(failures[0]))
        combined.args = tuple(dict.fromkeys(map(str, failures)))
        raise combined from failures[0]


def one_line(text: str) -> str:
    """Return the text of an error without stack traces, with the SQL that it names."""
    message, match = _raised_in_python(text) or _raised_in_java(text), _FRAGMENT.search(text)
    sql = " ".join(_UNDERLINE.sub("", match[1] or match[2]).split()) if match else ""
    return f"{message} (in {sql})" if sql else message


def _raised_in_python(text: str) -> str:
    """Return Python's error, which is the line after the last stack trace; "" without one."""
    _, traceback, rest = text.rpartition(_TRACEBACK)
    raised = (line for line in rest.splitlines() if traceback and line and not line[0].isspace())
    line = next(raised, "")
    class_name, colon, message = line.partition(": ")
    return message if colon and re.fullmatch(r"[\w.]+", class_name) else line


def _raised_in_java(text: str) -> str:
    """Return the first line, and the last cause unless the first line contains it."""
    lines = [line.strip() for line in _CALLED.sub("", text).splitlines()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    filled = [line for line in lines if line] or ["unknown error"]
    first = " ".join(filled[:2]) if filled[0].endswith(":") else filled[0]
    cause = causes[-1].removeprefix("Caused by:").strip() if causes else ""
    return f"{first} ({cause})" if cause and cause not in first else first
