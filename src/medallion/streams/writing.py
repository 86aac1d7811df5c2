"""Triggers and sinks by name: start a stream, with checks beyond those of Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.config.values import Duration
from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, missing_jars, one_line
from medallion.streams.control import keep

DEFAULT, ONCE, AVAILABLE_NOW, CONTINUOUS = "default", "once", "available-now", "continuous"


def named_trigger(text: str) -> dict[str, Any]:
    """The arguments of `DataStreamWriter.trigger` for a trigger by its name.

    `default`: the next batch as soon as the one before has ended. `4 seconds`: at that interval.
    `once`: all that is there in one batch, then the end. `available-now`: all that is there in
    batches of the source's size, then the end. `continuous`, or `continuous 4 seconds`: each row
    on its own, with a checkpoint every second, or at that interval.

    Raises:
        UsageError: the text is none of these.
    """
    words = " ".join(str(text).split())
    if words == ONCE:
        return {"once": True}
    if words == AVAILABLE_NOW:
        return {"availableNow": True}
    is_continuous = words.split(" ")[0] == CONTINUOUS
    interval = words.removeprefix(f"{CONTINUOUS} ")
    if words == DEFAULT:
        return {"processingTime": "0 seconds"}
    if words == CONTINUOUS:
        return {"continuous": "1 second"}
    try:
        Duration.parse(interval)
    except ValueError:
        raise UsageError(
            f"The trigger {text!r} is none of {DEFAULT}, {ONCE}, {AVAILABLE_NOW}, {CONTINUOUS}, or "
            "an interval such as '4 seconds'."
        ) from None
    return {"continuous" if is_continuous else "processingTime": interval}


_FOLDERS = ("delta", "files", "parquet", "json", "csv", "orc", "text")
_LASTING = (*_FOLDERS, "foreach", "foreachBatch", "kafka")
_SINKS = (*_LASTING, "console", "memory")
_NOTE = "sink"
# Unless it is set to false, Spark stops the stream that has a checkpoint, and says so in a log.
_STOP_FIRST = "spark.sql.streaming.stopActiveRunOnRestart"


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
    """Start a stream of `df` into a sink.

    `sink` and `to`: `delta` and `files` (which are parquet; or by format: `parquet`, `json`,
    `csv`, `orc`, `text`) with a folder; `kafka` with a topic, and the servers in `options`;
    `foreach` and `foreachBatch` with a function of a row, or of a DataFrame and a batch id;
    `console`; `memory`, a table in this session called `name`. `trigger` is one of
    `medallion.streams.trigger`.

    Beyond Spark's own: sinks that last must have a checkpoint, where for `foreach` and
    `foreachBatch` Spark would take one that is gone with the stream; and a checkpoint goes with
    one sink, and one stream at a time, where Spark would let rows go to the other one only. A sink
    is its kind, its folder, topic or `name`, and Kafka's servers, of which one is to stay;
    functions are told apart by `name` alone.

    Checkpoints are local folders.

    Raises:
        UsageError: something is missing, another sink or stream has the checkpoint, or Spark
            refuses the sink with this DataFrame, output mode or trigger.
    """
    how = named_trigger(trigger)
    if sink not in _SINKS:
        raise UsageError(f"There is no sink {sink!r}; there are {', '.join(_SINKS)}.")
    # By their names as Spark knows them, `Topic` and `topic` being one.
    given = {key.lower(): str(it) for key, it in (options or {}).items() if it is not None}
    if sink in _FOLDERS:
        to = _whole(to)
    place = _local(sink, checkpoint or given.get("checkpointlocation"))
    goal = _goal(sink, to, name, given)
    if df.sparkSession.conf.get(_STOP_FIRST, None) is None:
        df.sparkSession.conf.set(_STOP_FIRST, "false")
    if place and sink == "delta":
        _refuse_within(Path(to), place)
    with _claimed(place, goal):
        try:
            writer = df.writeStream.outputMode(output_mode).trigger(**how)
            writer = writer.options(**(options or {}))
            if name is not None:
                writer = writer.queryName(name)
            if place:
                writer = writer.option("checkpointLocation", str(place))
            return keep(_into(writer, sink, to).start())
        except SPARK_ERRORS as error:
            why = missing_jars(error) or one_line(str(error))
            raise UsageError(f"The stream did not start: {why}") from None


def _goal(sink: str, to: Any, name: str | None, options: Mapping[str, str]) -> dict[str, Any]:
    """All that decides where rows go."""
    if sink in _FOLDERS:
        return {"sink": sink, "to": to}
    if sink == "kafka":
        servers = options.get("kafka.bootstrap.servers", "").lower().split(",")
        topic = to if to is not None else options.get("topic", "")
        return {"sink": sink, "to": topic, "servers": [it.strip() for it in servers if it.strip()]}
    return {"sink": sink, "name": name or ""}


def _whole(to: Any) -> str:
    """A folder wherever one is, or an address as it is: Spark would begin where Java was started,
    and the next start, which is to find the same, may be elsewhere."""
    if not _is_a_place(to):
        raise UsageError("The sink needs `to`, the folder to write into.")
    return str(to) if _is_address(to) else str(Path(to).absolute())


def _local(sink: str, checkpoint: str | Path | None) -> Path | None:
    if not _is_a_place(checkpoint) and (checkpoint or sink in _LASTING):
        raise UsageError(
            f"The sink {sink} needs `checkpoint`, a folder that keeps how far the stream has come; "
            "without one a restart would begin anew."
        )
    if checkpoint and _is_address(checkpoint):
        raise UsageError(
            "The `checkpoint` must be a folder of this machine, where its sink is noted beside it."
        )
    return Path(checkpoint).absolute() if checkpoint else None


def _is_a_place(value: Any) -> bool:
    return isinstance(value, (str, Path)) and bool(str(value).strip())  # "" is here, to pathlib


def _is_address(place: str | Path) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", str(place)) is not None


def _into(writer: DataStreamWriter, sink: str, to: Any) -> DataStreamWriter:
    if sink == "foreach":
        return writer.foreach(to)
    if sink == "foreachBatch" and not callable(to):  # which Spark would find in its first batch
        raise UsageError(f"The sink {sink} needs `to`, a function of a DataFrame and a batch id.")
    if sink == "foreachBatch":
        return writer.foreachBatch(to)
    writer = writer.format("parquet" if sink == "files" else sink)
    if sink in _FOLDERS:
        return writer.option("path", to)
    return writer.option("topic", to) if sink == "kafka" and to is not None else writer


def _refuse_within(table: Path, checkpoint: Path) -> None:
    """A VACUUM takes all that no commit names, but for folders that begin with _: the checkpoint,
    too, and the next start would write all rows once more."""
    if checkpoint.is_relative_to(table):
        below = checkpoint.relative_to(table).parts
        if not (below and below[0].startswith("_")):
            raise UsageError(
                f"The checkpoint {checkpoint} lies in the table's own folder, where a VACUUM would "
                f"remove it: take one beside it, or {table / '_checkpoints'}."
            )


@contextmanager
def _claimed(checkpoint: Path | None, goal: Mapping[str, Any]) -> Iterator[None]:
    """A checkpoint is noted as this sink's before a row goes there; where the stream is refused, it
    stays whose it was.

    Raises:
        UsageError: it is another sink's.
    """
    if checkpoint is None:
        yield
        return
    noted = checkpoints.noted(checkpoint, _NOTE)
    for part, now in goal.items():
        then = (noted or {}).get(part, now)
        # Servers come and go, and any one of a cluster leads to all.
        if then != now and not (part == "servers" and set(then) & set(now)):
            raise UsageError(
                f"The checkpoint {checkpoint} belongs to a stream with `{part}` {then!r}, not "
                f"{now!r}: each stream needs one of its own."
            )
    checkpoints.note(checkpoint, _NOTE, dict(goal))
    try:
        yield
    except UsageError:
        if noted is None:
            checkpoints.forget(checkpoint, _NOTE)
        else:
            checkpoints.note(checkpoint, _NOTE, noted)
        raise
