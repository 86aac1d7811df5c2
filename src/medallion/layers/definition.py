"""What a table was made by: another definition would be mixed with the one that it has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from medallion.config.model import Config
from medallion.config.values import Duration
from medallion.errors import ConfigError
from medallion.spark import checkpoints

# Settings that Spark takes from a query's state, whatever the session says.
_KEPT = ("spark.sql.shuffle.partitions", "spark.sql.streaming.stateStore.providerClass")


def refuse_another(
    config: Config, table: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise ConfigError where a table is not defined as it was when it was made."""
    changed = [
        f"{key} {then[key]!r}" if key in then else f"no {key}"
        for key in dict.fromkeys((*then, *now))
        if not _is_same(then.get(key), now.get(key))
    ]
    if changed:
        raise ConfigError(
            f"{config.conf_dir / 'pipeline.yaml'}: {table} was made with {', '.join(changed)}: "
            f"put that back, or rebuild the table with medallion refresh {table}."
        )


def _is_same(then: Any, now: Any) -> bool:
    """Whether two values are the same: a window of 600 seconds is one of 10 minutes."""
    try:
        return bool(then == now) or Duration.of(then) == Duration.of(now)
    except (ValueError, AttributeError):  # they are no durations, or not even text
        return False


def kept_settings(spark: SparkSession, checkpoint: Path) -> list[str]:
    """The settings of Spark that a query keeps from its first run, where they are others now."""
    then = checkpoints.settings(checkpoint)
    return [
        f"{key} {then[key]}" for key in _KEPT if key in then and spark.conf.get(key) != then[key]
    ]
