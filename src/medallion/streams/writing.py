"""A streaming DataFrame into a sink by its name, with what Spark would let pass looked at first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from medallion.errors import UsageError
from medallion.spark import checkpoints
from medallion.spark.errors import SPARK_ERRORS, missing_jars, one_line
from medallion.streams.fitting import FILES, refuse
from medallion.streams.known import keep, label, session
from medallion.streams.plan import plan_of
from medallion.streams.triggers import trigger as named_trigger

_FOLDERS = ("delta", "files", *FILES)
_LASTING = (*_FOLDERS, "foreach", "foreachBatch", "kafka")
_NOTE, _SERVERS = "sink", "kafka.bootstrap.servers"


def write(
    df: DataFrame,
    sink: str,
    to: str | Path | Callable[..., Any] | Any = None,
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
    one sink, and one stream at a time, where Spark would stop the stream that has it and let rows
    go to the other one only. A sink is its kind, its folder, topic or `name`, and Kafka's servers,
    of which one is to stay; functions are told apart by `name` alone.

    Checkpoints are local folders.

    Raises:
        UsageError: `df` is no stream, something is missing, does not go together with the rest, or
            another stream has the checkpoint.
    """
    if not df.isStreaming:
        raise UsageError("This DataFrame is no stream: write it with df.write, or show it.")
    how = named_trigger(trigger)
    refuse(plan_of(df), sink, output_mode, "continuous" in how)
    # By their names as Spark knows them, `Topic` and `topic` being one.
    given = {key.lower(): str(it) for key, it in (options or {}).items() if it is not None}
    checkpoint = checkpoint or given.get("checkpointlocation")
    if missing := _missing(df, sink, to, name, checkpoint, given):
        raise UsageError(f"The sink {sink} needs {missing}.")
    to = _whole(str(to)) if sink in _FOLDERS else to
    checkpoint = Path(checkpoint).absolute() if checkpoint else None
    writer = df.writeStream.outputMode(output_mode).trigger(**how).options(**dict(options or {}))
    if name is not None:
        writer = writer.queryName(name)
    goal = _goal(sink, to, name, given)
    if checkpoint is not None:
        if sink == "delta":
            _refuse_within(Path(str(to)), checkpoint)
        _refuse_claimed(checkpoint, goal)
        writer = writer.option("checkpointLocation", str(checkpoint))
    try:
        query = keep(_into(writer, sink, to).start())
    except SPARK_ERRORS as error:
        why = missing_jars(error) or one_line(str(error))
        raise UsageError(f"The stream did not start: {why}") from None
    if checkpoint is not None:
        checkpoints.note(checkpoint, _NOTE, goal)
    return query


def _goal(sink: str, to: Any, name: str | None, options: Mapping[str, str]) -> dict[str, Any]:
    """All that decides where rows go."""
    goal: dict[str, Any] = {"sink": sink, "to": str(to) if isinstance(to, (str, Path)) else ""}
    if sink in ("memory", "foreach", "foreachBatch"):
        goal["name"] = name or ""
    if sink == "kafka":
        goal["topic"] = options.get("topic", "") if to is None else ""
        servers = (server.strip().lower() for server in options[_SERVERS].split(","))
        goal["servers"] = [server for server in servers if server]
    return goal


def _whole(to: str) -> str:
    """A folder wherever one is, or an address as it is: Spark would begin where Java was started,
    and the next start, which is to find the same, may be elsewhere."""
    return to if _is_address(to) else str(Path(to).absolute())


def _is_address(place: str | Path) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", str(place)) is not None


def _into(writer: DataStreamWriter, sink: str, to: Any) -> DataStreamWriter:
    if sink == "foreach":
        return writer.foreach(to)
    if sink == "foreachBatch":
        return writer.foreachBatch(to)
    writer = writer.format("parquet" if sink == "files" else sink)
    if sink in _FOLDERS:
        return writer.option("path", str(to))
    return writer.option("topic", to) if sink == "kafka" and to is not None else writer


def _missing(
    df: DataFrame,
    sink: str,
    to: Any,
    name: str | None,
    checkpoint: str | Path | None,
    options: Mapping[str, str],
) -> str | None:
    """What a sink needs and was not given."""
    if sink in _FOLDERS and not (isinstance(to, (str, Path)) and str(to).strip()):
        return "`to`, the folder to write into"
    if sink == "foreachBatch" and not callable(to):
        return "`to`, a function of a DataFrame and a batch id"
    if sink == "foreach" and not (callable(to) or hasattr(to, "process")):
        return "`to`, a function of a row, or an object with a method `process`"
    if sink == "memory" and not re.fullmatch(r"[A-Za-z_]\w*", str(name or "")):
        return f"`name`, letters, digits and _, which its table gets; not {name!r}"
    if sink == "kafka" and (missing := _missing_for_kafka(df, to, options)):
        return missing
    is_named = isinstance(checkpoint, (str, Path)) and str(checkpoint).strip()
    if not is_named and (checkpoint or sink in _LASTING):
        return (
            "`checkpoint`, a folder that keeps how far the stream has come; without one a restart "
            "would begin anew"
        )
    if checkpoint and _is_address(checkpoint):
        return "a `checkpoint` in a folder of this machine, where its sink is noted beside it"
    return None


def _missing_for_kafka(df: DataFrame, to: Any, options: Mapping[str, str]) -> str | None:
    if _SERVERS not in options:
        return f"the option {_SERVERS}, such as 'localhost:9092'"
    if "value" not in df.columns:
        return "a column `value`, string or binary, such as to_json(struct('*')) AS value"
    if to is None and "topic" not in df.columns:
        return "`to`, the topic to write into, or a column `topic`"
    return None


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


def _refuse_active(checkpoint: Path) -> None:
    """Spark would stop the stream that has the checkpoint, and say so in its log alone."""
    metadata = checkpoint / "metadata"
    said = metadata.read_text(errors="replace") if metadata.is_file() else ""
    for query in session().streams.active:
        if query.id in said:
            raise UsageError(
                f"The checkpoint {checkpoint} is that of the stream {label(query)}, which runs: "
                "stop it first, with its stop() or with medallion.streams.stop_all_streams()."
            )


def _refuse_claimed(checkpoint: Path, goal: Mapping[str, Any]) -> None:
    _refuse_active(checkpoint)
    noted = checkpoints.noted(checkpoint, _NOTE) or goal
    then = {**goal, **noted}  # an older note says less
    others = {part for part in goal if then[part] != goal[part]}
    if set(then.get("servers", ())) & set(goal.get("servers", ())):
        others -= {"servers"}  # of one cluster: any of them leads to all
    if not others:
        return
    told = f"{noted['sink']} {noted['to'] or noted.get('topic') or noted.get('name', '')}".strip()
    if others == {"name"} and not noted["name"]:
        told += " without a name"
    if "servers" in noted:
        told += f" at {', '.join(noted['servers'])}"
    but = (
        "; servers of one cluster may change, but not all at once" if others == {"servers"} else ""
    )
    raise UsageError(
        f"The checkpoint {checkpoint} belongs to the stream into {told}: "
        f"each stream needs one of its own{but}."
    )
