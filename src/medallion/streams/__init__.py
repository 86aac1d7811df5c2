"""Streams by hand: to start, wait for, look at and stop them, in a notebook or a terminal.

Everything here is Spark's own, made safe: each wait has an end, each refusal is one sentence.
"""

from medallion.streams.listing import Stream, streams
from medallion.streams.table import Table
from medallion.streams.waiting import (
    Stopped,
    await_termination,
    exception,
    explain,
    stop_all_streams,
    until_stream_is_ready,
)

__all__ = [
    "Stopped",
    "Stream",
    "Table",
    "await_termination",
    "exception",
    "explain",
    "stop_all_streams",
    "streams",
    "until_stream_is_ready",
]
