"""Show a DataFrame as a table or bar chart; that of a stream is updated batch by batch."""

from __future__ import annotations

import math
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from rich.text import Text

from medallion.errors import UsageError
from medallion.spark.errors import SPARK_ERRORS, StreamError
from medallion.spark.plans import analyzed_plan, plan_nodes
from medallion.spark.query import records_after, watermark_of
from medallion.storage.text import counted
from medallion.streams import drawing
from medallion.streams.control import exception, forget, label, plain_interrupts, session, stop
from medallion.streams.drawing import Screen
from medallion.streams.writing import named_trigger, write

_PAUSE = 0.1  # seconds between two polls
_MOST_ROWS = 100_000  # the table is in memory
_displayed: set[str] = set()  # the run ids of the queries that were started here


def display(
    df: DataFrame,
    stream_name: str | None = None,
    *,
    trigger: str = "default",
    output_mode: str | None = None,
    bar: str | None = None,
    rows: int = 20,
    seconds: float | None = None,
) -> StreamingQuery | None:
    """Show a stream as it grows.

    A notebook's cell is updated with each batch; a terminal gets another table.

    The display ends when the stream does, after `seconds`, with Ctrl-C, or when the table has
    100,000 rows; then the stream is stopped. In a notebook, without `seconds` and with a trigger
    that does not end, the call returns at once, and the output is updated until the stream stops.

    Args:
        df: a stream. Any other DataFrame is shown once, and None is returned.
        stream_name: name of the query and of its table in memory, which SQL can read; without a
            name the table is removed at the end.
        trigger: see `medallion.streams.trigger`; not `continuous`.
        output_mode: by default `complete` for an aggregation, else `append`.
        bar: a column of numbers to draw as bars.
        rows: the most rows to show: the first in complete mode, else the newest.
        seconds: the time to show it.

    Raises:
        UsageError: an argument is invalid, or Spark refuses the query.
        StreamError: the stream failed.
    """
    if rows < 1 or (seconds is not None and seconds <= 0):
        raise UsageError("rows must be a whole number above 0, and seconds above 0.")
    trigger_arguments = named_trigger(trigger)
    if "continuous" in trigger_arguments:  # it holds its cores, and drawing needs one
        raise UsageError("A display cannot use the trigger continuous: use an interval.")
    ends = seconds or trigger_arguments.keys() & {"once", "availableNow"}
    drawing.refuse_invalid_bar(df, bar)
    screen = Screen()
    if not df.isStreaming:
        screen.draw(drawing.draw_table(df, rows, bar))
        return None
    name = stream_name or f"display_{uuid.uuid4().hex[:8]}"
    # A cell that is run again replaces its stream.
    stop(q for q in session().streams.active if q.name == name and q.runId in _displayed)
    mode = output_mode or ("complete" if _has_aggregate(df) else "append")
    query = write(df, "memory", name=name, trigger=trigger, output_mode=mode)
    _displayed.add(query.runId)
    end, is_temporary = time.monotonic() + (seconds or math.inf), stream_name is None
    display = _Display(query, screen, mode == "complete", bar, rows, end, is_temporary)
    if screen.is_notebook and not ends:
        display.draw()  # here: the first output of a thread would go to the cell that runs then
        threading.Thread(target=display.run_in_background, daemon=True).start()
    elif failure := display.run():
        raise StreamError(f"{name} failed: {failure}")
    return query


def _has_aggregate(df: DataFrame) -> bool:
    """Return True if the stream itself is aggregated, not only a table that is joined to it."""
    nodes = plan_nodes(analyzed_plan(df))
    return any(node.nodeName() == "Aggregate" and node.isStreaming() for node in nodes)


@dataclass
class _Display:
    """One query on one screen, with the rows and last batch that were read so far."""

    query: StreamingQuery
    screen: Screen
    is_complete: bool
    bar: str | None
    most_rows: int
    end: float
    is_temporary: bool
    rows: int = 0
    last: dict[str, Any] = field(default_factory=lambda: {"batchId": -1})

    def run(self) -> str | None:
        """Draw each batch until the end, then stop the query; return why it failed, or None."""
        try:
            with plain_interrupts():
                while not (reason := self._end_reason()):
                    time.sleep(_PAUSE)
        except KeyboardInterrupt:
            reason = "interrupted"
        stop([self.query])
        self._read_batches()
        failure = exception(self.query)
        self.draw(f"failed: {failure}" if failure else f"stopped: {reason}")
        if self.is_temporary:
            session().catalog.dropTempView(self.query.name)
            forget(self.query)
        return failure

    def run_in_background(self) -> None:
        """Run while other cells run, one of which may stop Spark itself."""
        with suppress(*SPARK_ERRORS, OSError):
            self.run()

    def _end_reason(self) -> str | None:
        """Draw a new batch; return why the display ends, None if it continues."""
        is_active = self.query.isActive  # read first, so that the last batch is drawn
        if self._read_batches():
            self.draw()
        if not is_active:
            return "all available data was processed"
        if time.monotonic() >= self.end:
            return "the time is up"
        if self.rows >= _MOST_ROWS:
            return f"its table has {counted(self.rows, 'row')}, all in memory"
        return None

    def _read_batches(self) -> bool:
        """Read the batches that ended since the last call; return True if there are any."""
        before = self.last
        for record in records_after(self.query, before["batchId"]):
            written = max(0, record["sink"]["numOutputRows"])
            self.rows = written if self.is_complete else self.rows + written
            self.last = record
        return self.last is not before

    def draw(self, caption: str = "") -> None:
        """Draw the rows that the table has now."""
        rows = session().table(self.query.name)
        table = drawing.draw_table(rows, self.most_rows, self.bar, newest=not self.is_complete)
        table.title, table.caption = f"{label(self.query)}: {self._summary()}", Text(caption)
        self.screen.draw(table)

    def _summary(self) -> str:
        if self.last["batchId"] < 0:
            return "no batch yet"
        rate = f"{self.last['processedRowsPerSecond']:,.1f} rows a second"
        words = [f"batch {self.last['batchId']}", counted(self.rows, "row"), rate]
        if watermark := watermark_of(self.last):
            words.append(f"watermark {watermark}")
        return ", ".join(words)
