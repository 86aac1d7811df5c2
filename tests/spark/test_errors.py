"""Errors inside Spark, as one-line messages."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from medallion.errors import MedallionError, UnreachableError
from medallion.spark.errors import FailureCode, as_medallion_error, classify, explain, one_line


def explain_text(text: str, query: str) -> str:
    return str(explain(classify(PySparkException(text)), query))


def test_one_line_of_exceptions() -> None:
    text = (
        "[FAILED] the job stopped.\n\tat a.b.c\nCaused by: java.io.IOException: disk full\n\tat d"
    )
    assert one_line(text) == "[FAILED] the job stopped. (java.io.IOException: disk full)"
    assert one_line("one thing") == "one thing"
    # Py4J's message starts with the call; its own errors also have a stack trace.
    py4j_call = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext"
    raised = "org.apache.spark.SparkException: Could not parse Master URL: 'foo'"
    text = (
        f"{py4j_call}.\n: {raised}\n\tat org.apache.spark.SparkContext$.create(SparkContext.scala)"
    )
    assert one_line(text) == raised
    traced = "py4j.Py4JException: Target Object ID does not exist for this gateway :o14"
    text = f"An error occurred while calling o14.stop. Trace:\n{traced}\n\tat py4j.Gateway.invoke"
    assert one_line(text) == traced
    # Errors raised inside a batch are wrapped in Python's traceback.
    text = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "utils.py", line 163, in call
    self.func(batch, batch_id)
pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'p' of it.
== SQL (line 1, position 1) ==
cast(
^^^^^
  id as int)
^^^^^^^^^^^^

=== Streaming Query ==="""  # noqa: E501
    assert one_line(text) == "[CAST_INVALID_INPUT] The value 'p' of it. (in cast( id as int))"


def test_one_line_of_a_parse_error_has_the_line() -> None:
    text = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'form'. SQLSTATE: 42601 (line 2, pos 9)

== SQL ==
SELECT action
count(*) form silver_event
---------^^^
GROUP BY action

JVM stacktrace:
"""
    expected = (
        "[PARSE_SYNTAX_ERROR] Syntax error at or near 'form'. SQLSTATE: 42601 (line 2, pos 9)"
    )
    assert one_line(text) == f"{expected} (in count(*) form silver_event)"


def test_explain_missing_table_file() -> None:
    """The file was removed by a manual VACUUM, which ignores unread versions."""
    expected = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/data/"
    missing = f"batch 2: {expected}silver/event/part-00000.parquet. File does not exist."
    assert "medallion refresh gold.action_counts rebuilds" in explain_text(
        missing, "gold.action_counts"
    )
    landed = f"{expected}bronze/landing/event/a.json. File does not exist."
    assert explain_text(landed, "bronze.event") == landed


def test_explain_disk_error_is_no_corrupt_state() -> None:
    state = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  ({})"
    missing = state.format(
        "java.io.FileNotFoundException: _checkpoints/silver.event/state/0/0/1.zip"
    )
    assert "medallion refresh silver.event rebuilds" in explain_text(missing, "silver.event")
    other_error = state.format("java.io.IOException: Input/output error")
    assert explain_text(other_error, "silver.event") == other_error


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "no"), Py4JNetworkError("no")])
def test_ended_java_process_is_named(error: Exception) -> None:
    expected = (
        "silver.a cannot be recorded: the Java process has ended (out of memory, or a signal)"
    )
    assert str(as_medallion_error(error, "silver.a cannot be recorded")) == expected


@pytest.mark.parametrize(
    "message",
    [
        # This message contains no error class: a partition ends before the offsets already read.
        "Some data may have been lost because they are not available in Kafka any more;",
        "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records in offset [0, 9)",
    ],
)
def test_explain_lost_messages(message: str) -> None:
    assert explain_text(message, "bronze.clicks").endswith("medallion run bronze names the offsets")


def test_classify_uses_the_code_of_the_cause() -> None:
    """This includes causes hidden by `from None`, because Spark would search its text."""

    def write() -> None:
        try:
            raise PySparkException("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Detected schema change")
        except PySparkException:
            raise MedallionError("batch 2 was not written") from None

    with pytest.raises(MedallionError) as raised:
        write()
    assert classify(raised.value).code is FailureCode.SCHEMA_CHANGED
    assert str(classify(raised.value)) == "batch 2 was not written"
    assert classify(UnreachableError("no answer")).code is FailureCode.BROKER_UNREACHABLE
    assert classify(ValueError("[DELTA_SCHEMA_CHANGED] in a value")).code is FailureCode.OTHER
