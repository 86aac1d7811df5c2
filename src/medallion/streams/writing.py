"""Start a streaming query by the names of its sink and trigger."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, missing_jars, one_line
from medallion.spark.query import trigger_options
from medallion.storage.paths import StoragePath
from medallion.streams.control import keep

_TRIGGERS: Mapping[str, Mapping[str, Any]] = {
    "default": {"processingTime": "0 seconds"},
    "once": {"once": True},
    "continuous": {"continuous": "1 second"},
}
_FILE_SINKS = ("delta", "files", "parquet", "json", "csv", "orc", "text")
_LASTING_SINKS = (*_FILE_SINKS, "foreach", "foreachBatch", "kafka")
_SINKS = (*_LASTING_SINKS, "console", "memory")


def named_trigger(name: str) -> dict[str, Any]:
    """Return the arguments of `DataStreamWriter.trigger` for a trigger by name.

    - `default`: the next batch as soon as one has ended; `4 seconds`: at that interval.
    - `available-now`: all available data, in batches of the source's size; `once`: in one batch.
    - `continuous`, `continuous 4 seconds`: row by row, with a checkpoint at that interval.

    Raises:
        UsageError: there is no such trigger.
    """
    words = " ".join(str(name).split())
    interval = words.removeprefix("continuous ")
    options = trigger_options(interval, _TRIGGERS)
    return options if interval == words else {"continuous": options.get("processingTime")}


def write(
    df: DataFrame,
    sink: str,
    to: Any = None,
    *,
    name: str | None = None,
    checkpoint: str | Path | None = None,
    trigger: str = "default",
    output_mode: str = "append",
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that writes a stream to a sink.

    Args:
        df: the stream.
        sink: `delta`, `files` (parquet), `parquet`, `json`, `csv`, `orc`, `text`, `kafka`,
            `foreach`, `foreachBatch`, `console` or `memory`.
        to: the directory, the topic, or the function of a row, or of a DataFrame and a batch id.
        name: the name of the query, and of the table of `memory`.
        checkpoint: a local directory; all sinks but `console` and `memory` need one. It belongs to
            one sink: with another one, Spark would write only new rows there.
        trigger: see `medallion.streams.trigger`.
        output_mode: as Spark's.
        options: options of the sink, such as `kafka.bootstrap.servers`.

    Raises:
        UsageError: an argument is missing, the checkpoint belongs to another sink, or Spark refuses
            the query.
    """
    trigger_arguments = named_trigger(trigger)
    if sink not in _SINKS:
        raise UsageError(f"There is no sink {sink!r}; there are {', '.join(_SINKS)}.")
    if sink in _FILE_SINKS:
        to = _absolute(sink, "to", to)
    elif sink == "foreachBatch" and not callable(to):  # Spark would fail only in the first batch
        raise UsageError("foreachBatch needs `to`, a function of a DataFrame and a batch id.")
    checkpoint_path = None
    if sink in _LASTING_SINKS or checkpoint:
        checkpoint_path = StoragePath(_absolute(sink, "checkpoint", checkpoint))
        _refuse_other_sink(checkpoint_path, sink, to, name)
    try:
        writer = df.writeStream.outputMode(output_mode).trigger(**trigger_arguments)
        writer = writer.options(**(options or {}))
        if name is not None:
            writer = writer.queryName(name)
        if checkpoint_path:
            writer = writer.option("checkpointLocation", str(checkpoint_path))
        query = keep(_with_sink(writer, sink, to).start())
    except SPARK_ERRORS as error:
        reason = missing_jars(error) or one_line(str(error))
        raise UsageError(f"The stream did not start: {reason}") from None
    if checkpoint_path:
        checkpoints.write_document(checkpoint_path, "sink", _sink_identity(sink, to, name))
    return query


def _absolute(sink: str, argument: str, path: Any) -> str:
    """Return an absolute path, which does not depend on the working directory; or a URI."""
    if not isinstance(path, (str, os.PathLike)) or not str(path).strip():
        raise UsageError(f"The sink {sink} needs `{argument}`, a directory.")
    if ":/" not in str(path):
        return str(Path(path).absolute())
    if argument == "checkpoint":
        raise UsageError(f"`checkpoint` must be a local path, not {path}.")
    return str(path)


def _sink_identity(sink: str, to: Any, name: str | None) -> dict[str, Any]:
    """Return what identifies a sink; for a function, only the query's name does."""
    target = {"to": to} if sink in (*_FILE_SINKS, "kafka") else {"name": name or ""}
    return {"sink": sink, **target}


def _refuse_other_sink(checkpoint: StoragePath, sink: str, to: Any, name: str | None) -> None:
    recorded = checkpoints.read_document(checkpoint, "sink") or {}
    for key, current in _sink_identity(sink, to, name).items():
        if recorded.get(key, current) != current:
            raise UsageError(
                f"The checkpoint {checkpoint} belongs to a stream with `{key}` {recorded[key]!r}, "
                f"not {current!r}. Each stream needs its own checkpoint."
            )


def _with_sink(writer: DataStreamWriter, sink: str, to: Any) -> DataStreamWriter:
    if sink == "foreach":
        return writer.foreach(to)
    if sink == "foreachBatch":
        return writer.foreachBatch(to)
    writer = writer.format("parquet" if sink == "files" else sink)
    if sink in _FILE_SINKS:
        return writer.option("path", to)
    return writer.option("topic", to) if sink == "kafka" and to is not None else writer
