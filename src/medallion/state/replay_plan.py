"""The plan of a replay, beside silver's checkpoint, so that the next run completes the replay."""

from typing import Any

from medallion.config.model import Config
from medallion.spark import checkpoints
from medallion.storage.paths import StoragePath

_NAME = "replay"  # of the plan, and of the directory of the staged rows


def directory(config: Config, source: str) -> StoragePath:
    """Return the directory of the rows that a replay writes to the tables of a source."""
    return _checkpoint(config, source) / _NAME


def read_plan(config: Config, source: str) -> dict[str, Any] | None:
    """Return the plan; None if there is none."""
    return checkpoints.read_document(_checkpoint(config, source), _NAME)


def write_plan(config: Config, source: str, plan: dict[str, Any]) -> None:
    """Write the plan atomically; its rows are staged."""
    checkpoints.write_document(_checkpoint(config, source), _NAME, plan)


def delete_plan(config: Config, source: str) -> None:
    """Delete the plan of a completed replay, and its staged rows."""
    checkpoints.write_document(_checkpoint(config, source), _NAME, None)
    directory(config, source).delete_prefix()


def interrupted_replays(config: Config) -> list[str]:
    """Return the sources with a replay to complete."""
    return [name for name in config.sources if read_plan(config, name)]


def _checkpoint(config: Config, source: str) -> StoragePath:
    return config.layout.checkpoint(config.sources[source].rows_table)
