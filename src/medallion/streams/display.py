"""Show a stream as a table or bar chart, which is updated batch by batch.

Spark formats the values, as in `show`, and rich draws the table in a terminal or a notebook.
Control characters are escaped, and markup has no effect.
"""

from __future__ import annotations

import math
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import NumericType
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from medallion.errors import UsageError
from medallion.spark.errors import SPARK_ERRORS, StreamError, one_line
from medallion.spark.plans import analyzed_plan, plan_nodes
from medallion.spark.query import AVAILABLE_NOW, records_after, trigger_options, watermark_of
from medallion.storage.text import counted, printable
from medallion.streams.control import exception, plain_interrupts, stop

_PAUSE = 0.1  # seconds between two polls
_MOST_ROWS = 100_000  # the table is in memory
_displayed: set[str] = set()  # the run ids of the queries that were started here
_BAR_WIDTH = 32
_LONGEST = 200  # characters of a value


def display(
    df: DataFrame,
    stream_name: str | None = None,
    *,
    trigger: str = "1 second",
    bar: str | None = None,
    rows: int = 20,
    seconds: float | None = None,
) -> StreamingQuery:
    """Show a stream as it grows.

    A notebook's cell is updated with each batch; a terminal gets another table. The output mode is
    `complete` for an aggregation, else `append`.

    The display ends when the stream does, after `seconds`, with Ctrl-C, or when the table has
    100,000 rows; then the stream is stopped. In a notebook, without `seconds` and with a trigger
    that does not end, the call returns at once, and the output is updated until the stream stops.

    Args:
        df: a stream.
        stream_name: name of the query and of its table in memory, which SQL can read; without a
            name the table is removed at the end.
        trigger: an interval, or `available-now`.
        bar: a column of numbers to draw as bars.
        rows: the most rows to show: the first in complete mode, else the newest.
        seconds: the time to show it.

    Raises:
        UsageError: an argument is invalid, or Spark refuses the query.
        StreamError: the stream failed.
    """
    if rows < 1 or (seconds is not None and seconds <= 0):
        raise UsageError("rows must be a whole number above 0, and seconds above 0.")
    arguments = trigger_options(trigger)
    refuse_invalid_bar(df, bar)
    name = stream_name or f"display_{uuid.uuid4().hex[:8]}"
    # A cell that is run again replaces its stream.
    stop(q for q in df.sparkSession.streams.active if q.name == name and q.runId in _displayed)
    mode = "complete" if _has_aggregate(df) else "append"
    try:
        writer = df.writeStream.format("memory").queryName(name).outputMode(mode)
        query = writer.trigger(**arguments).start()
    except SPARK_ERRORS as error:
        raise UsageError(f"The stream did not start: {one_line(str(error))}") from None
    _displayed.add(query.runId)
    screen, end = Screen(), time.monotonic() + (seconds or math.inf)
    shown = _Display(query, screen, bar, rows, mode != "complete", end, not stream_name)
    if screen.is_notebook and not seconds and trigger != AVAILABLE_NOW:
        shown.draw()  # here: the first output of a thread would go to the cell that runs then
        threading.Thread(target=shown.run_in_background, daemon=True).start()
    elif failure := shown.run():
        raise StreamError(f"{name} failed: {failure}")
    return query


def _has_aggregate(df: DataFrame) -> bool:
    """Return True if the stream itself is aggregated, not only a table that is joined to it."""
    nodes = plan_nodes(analyzed_plan(df))
    return any(node.nodeName() == "Aggregate" and node.isStreaming() for node in nodes)


