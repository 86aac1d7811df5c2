"""The verdict on a lakehouse, as `medallion status` derives it."""

from __future__ import annotations

from medallion.config.model import Config
from medallion.inspect.verdict import LakehouseVerdict, derive_verdict, observe


def take_verdict(config: Config) -> LakehouseVerdict:
    """Return the verdict on a lakehouse as it is now."""
    return derive_verdict(config, observe(config))
