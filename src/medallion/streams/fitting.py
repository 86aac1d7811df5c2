"""Which sink goes with which output mode and trigger: told in words, before Spark is asked."""

from __future__ import annotations

from medallion.errors import UsageError
from medallion.streams.plan import StreamPlan

MODES = ("append", "update", "complete")
FILES = ("parquet", "json", "csv", "orc", "text")
SINKS = ("delta", "files", *FILES, "console", "memory", "foreach", "foreachBatch", "kafka")

_CONTINUOUS_SINKS = ("console", "memory", "kafka")
_CONTINUOUS_SOURCES = ("rate", "kafka")
_BY_ROW = frozenset(
    (
        *("Project", "Filter", "SubqueryAlias", "View", "TypedFilter", "MapElements"),
        *("MapPartitions", "DeserializeToObject", "SerializeFromObject"),
    )
)
"""The operators that need to know no other row: Spark's list for continuous processing."""


def refuse(plan: StreamPlan, sink: str, mode: str, is_continuous: bool) -> None:
    """Refuse what cannot run.

    Raises:
        UsageError: the sink or the mode is unknown, or one does not go with the other, with what
            the stream does, or with the trigger. The message says what does.
    """
    if sink not in SINKS:
        raise UsageError(f"There is no sink {sink!r}; there are {', '.join(SINKS)}.")
    if mode not in MODES:
        raise UsageError(f"There is no output mode {mode!r}; there are {', '.join(MODES)}.")
    unfit = _mode_and_sink(sink, mode) or _mode_and_plan(plan, mode)
    if is_continuous:
        unfit = unfit or _continuous(plan, sink)
    if unfit:
        raise UsageError(unfit)


def _mode_and_sink(sink: str, mode: str) -> str | None:
    if sink == "delta" and mode == "update":
        return (
            "The sink delta takes append or complete, not update: for update take foreachBatch, "
            "with a MERGE on the group's keys."
        )
    if sink in ("files", *FILES) and mode != "append":
        return (
            f"The sink {sink} takes append alone, not {mode}, for a file is never written again: "
            "take append with a watermark, or the sink delta."
        )
    return None


def _mode_and_plan(plan: StreamPlan, mode: str) -> str | None:
    if not plan.sources:  # nothing is known of it
        return None
    if mode == "complete" and not plan.aggregates:
        return (
            "The output mode complete gives the whole result of an aggregation at each batch, and "
            "this stream has none: take append."
        )
    if "Sort" in plan.operators and mode != "complete":
        return (
            f"A stream cannot be sorted in the output mode {mode}, for it has no end: sort an "
            "aggregation in complete mode, or sort the table that the stream writes."
        )
    if mode == "append" and plan.aggregates and not plan.has_watermark:
        return (
            "The output mode append gives a group when it is final, and without a watermark none "
            "ever is: add withWatermark on the event time before groupBy, or take complete or "
            "update."
        )
    return None


def _continuous(plan: StreamPlan, sink: str) -> str | None:
    instead = "take an interval such as '1 second'"
    if sink not in _CONTINUOUS_SINKS:
        taken = ", ".join(_CONTINUOUS_SINKS)
        return f"The trigger continuous goes with the sinks {taken}, not with {sink}: {instead}."
    if others := sorted(plan.sources - {*_CONTINUOUS_SOURCES}):
        taken = " and ".join(_CONTINUOUS_SOURCES)
        return (
            f"The trigger continuous goes with the sources {taken}, not with "
            f"{', '.join(others)}: {instead}."
        )
    if others := sorted(plan.operators - _BY_ROW):
        return (
            "The trigger continuous takes each row on its own, and cannot do "
            f"{', '.join(others)}: {instead}."
        )
    return None
