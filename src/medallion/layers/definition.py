"""What a table was made by: another definition would be mixed with the one that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from medallion.config.model import Config
from medallion.errors import ConfigError


def refuse_another(
    config: Config, table: str, then: Mapping[str, Any], now: Mapping[str, Any]
) -> None:
    """Raise ConfigError where a table is not defined as it was when it was made."""
    changed = [
        f"{key} {then[key]!r}" if key in then else f"no {key}"
        for key in dict.fromkeys((*then, *now))
        if then.get(key) != now.get(key)
    ]
    if changed:
        raise ConfigError(
            f"{config.conf_dir / 'pipeline.yaml'}: {table} was made with {', '.join(changed)}: "
            f"put that back, or rebuild the table with medallion refresh {table}."
        )
