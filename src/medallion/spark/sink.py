"""Where the micro-batches of a query go, when a function of Python's writes them."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

from pyspark.sql import DataFrame

from medallion.errors import MedallionError
from medallion.spark.errors import in_words


class Sink:
    """A function that writes micro-batches, and what it failed of, in words.

    Spark's own account of a function that failed is a stack trace of Python's.
    """

    def __init__(
        self, write: Callable[[DataFrame, int], None], stopping: Event | None = None
    ) -> None:
        """Make one.

        Args:
            write: the function.
            stopping: is set when the query is to be stopped: what it does then fails of that.
        """
        self._write, self.stopping = write, stopping or Event()
        self.failure: MedallionError | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write one batch.

        Raises:
            MedallionError: it could not be written. Nothing of Java's own account may be in it:
                Spark looks through that with a regular expression whose stack grows with the text.
        """
        try:
            self._write(rows, batch)
        except Exception as error:
            which = "" if isinstance(error, MedallionError) else f"batch {batch}: "
            self.failure = MedallionError(which + in_words(error))
            raise self.failure from None
