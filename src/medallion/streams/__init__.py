"""Streaming queries in a notebook or a terminal: show, list, await and stop them."""

from medallion.errors import UsageError
from medallion.spark.errors import StreamError
from medallion.streams.control import (
    Stream,
    exception,
    stop_all_streams,
    streams,
    until_stream_is_ready,
)
from medallion.streams.display import display

__all__ = [
    "Stream", "StreamError", "UsageError", "display", "exception",
    "stop_all_streams", "streams", "until_stream_is_ready",
]  # fmt: skip
