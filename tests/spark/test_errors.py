"""What goes wrong inside Spark, in one line."""

from __future__ import annotations

from medallion.spark.errors import one_line


def test_an_exception_in_one_line() -> None:
    text = (
        "[FAILED] the job stopped.\n\tat a.b.c\nCaused by: java.io.IOException: disk full\n\tat d"
    )
    assert one_line(text) == "[FAILED] the job stopped. (java.io.IOException: disk full)"
    assert one_line("one thing") == "one thing"
    # What is raised inside of a batch comes with Python's own trace around it.
    text = """An exception was raised by the Python Proxy. Return Message: Traceback (most recent call last):
  File "utils.py", line 163, in call
    self.func(batch, batch_id)
pyspark.errors.exceptions.captured.NumberFormatException: [CAST_INVALID_INPUT] The value 'p' of it.
== SQL (line 1, position 1) ==
cast(id as int)


=== Streaming Query ==="""  # noqa: E501
    assert one_line(text) == "[CAST_INVALID_INPUT] The value 'p' of it."
