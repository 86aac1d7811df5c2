"""A DataFrame shown: a stream as a table or bar chart that changes, any other once."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from medallion.errors import UsageError
from medallion.spark.errors import SPARK_ERRORS, StreamError
from medallion.spark.jvm import has_lost_its_thread
from medallion.spark.plans import analyzed_plan, plan_nodes
from medallion.spark.query import records_after, watermark_of
from medallion.storage.text import counted
from medallion.streams import drawing
from medallion.streams.control import exception, forget, interrupts, label, session, stop
from medallion.streams.drawing import Picture, Screen
from medallion.streams.writing import named_trigger, write


@dataclass
class Tally:
    """The batches of one run. In `complete` mode each one replaces the rows of the one before."""

    mode: str
    batches: int = 0
    rows: int = 0
    last: dict[str, Any] = field(default_factory=dict)

    def take(self, query: StreamingQuery) -> None:
        """Take up the records of the batches that have ended since the last call."""
        for record in records_after(query, self.batches - 1):
            self.batches, self.last = record["batchId"] + 1, record
            written = max(0, record["sink"]["numOutputRows"])
            self.rows = written if self.mode == "complete" else self.rows + written

    def summary(self) -> str:
        """The same in words, with the last batch's rate and watermark."""
        if not self.last:
            return "no batch yet"
        words = [
            f"batch {self.batches - 1}",
            counted(self.rows, "row"),
            f"{self.last['processedRowsPerSecond']:,.1f} rows a second",
        ]
        if watermark := watermark_of(self.last):
            words.append(f"watermark {watermark}")
        return ", ".join(words)


_PAUSE = 0.1
_MOST_ROWS = 100_000
"""What a stream's table holds, all of it in memory, when its display ends at the latest."""

_displayed: set[str] = set()
"""The run ids of the streams that were started here, to be shown."""


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
    """Show a stream as it grows, in a terminal or in the output of a notebook's cell.

    The rows go into a table in this session's memory; with `stream_name` SQL can ask it by that
    name, and it stays when the display is over. `output_mode` is `complete` for an aggregation and
    `append` for other streams unless it is given; `trigger` is one of `medallion.streams.trigger`,
    but for `continuous`.
    At most `rows` rows are shown, and no more than a terminal has room for: of the newest batches,
    or in complete mode the first. With `bar`, a column of numbers, each row has a bar.

    It ends when the stream does, after `seconds`, with Ctrl-C, or when the table holds 100,000
    rows; the stream is stopped then. Only in a notebook, and with neither `seconds` nor a trigger
    that ends, does the call return at once: the output goes on changing until the stream is
    stopped.

    A DataFrame that is no stream is shown once, and None is returned.

    Raises:
        UsageError: there is no such column, a number is not above 0, or the stream cannot be shown
            in that mode or by that trigger.
        StreamError: the stream failed.
    """
    how = _checked(trigger, rows, seconds)
    picture = Picture(df, rows, bar)
    screen = drawing.screen()
    if not df.isStreaming:
        with screen:
            screen.draw(picture.first(""))
        return None
    name = stream_name or f"display_{uuid.uuid4().hex[:8]}"
    _stop_shown(name)
    mode = output_mode or ("complete" if _aggregates(df) else "append")
    query = write(df, "memory", name=name, trigger=trigger, output_mode=mode)
    _displayed.add(query.runId)
    picture = Picture(session().table(name), min(rows, screen.room or rows), bar)
    showing = _Showing(query, picture, screen, seconds, Tally(mode), stream_name is None)
    ends = seconds or how.keys() & {"once", "availableNow"}
    if screen.outlives_the_call and not ends:
        showing.draw()  # here: a first output of the thread goes to the cell that runs by then
        threading.Thread(target=showing.run_on, daemon=True).start()
        return query
    if failure := showing.run():
        raise StreamError(f"{name} failed: {failure}")
    return query


def _aggregates(df: DataFrame) -> bool:
    """Whether a stream counts groups or sums them up, by itself and not in a table joined to it."""
    return any(
        n.nodeName() == "Aggregate" and n.isStreaming() for n in plan_nodes(analyzed_plan(df))
    )


def _checked(trigger: str, rows: int, seconds: float | None) -> dict[str, Any]:
    """The trigger as Spark has it; wrong arguments are errors that name them."""
    if not (isinstance(rows, int) and rows > 0):
        raise UsageError(f"rows must be a whole number above 0, not {rows!r}.")
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise UsageError(f"seconds must be above 0, not {seconds!r}.")
    how = named_trigger(trigger)
    if "continuous" in how:
        # Its tasks hold cores until it ends, all of them perhaps: a job that draws would not begin.
        raise UsageError(
            "A display takes no trigger continuous: take an interval such as '1 second', or start "
            "the stream with medallion.streams.write."
        )
    return how


def _stop_shown(name: str) -> None:
    """A cell that is run again shows its stream anew, instead of failing because it runs."""
    stop(q for q in session().streams.active if q.name == name and q.runId in _displayed)


@dataclass
class _Showing:
    """One stream on one screen."""

    query: StreamingQuery
    picture: Picture
    screen: Screen
    seconds: float | None
    tally: Tally
    is_nameless: bool  # then nobody can ask its table, which goes with it
    started: float = field(default_factory=time.monotonic)

    def run(self) -> str | None:
        """Draw until the end, stop the stream, and draw what it is at last; what it failed of."""
        with self.screen:
            with interrupts() as come:
                why = self._watch(come)
            (stopped,) = stop([self.query])
            self.tally.take(self.query)
            failure = exception(self.query)
            self.draw(f"failed: {failure}" if failure else f"{stopped.outcome}: {why}")
        if self.is_nameless:
            session().catalog.dropTempView(self.query.name)
            forget(self.query)
        return failure

    def run_on(self) -> None:
        """The same beside other cells, one of which may stop Spark itself."""
        with suppress(*SPARK_ERRORS, OSError):
            self.run()

    def _watch(self, come: list[int]) -> str:
        """Draw each batch until the display is over; why it is."""
        drawn: object = None
        while True:
            is_active = self.query.isActive and not has_lost_its_thread(self.query)
            self.tally.take(self.query)  # after that, so that the last batch is drawn
            if (seen := (self.tally.batches, self.tally.rows)) != drawn:
                drawn = seen
                self.draw()
            if why := self._over(is_active):
                return why
            if come:
                return "interrupted"
            time.sleep(_PAUSE)

    def _over(self, is_active: bool) -> str | None:
        if not is_active:
            return "it has come to its end"
        if self.seconds is not None and time.monotonic() - self.started >= self.seconds:
            return f"{self.seconds:g} seconds are over"
        if self.tally.rows >= _MOST_ROWS:
            return f"its table holds {counted(self.tally.rows, 'row')}, all of them in memory"
        return None

    def draw(self, foot: str = "") -> None:
        """Draw the rows that the table has now."""
        draw = self.picture.first if self.tally.mode == "complete" else self.picture.last
        self.screen.draw(draw(f"{label(self.query)}: {self.tally.summary()}", foot))
