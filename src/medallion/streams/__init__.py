"""Streaming queries in a notebook or a terminal: show, await and stop them."""

from medallion.errors import UsageError
from medallion.spark.errors import StreamError
from medallion.streams.control import exception, stop_all_streams, until_stream_is_ready
from medallion.streams.display import display

__all__ = [
    "StreamError",
    "UsageError",
    "display",
    "exception",
    "stop_all_streams",
    "until_stream_is_ready",
]
