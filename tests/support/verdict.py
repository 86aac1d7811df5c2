"""The verdict on a lakehouse, as `medallion status` derives it."""

from __future__ import annotations

from medallion.config.model import Config
from medallion.inspect.problems import LakehouseVerdict
from medallion.inspect.verdict import observe


def take_verdict(config: Config) -> LakehouseVerdict:
    """Return the verdict on a lakehouse as it is now."""
    return observe(config).verdict
