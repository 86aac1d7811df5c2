"""Triggers by name: when a stream takes its next batch."""

from __future__ import annotations

from typing import Any

from medallion.config.values import Duration
from medallion.errors import UsageError

DEFAULT, ONCE, AVAILABLE_NOW, CONTINUOUS = "default", "once", "available-now", "continuous"


def trigger(text: str) -> dict[str, Any]:
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
        Duration.of(interval)
    except ValueError:
        raise UsageError(
            f"The trigger {text!r} is none of {DEFAULT}, {ONCE}, {AVAILABLE_NOW}, {CONTINUOUS}, or "
            "an interval such as '4 seconds'."
        ) from None
    return {"continuous" if is_continuous else "processingTime": interval}