@dataclass
class _Display:
    """One query on one screen, with the last batch that was drawn, and its rows until then."""

    query: StreamingQuery
    screen: Screen
    bar: str | None
    most_rows: int
    is_newest_shown: bool
    end: float
    is_temporary: bool
    batch: int = -1
    rows: int = 0

    def run(self) -> str | None:
        """Draw each batch until the end, then stop the query; return why it failed, or None."""
        try:
            with plain_interrupts():
                while not (reason := self._end_reason()):
                    time.sleep(_PAUSE)
        except KeyboardInterrupt:
            reason = "interrupted"
        stop([self.query])
        failure = exception(self.query)
        self.draw(f"failed: {failure}" if failure else f"stopped: {reason}")
        if self.is_temporary:
            SparkSession.active().catalog.dropTempView(self.query.name)
        return failure

    def run_in_background(self) -> None:
        """Run while other cells run, one of which may stop Spark itself."""
        with suppress(*SPARK_ERRORS, OSError):
            self.run()

    def _end_reason(self) -> str | None:
        """Draw a new batch; return why the display ends, None if it continues."""
        is_active = self.query.isActive  # read first, so that the last batch is drawn
        if any(records_after(self.query, self.batch)):
            self.draw()
        if not is_active:
            return "all available data was processed"
        if time.monotonic() >= self.end:
            return "the time is up"
        if self.rows >= _MOST_ROWS:
            return f"its table has {counted(self.rows, 'row')}, all in memory"
        return None

    def draw(self, caption: str = "") -> None:
        """Draw the rows that the table has now."""
        name, rows = self.query.name, SparkSession.active().table(self.query.name)
        table, title = draw_table(rows, self.most_rows, self.bar, self.is_newest_shown), name
        for last in [*records_after(self.query, -1)][-1:]:
            self.batch, self.rows = last["batchId"], rows.count()
            rate = f"{last.get('processedRowsPerSecond', 0):,.1f} rows a second"
            title = f"{name}: batch {self.batch}, {counted(self.rows, 'row')}, {rate}"
            if watermark := watermark_of(last):
                title += f", watermark {watermark}"
        table.title, table.caption = title, Text(caption)
        self.screen.draw(table)


def refuse_invalid_bar(df: DataFrame, bar: str | None) -> None:
    """Raise UsageError if `bar` is not a column of numbers."""
    numbers = [field.name for field in df.schema if isinstance(field.dataType, NumericType)]
    if bar is not None and bar not in numbers:
        known = ", ".join(numbers) or "none"
        raise UsageError(f"bar={bar!r} is not a column of numbers; these are {known}.")


def draw_table(df: DataFrame, most_rows: int, bar: str | None, newest: bool = False) -> Table:
    """Return a table of the first rows of a DataFrame, or the newest, with bars for one column."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", caption_justify="left")
    for column in df.schema:
        header, is_number = Text(printable(column.name)), isinstance(column.dataType, NumericType)
        table.add_column(header, justify="right" if is_number else "left", overflow="fold")
    # By position, because two columns may have the same name.
    names = [f"c{number}" for number in range(len(df.columns))]
    strings = df.toDF(*names).select(*(F.col(name).cast("string") for name in names))
    rows = strings.tail(most_rows) if newest else strings.limit(most_rows).collect()
    bars = [""] * len(rows)
    if bar is not None:
        table.add_column(no_wrap=True)
        bars = _bars([row[df.columns.index(bar)] for row in rows])
    for row, line in zip(rows, bars, strict=True):
        cells = [*map(_cell, row), *([line] if bar is not None else [])]
        table.add_row(*map(Text, cells))
    return table


def _bars(values: list[str | None]) -> list[str]:
    numbers = [float(value or "nan") for value in values]
    lengths = [number if 0 < number < math.inf else 0.0 for number in numbers]
    longest = max(lengths, default=0.0) or 1.0
    return ["█" * round(_BAR_WIDTH * length / longest) for length in lengths]


def _cell(value: str | None) -> str:
    shown = printable("NULL" if value is None else value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 1]}…"


class Screen:
    """The output of the current cell, which is updated while other cells run; or the terminal."""

    def __init__(self) -> None:
        self.is_notebook = Console().is_jupyter
        self._handle: Any = None

    def draw(self, table: Table) -> None:
        """Replace the output of the cell; in a terminal, print the table below the last one."""
        if not self.is_notebook:
            Console().print(table)
        elif self._handle is None:
            from IPython.display import display

            self._handle = display(table, display_id=True)
        else:
            self._handle.update(table)
