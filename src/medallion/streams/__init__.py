"""Streams by hand: to start, wait for, look at and stop them, in a notebook or a terminal.

Everything here is Spark's own, made safe: each wait has an end, each refusal is one sentence.
"""

from medallion.errors import UsageError
from medallion.spark.errors import StreamError
from medallion.streams.control import (
    Stopped,
    Stream,
    await_termination,
    exception,
    explain,
    stop_all_streams,
    streams,
    until_stream_is_ready,
)
from medallion.streams.display import display
from medallion.streams.writing import named_trigger as trigger
from medallion.streams.writing import write

__all__ = [
    "Stopped",
    "Stream",
    "StreamError",
    "UsageError",
    "await_termination",
    "display",
    "exception",
    "explain",
    "stop_all_streams",
    "streams",
    "trigger",
    "until_stream_is_ready",
    "write",
]
