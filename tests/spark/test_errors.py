"""What goes wrong inside Spark, in one line."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from medallion.errors import MedallionError, UnreachableError
from medallion.spark.errors import FailureCode, as_medallion_error, classify, explain, one_line


def explained(text: str, query: str) -> str:
    return str(explain(classify(PySparkException(text)), query))


def test_an_exception_in_one_line() -> None:
    text = (
        "[FAILED] the job stopped.\n\tat a.b.c\nCaused by: java.io.IOException: disk full\n\tat d"
    )
    assert one_line(text) == "[FAILED] the job stopped. (java.io.IOException: disk full)"
    assert one_line("one thing") == "one thing"
    # What Py4J raises begins with the call; its own errors are traced, too.
    called = "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext"
    raised = "org.apache.spark.SparkException: Could not parse Master URL: 'foo'"
    text = f"{called}.\n: {raised}\n\tat org.apache.spark.SparkContext$.create(SparkContext.scala)"
    assert one_line(text) == raised
    traced = "py4j.Py4JException: Target Object ID does not exist for this gateway :o14"
    text = f"An error occurred while calling o14.stop. Trace:\n{traced}\n\tat py4j.Gateway.invoke"
    assert one_line(text) == traced
    # What is raised inside of a batch comes with Python's own trace around it.
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


def test_of_what_is_no_sql_the_line_is_named() -> None:
    text = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'form'. SQLSTATE: 42601 (line 2, pos 9)

== SQL ==
SELECT action
count(*) form silver_event
---------^^^
GROUP BY action

JVM stacktrace:
"""
    told = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'form'. SQLSTATE: 42601 (line 2, pos 9)"
    assert one_line(text) == f"{told} (in count(*) form silver_event)"


def test_a_file_of_a_table_that_is_gone() -> None:
    """As after a VACUUM by hand, which asks nobody what is still to be read."""
    told = "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/data/"
    gone = f"batch 2: {told}silver/event/part-00000.parquet. File does not exist."
    assert "medallion refresh gold.action_counts rebuilds" in explained(gone, "gold.action_counts")
    landed = f"{told}bronze/landing/event/a.json. File does not exist."
    assert explained(landed, "bronze.event") == landed


def test_a_state_that_a_disk_does_not_give_is_not_to_be_rebuilt() -> None:
    told = "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.  ({})"
    gone = told.format("java.io.FileNotFoundException: _checkpoints/silver.event/state/0/0/1.zip")
    assert "medallion refresh silver.event rebuilds" in explained(gone, "silver.event")
    hung = told.format("java.io.IOException: Input/output error")
    assert explained(hung, "silver.event") == hung


def test_a_message_that_spark_cannot_read_past() -> None:
    said = (
        "org.apache.spark.sql.kafka010.KafkaIllegalStateException: Record at topic a.b partition 3 "
        "offset 41 has timestamp value 1700000000000000000 that overflows when converting to "
        "Spark's microsecond-precision TimestampType. (java.lang.ArithmeticException: overflow)"
    )
    told = explained(f"bronze.clicks batch 0: {said}", "bronze.clicks")
    assert told.startswith("topic a.b, partition 3, offset 41 has the timestamp 17000000")
    assert "before offset 42" in told
    assert "medallion backfill clicks a.b" in told


@pytest.mark.parametrize("gone", [ConnectionRefusedError(111, "no"), Py4JNetworkError("no")])
def test_java_that_has_ended_is_told_as_that(gone: Exception) -> None:
    told = (
        "silver.a cannot be put on record: the Java process has ended (out of memory, or a signal)"
    )
    assert str(as_medallion_error(gone, "silver.a cannot be put on record")) == told


@pytest.mark.parametrize(
    "said",
    [
        # Where a partition ends before what was read of it, the class is not in the message.
        "Some data may have been lost because they are not available in Kafka any more;",
        "[KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE] Could not read records in offset [0, 9)",
    ],
)
def test_messages_that_are_gone(said: str) -> None:
    assert explained(said, "bronze.clicks").endswith("medallion run bronze names the offsets")


def test_a_failure_has_the_code_of_its_cause() -> None:
    """Also if the cause is hidden by `from None`, for Spark would search its text."""

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
