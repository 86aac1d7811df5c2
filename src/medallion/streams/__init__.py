"""Interactive streaming queries in a notebook or a terminal: start, show, await and stop them."""

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
    "Stopped", "Stream", "StreamError", "UsageError", "await_termination", "display", "exception",
    "explain", "stop_all_streams", "streams", "trigger", "until_stream_is_ready", "write",
]  # fmt: skip
